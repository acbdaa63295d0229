"""A model that is kept in a file makes the same rows and counts as before; a file that is something else is refused."""

from __future__ import annotations

import json
import os
import pickle
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from discreet import Ledger, record, synth, user
from discreet.core import Release
from discreet.errors import BudgetExceeded, InvalidDocument, InvalidValue
from discreet.synth import Column, Forbidden, Ordered
from discreet.synth.synthesis import METHODS, Synthesis

GIVEN: dict[str, Any] = {"unit": record(), "epsilon": 4.0, "delta": 1e-6}
DRAW = np.random.default_rng(5)


def everything() -> tuple[pa.Table, dict[str, Any]]:
    """A column of every type, and of every type of listed value."""
    count = 900
    days = [date(2000, 1, 1 + i % 28) for i in range(count)]
    table = pa.table({
        "job": pa.array(DRAW.choice(["cook", "nurse", "naïve ☃"], count)), "flag": pa.array(DRAW.random(count) < 0.3),
        "grade": pa.array(DRAW.integers(1, 4, count), pa.int8()), "share": pa.array(DRAW.choice([0.5, 1.5], count)),
        "day": pa.array(days), "feast": pa.array(DRAW.choice([date(2020, 1, 1), date(2020, 12, 25)], count)),
        "since": pa.array([datetime(2001, 1, 1 + i % 28, 3) for i in range(count)], pa.timestamp("ms")),
        "until": pa.array([datetime(2001, 1, 28)] * count),
        "hours": pa.array(DRAW.integers(0, 60, count), pa.int32(), mask=DRAW.random(count) < 0.1),
        "height": pa.array(DRAW.random(count), pa.float32()),
        "town": pa.array(DRAW.choice(["Ulm", "Bonn"], count)).dictionary_encode(),
    })  # fmt: skip
    start, end = datetime(2001, 1, 1), datetime(2001, 2, 1)
    schema = {
        "job": Column("categorical", find="categories"), "flag": {"type": "boolean"}, "grade": {"categories": [1, 2, 3]},
        "share": {"categories": [0.5, 1.5]},
        "day": Column("date", bounds=(date(2000, 1, 1), date(2000, 2, 1)), find="bins", bins=3),
        "feast": Column("ordinal", values=(date(2020, 1, 1),), other=date(2020, 12, 25)),
        "since": Column("timestamp", bounds=(start, end), bins=3), "until": Column("timestamp", bounds=(start, end), bins=2),
        "hours": Column("integer", bounds=(0, 99), bins=5, mass=(40,)),
        "height": Column("real", bounds=(0.0, 1.0), bins=(0.25, 0.5), decimals=2, required=True), "town": ["Ulm", "Bonn"],
    }  # fmt: skip
    return table, schema


@pytest.mark.parametrize("method", ["independent", "tree", "junction"])
def test_a_model_comes_back_as_it_was(method: str, tmp_path: Path) -> None:
    table, schema = everything()
    rules = [Ordered("since", "until"), Forbidden({"flag": True, "grade": 3})]
    place = tmp_path / "model.npz"
    fitted = synth.fit(table, **GIVEN, schema=schema, method=method, constraints=rules, keep=place)
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]
    again = synth.load(place)
    assert (again.claims, again.facts, again.source) == (fitted.claims, fitted.facts, fitted.source)
    one, two = fitted.value, again.value
    assert (one.cells, one.tree, one.rows, one.gap, one.ordered) == (two.cells, two.tree, two.rows, two.gap, two.ordered)
    assert two.sample(400, seed=3).to_arrow().equals(one.sample(400, seed=3).to_arrow())
    given = {"job": "cook", "hours": 40}
    assert two.sample(40, given=given, seed=3).to_arrow().equals(one.sample(40, given=given, seed=3).to_arrow())
    assert two.marginals().equals(one.marginals())
    assert synth.save(again, tmp_path / "copy.npz").read_bytes() == place.read_bytes()


