"""Sampled rows keep to the model, more closely than independent draws would. All seeds are fixed."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.core import record
from discreet.errors import InvalidValue
from discreet.noise.source import seeded_for_tests
from discreet.synth import Synthesis, Tree
from discreet.synth import model as models
from discreet.synth import sample as samplers
from discreet.synth.junction import JunctionTree, onto
from unit.synth.rows import chain

RNG = np.random.default_rng(11)


def star(columns: int, size: int, random: np.random.Generator) -> tuple[JunctionTree, list[np.ndarray]]:  # type: ignore[type-arg]
    """A random tree of pairs with random tables."""
    edges = [tuple(sorted((i, int(random.integers(0, i))))) for i in range(1, columns)]
    tree = JunctionTree.of((size,) * columns, edges)
    return tree, tree.conditionals([random.normal(size=table.shape) for table in tree.zeros()])[0]


def worst_gap(codes: list[np.ndarray], tree: JunctionTree, conditionals: list[np.ndarray]) -> float:  # type: ignore[type-arg]
    """The largest l1 distance of a pair's counts to the model, over all pairs of columns."""
    count = len(codes[0])
    gaps = []
    for a, b in itertools.combinations(range(len(codes)), 2):
        table = np.zeros((tree.sizes[a], tree.sizes[b]))
        np.add.at(table, (codes[a], codes[b]), 1 / count)
        gaps.append(np.abs(table - tree.marginal(conditionals, (a, b))).sum())
    return float(max(gaps))


def independent_draws(tree: JunctionTree, conditionals: list[np.ndarray], count: int, random: np.random.Generator):  # type: ignore
    """Row by row, each from the conditional law: what i.i.d. sampling is."""
    columns: list = [None] * len(tree.sizes)  # type: ignore[type-arg]
    for clique, separator, table in zip(tree.cliques, tree.separators, conditionals):
        fresh = [column for column in clique if column not in separator]
        laws = table.transpose([clique.index(c) for c in (*separator, *fresh)]).reshape(
            -1, table[0].size if separator else table.size
        )
        group = columns[separator[0]] if separator else np.zeros(count, int)
        drawn = (np.cumsum(laws, axis=1)[group] > random.random((count, 1))).argmax(axis=1)
        for column, codes in zip(fresh, np.unravel_index(drawn, [tree.sizes[c] for c in fresh])):
            columns[column] = codes
    return columns


@settings(max_examples=25, derandomize=True)
@given(seed=st.integers(0, 10_000), columns=st.integers(3, 8), size=st.integers(2, 6))
def test_no_pair_is_further_from_the_model_than_independent_draws(seed: int, columns: int, size: int) -> None:
    random = np.random.default_rng(seed)
    tree, conditionals = star(columns, size, random)
    ours = np.mean([worst_gap(samplers.sample(tree, conditionals, 2000, random), tree, conditionals) for _ in range(4)])
    plain = np.mean([worst_gap(independent_draws(tree, conditionals, 2000, random), tree, conditionals) for _ in range(4)])
    assert ours <= 1.2 * plain


def test_without_the_shuffle_siblings_are_correlated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: rows in rank order, as other libraries shipped it."""
    tree = JunctionTree.of((2, 6, 6, 6), [(0, 1), (0, 2), (0, 3)])
    conditionals = tree.conditionals([RNG.normal(size=table.shape) for table in tree.zeros()])[0]
    plain = worst_gap(independent_draws(tree, conditionals, 2000, RNG), tree, conditionals)

    class Unshuffled:
        def __init__(self, random: np.random.Generator) -> None:
            self.random = random.random

        def shuffle(self, order: np.ndarray) -> None:  # type: ignore[type-arg]
            """Not at all."""

    broken = worst_gap(samplers.sample(tree, conditionals, 2000, Unshuffled(RNG)), tree, conditionals)  # type: ignore[arg-type]
    assert broken > 3 * plain
    assert worst_gap(samplers.sample(tree, conditionals, 2000, RNG), tree, conditionals) <= 1.2 * plain


@given(st.lists(st.floats(0, 10), min_size=1, max_size=9), st.integers(0, 1000), st.integers(0, 99))
def test_rounding_adds_up_and_stays_within_one(shares: list[float], size: int, seed: int) -> None:
    table = np.array([shares]) + 1e-12
    counts = samplers.rounded(table, np.array([size]), np.random.default_rng(seed))[0]
    assert counts.sum() == size
    assert counts.min() >= 0
    assert (np.abs(counts - size * table[0] / table.sum()) < 1 + 1e-6).all()


def test_rounding_is_right_on_average() -> None:
    shares = np.tile([[0.5, 0.2, 0.05, 0.25]], (20_000, 1))
    counts = samplers.rounded(shares, np.full(20_000, 3), RNG)
    assert np.allclose(counts.mean(axis=0), 3 * shares[0], atol=0.02)


@pytest.fixture(scope="module")
def model() -> models.Model:
    rows = chain(3000, (3, 4, 5, 2), np.random.default_rng(1))
    with seeded_for_tests(b"sampling"):
        return Synthesis(rows.sizes, record(), 4.0, 1e-6, Tree()).run(rows)  # type: ignore[arg-type]


def test_given_values_are_kept_and_others_follow(model: models.Model) -> None:
    table = model.sample(4000, given={"c1": 2}, seed=1).to_arrow().to_pydict()
    assert set(table["c1"]) == {2}
    joint = model.probabilities("c1", "c3")[2]
    share = np.bincount(table["c3"], minlength=2) / 4000
    assert np.allclose(share, joint / joint.sum(), atol=0.02)
    with pytest.raises(InvalidValue, match="no category 9"):
        model.sample(3, given={"c1": 9})
    with pytest.raises(InvalidValue, match="no column 'c9'"):
        model.sample(3, given={"c9": 0})


def test_parquet_is_written_batch_by_batch_and_whole_or_not_at_all(
    model: models.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "BATCH", 1000)
    place = model.sample(4500, seed=3).to_parquet(tmp_path / "t.parquet")
    assert parquet.read_table(place).equals(model.sample(4500, seed=3).to_arrow())
    assert parquet.ParquetFile(place).num_row_groups == 5

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet.ParquetWriter, "write_batch", full)
    with pytest.raises(InvalidValue, match="No space left"):
        model.sample(10).to_parquet(tmp_path / "u.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_an_interrupted_write_leaves_nothing(model: models.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(parquet.ParquetWriter, "write_batch", stopped)
    with pytest.raises(KeyboardInterrupt):
        model.sample(10).to_parquet(tmp_path / "u.parquet")
    assert list(tmp_path.iterdir()) == []


def test_the_number_of_rows_is_the_noisy_one(model: models.Model) -> None:
    assert len(model.sample()) == round(model.rows) != 3000


def test_marginals_agree_with_cliques(model: models.Model) -> None:
    beliefs = model.tree.beliefs(model.conditionals)
    for clique, belief in zip(model.tree.cliques, beliefs):
        names = [f"c{column}" for column in clique]
        assert np.allclose(model.probabilities(*names), belief)
        assert np.allclose(model.probabilities(*names[::-1]), onto(belief, clique, clique[::-1]))
