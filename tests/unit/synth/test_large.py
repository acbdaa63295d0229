"""Estimation by torch is that by numpy, and what a device cannot do is told before anything is spent."""

from __future__ import annotations

import builtins
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from discreet import Ledger, record
from discreet.errors import InvalidValue, MissingExtra
from discreet.synth import Aim, Forbidden, Junction, fit, large
from discreet.synth.closed import simplex
from discreet.synth.constraints import with_impossible
from discreet.synth.dual import Problem, solve
from discreet.synth.junction import JunctionTree
from discreet.synth.large import TensorProblem
from discreet.synth.measure import Measurement, Reach
from discreet.synth.methods import Public
from discreet.synth.oneshot import independent

SIZES = (3, 4, 2, 5, 3)
SETS = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4), (0, 1, 2)]
GIVEN: dict[str, Any] = {"unit": record(), "epsilon": 1.0, "delta": 1e-6}


def measured(seed: int) -> list[Measurement]:
    random = np.random.default_rng(seed)
    sets = [*((i,) for i in range(len(SIZES))), *SETS]
    shapes = [tuple(SIZES[column] for column in columns) for columns in sets]
    return [Measurement(c, random.dirichlet(np.ones(np.prod(s))).reshape(s) * 500 + random.normal(size=s) * 5, 5.0)
            for c, s in zip(sets, shapes)]  # fmt: skip


def problems(seed: int, *, impossible: bool) -> tuple[Problem, TensorProblem]:
    tree = JunctionTree.of(SIZES, SETS)
    random = np.random.default_rng(seed)
    start = independent(tree, [simplex(random.random(size), 1.0) for size in SIZES])
    if impossible:
        start = with_impossible(tree, start, [((0, 1), np.arange(12).reshape(3, 4) % 4 == 0), ((4,), np.arange(3) == 1)])
    return Problem(tree, start, measured(seed), 500.0), TensorProblem(tree, start, measured(seed), 500.0, "cpu")


@pytest.mark.parametrize("impossible", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_value_gradient_objective_and_model_are_those_by_numpy(seed: int, impossible: bool) -> None:
    plain, tensors = problems(seed, impossible=impossible)
    for scale in (0.0, 0.5, 4.0):
        z = np.random.default_rng(seed).normal(size=plain.size) * scale
        one, other = plain.at(z, 20.0), tensors.at(z, 20.0)
        assert other[0] == pytest.approx(one[0], rel=1e-11)
        assert other[2] == pytest.approx(one[2], rel=1e-11)
        np.testing.assert_allclose(other[1], one[1], rtol=1e-9, atol=1e-9)
        for mine, theirs in zip(one[3], tensors.plain(other[3]), strict=True):
            np.testing.assert_allclose(theirs, mine, rtol=1e-10, atol=1e-15)


def test_the_optimum_is_the_same() -> None:
    """F(p) - F(best) >= strength x KL(p || best) >= strength / 2 x |p - best|^2 (Pinsker): so near both are at least."""
    tree = JunctionTree.of(SIZES, SETS)
    plain, tensors = (solve(it, strength=20.0, tolerance=1e-8, evaluations=3000) for it in problems(7, impossible=False))
    assert max(plain.relative_gap, tensors.relative_gap) <= 1e-8
    away = sum(np.sqrt(2 * it.gap / 20.0) for it in (plain, tensors))
    assert away < 5e-3
    for mine, theirs in zip(tree.beliefs(plain.conditionals), tree.beliefs(tensors.conditionals), strict=True):
        assert np.abs(theirs - mine).sum() <= away


def test_where_memory_does_not_suffice_numpy_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurements are paid for by then."""

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    public = Public(SIZES, Reach(), 1.0, 1e-6)
    method = Junction(device="cpu")
    before = method.estimate(public, measured(1))
    monkeypatch.setattr(TensorProblem, "at", full)
    after = method.estimate(public, measured(1))
    assert (before.converged, after.converged) == (True, True)
    expected = replace(method, device=None).estimate(public, measured(1))
    for mine, theirs in zip(expected.conditionals, after.conditionals, strict=True):
        np.testing.assert_array_equal(mine, theirs)


TABLE = pa.table({"x": ["a", "b"] * 200, "y": ["c", "d", "d", "c"] * 100, "z": [1, 2, 3, 4] * 100})
SCHEMA = {"x": ["a", "b"], "y": ["c", "d"], "z": [1, 2, 3, 4]}


@pytest.mark.parametrize("method", [Junction(device="cpu"), Aim(device="cpu")], ids=["junction", "aim"])
def test_a_fit_takes_a_device_with_constraints_too(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    real = large.TensorProblem.__init__
    monkeypatch.setattr(TensorProblem, "__init__", lambda self, *given: (used.append(given[-1]), real(self, *given))[-1])
    rules = [Forbidden({"x": "a", "y": "c"})]
    rows = fit(TABLE, **GIVEN, schema=SCHEMA, method=method, constraints=rules).value.sample(300).to_arrow().to_pylist()
    assert set(used) == {"cpu"}
    assert not [row for row in rows if (row["x"], row["y"]) == ("a", "c")]


@pytest.mark.parametrize("method", [Junction, Aim])
@pytest.mark.parametrize("device", ["abacus", "cuda:99", "meta!", 3.5])
def test_a_device_that_is_not_there_costs_nothing(device: Any, method: Any, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidValue, match=r"device must be one that torch has here"):
        fit(TABLE, **GIVEN, schema=SCHEMA, method=method(device=device), ledger=ledger, source="people")
    assert [entry.kind for entry in ledger.history("people")] == ["open"]


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "torch":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"discreet-privacy\[torch\]"):
        large.ready("cpu")