def test_linked_tables_come_back_as_they_were(tmp_path: Path) -> None:
    users = pa.table({"id": pa.array(range(200), pa.int32()), "sex": ["f", "m"] * 100})
    visits = pa.table({"long": [i % 3 == 0 for i in range(500)], "id": pa.array([i % 150 for i in range(500)], pa.int32())})
    fitted = synth.fit_linked(
        {"users": users, "visits": visits}, parent="users", child="visits", unit=user("id", rows=4), epsilon=2.0, delta=1e-6,
        schema={"users": {"sex": ["f", "m"]}, "visits": {"long": {"type": "boolean"}}}, keep=tmp_path / "model.npz",
    )  # fmt: skip
    again = synth.load(tmp_path / "model.npz").value
    assert again.sample(90, seed=1).to_arrow() == fitted.value.sample(90, seed=1).to_arrow()
    assert again.children.marginal("users.sex", "long").equals(fitted.value.children.marginal("users.sex", "long"))


@pytest.mark.parametrize("method", ["independent", "tree", "junction", "aim"])
@pytest.mark.parametrize("rules", [(), (Forbidden({"grade": 3, "flag": True}),)])
def test_room_that_was_taken_is_enough(method: str, rules: Any, tmp_path: Path) -> None:
    table, schema = everything()
    fitted = synth.fit(table, **GIVEN, schema=schema, method=method, constraints=rules, keep=tmp_path / "model.npz")
    sizes = tuple(254 + 2 if name == "job" else cells.size + 2 for name, cells in zip(schema, fitted.value.cells))
    tied = tuple((0, 1) for _ in rules)
    promised = Synthesis(sizes, record(), 4.0, 1e-6, METHODS[method], tied=tied).most_bytes
    assert (tmp_path / "model.npz").stat().st_size <= promised


def test_a_refused_fit_leaves_no_room_taken(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    table, schema = everything()
    (tmp_path / "model.npz").write_text("older")
    with pytest.raises(BudgetExceeded):
        synth.fit(table, **GIVEN, schema=schema, ledger=ledger, source="people", keep=tmp_path / "model.npz")
    assert (tmp_path / "model.npz").read_text() == "older"
    with pytest.raises(InvalidValue, match=r"nowhere.*cannot be written: No such file.*Nothing was spent"):
        synth.fit(table, **GIVEN, schema=schema, ledger=ledger, source="people", keep=tmp_path / "nowhere" / "model.npz")
    assert {path.name for path in tmp_path.iterdir() if ".part" in path.name} == set()
    assert ledger.spent("people") == 0


def broken(parts: dict[str, Any], **change: Any) -> dict[str, Any]:
    document = json.loads(bytes(parts["document"]))
    return parts | {"document": np.frombuffer(json.dumps(document | change).encode(), np.uint8)}


class Nasty:
    def __reduce__(self) -> Any:
        return os.mkdir, ("unpickled",)


def test_files_that_are_no_models_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fitted = synth.fit(pa.table({"x": ["a", "b"] * 50}), **GIVEN, schema={"x": ["a", "b"]})
    good = synth.save(fitted, tmp_path / "model.npz")
    with np.load(good) as archive:
        parts = dict(archive)
    files: dict[str, dict[str, Any]] = {
        "format": broken(parts, format="other"), "version": broken(parts, version=99), "model": broken(parts, model={}),
        "none": {name: table for name, table in parts.items() if name != "document"},
        "shape": parts | {"conditional0": np.ones(7)}, "pickle": parts | {"counts0": np.array([Nasty()], object)},
    }  # fmt: skip
    for name, content in files.items():
        np.savez(tmp_path / f"{name}.npz", **content)
    (tmp_path / "cut.npz").write_bytes(good.read_bytes()[:-300])
    (tmp_path / "pickled.npz").write_bytes(pickle.dumps(Nasty()))
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "folder.npz").mkdir()
    for name in [*files, "cut", "pickled", "empty", "folder", "absent"]:
        with pytest.raises(InvalidDocument):
            synth.load(tmp_path / f"{name}.npz")
    assert not (tmp_path / "unpickled").exists()
    with pytest.raises(InvalidValue, match="Only what fit or fit_linked released"):
        synth.save(Release(value=3, source="x", claims=fitted.claims), tmp_path / "other.npz")
