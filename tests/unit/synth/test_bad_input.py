"""Input that cannot be served: each a clear error, nothing spent that was not used, nothing half-written.

Fits draw real noise: sound code fails here at most once in a million runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from discreet import Ledger, record, user
from discreet.core import Unit
from discreet.errors import DiscreetError, InvalidValue
from discreet.synth import Column, Forbidden, Implies, Schema, Synthesis, Tree, fit
from discreet.synth.model import Sample
from discreet.synth.table import Table

GIVEN: dict[str, Any] = {"unit": record(), "epsilon": 1.0, "delta": 1e-6}
TWO = pa.table({"x": ["a", "b"] * 50, "n": list(range(100))})
SCHEMA = {"x": ["a", "b"], "n": (0, 99)}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "ledger.db")
    made.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    return made


def refused(ledger: Ledger, told: str, table: Any = TWO, **change: Any) -> None:
    with pytest.raises(InvalidValue, match=told):
        fit(table, ledger=ledger, source="people", **(GIVEN | {"schema": SCHEMA} | change))
    assert [entry.kind for entry in ledger.history("people")] == ["open"]


def test_a_million_categories(ledger: Ledger) -> None:
    with pytest.raises(InvalidValue, match=r"1,000,000 categories, and at most 4096 fit"):
        Column("categorical", values=tuple(range(1_000_000)))
    names = pa.table({"x": [f"name {i}" for i in range(200_000)]})
    open_ = {"x": Column("categorical", find="categories")}
    rare = GIVEN | {"delta": 1e-12}  # any of them is found once in ten million runs: 200,000 x delta / 2
    model = fit(names, ledger=ledger, source="people", **rare, schema=open_).value
    assert model.cells[0].values == ("OTHER",)  # nobody's own category is found


@pytest.mark.parametrize("method", ["independent", "tree", "junction", "aim"])
def test_all_missing_one_row_and_one_column_are_tables_like_others(method: str) -> None:
    """An error would tell that they are special."""
    nothing = pa.table({"x": pa.nulls(300, pa.string()), "n": pa.nulls(300, pa.int64())})
    model = fit(nothing, **GIVEN, schema=SCHEMA, method=method).value
    assert model.sample(200).to_arrow()["x"].null_count > 100
    for table, schema in ((TWO.slice(0, 1), SCHEMA), (TWO.select(["n"]), {"n": (0, 99)})):
        assert fit(table, **GIVEN, schema=schema, method=method).value.sample(9).to_arrow().num_rows == 9


def test_values_outside_the_range_are_clamped_and_that_is_said_before_spending() -> None:
    from discreet.synth import explain

    table = pa.table({"n": [-(10**6)] * 400 + [10**6] * 400})
    schema = {"n": Column("integer", bounds=(0, 99), required=True)}
    assert "outside their bounds are moved to the nearer end" in str(explain(table, **GIVEN, schema=schema))
    rows = fit(table, **(GIVEN | {"epsilon": 8.0}), schema=schema).value.sample(500).to_arrow()["n"].to_pylist()
    assert all(0 <= value <= 99 for value in rows)


def test_contradictory_constraints(ledger: Ledger) -> None:
    rules = [Forbidden({"x": ["a", None]}), Implies({"x": "b"}, {"n": (0, 3)}), Forbidden({"n": (0, 3)})]
    refused(ledger, "contradict one another: no row is left", constraints=rules)


def test_epsilon_too_small(ledger: Ledger) -> None:
    refused(ledger, r"epsilon 2e-06 is too small: each count would get noise of .* From about", epsilon=2e-6)


def test_a_junction_tree_that_would_not_fit(ledger: Ledger) -> None:
    wide = {f"c{i}": Column("integer", bounds=(0, 4095), bins=4096) for i in range(3)}
    table = pa.table({name: [1, 2, 3] for name in wide})
    refused(ledger, r"4,097 x 4,097 cells.*Use fewer bins", table, schema=wide)
    middle = {f"c{i}": Column("integer", bounds=(0, 255), bins=200) for i in range(3)}
    table = pa.table({name: [1, 2, 3] for name in middle})
    rules = [Forbidden({first: None, second: None}) for first, second in (("c0", "c1"), ("c1", "c2"), ("c0", "c2"))]
    refused(ledger, r"tie columns of .* cells together", table, schema=middle, constraints=rules)
    wider = middle | {"c0": Column("integer", bounds=(0, 4095), bins=2000)}
    refused(ledger, "No table of the workload fits", table, schema=wider, workload=[["c0", "c1"]])


def test_a_disk_that_is_full_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit(TWO, **GIVEN, schema=SCHEMA).value
    (tmp_path / "out.parquet").write_text("older")
    real = Sample.batches

    def full(self: Sample) -> Any:
        yield from list(real(self))[:1]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Sample, "batches", full)
    with pytest.raises(InvalidValue, match="cannot be written: No space left on device"):
        model.sample(200_000).to_parquet(tmp_path / "out.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]
    assert (tmp_path / "out.parquet").read_text() == "older"  # what was there is untouched


def test_ctrl_c_while_sampling_leaves_nothing_behind(tmp_path: Path) -> None:
    """A real interrupt, in a process of its own, once the first rows are written."""
    script = textwrap.dedent("""
        import sys, pyarrow as pa
        from discreet import record
        from discreet.synth import fit
        table = pa.table({"n": list(range(100))})
        model = fit(table, unit=record(), epsilon=1.0, delta=1e-6, schema={"n": (0, 99)}).value
        model.sample(10**9).to_parquet(sys.argv[1], lambda rows: print(rows, flush=True))
    """)
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "out.parquet")], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stdout.readline().strip() == "65536"
        os.kill(running.pid, signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode != 0
    assert "KeyboardInterrupt" in errors
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_fit_keeps_its_charge_and_gives_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting had begun: what was read is paid for."""

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Table, "counts", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(TWO, ledger=ledger, source="people", **GIVEN, schema=SCHEMA)
    assert ledger.spent("people") == pytest.approx(1.0, rel=1e-3)


def test_a_table_that_changes_between_pricing_and_measuring(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "people.parquet"
    parquet.write_table(TWO, place)
    real = Synthesis.claims

    def meanwhile(self: Synthesis) -> Any:
        parquet.write_table(TWO.slice(0, 40), place)
        return real(self)

    monkeypatch.setattr(Synthesis, "claims", meanwhile)
    with pytest.raises(DiscreetError, match="has changed since it was opened"):
        fit(place, ledger=ledger, source="people", **GIVEN, schema=SCHEMA)


def test_before_pricing_a_change_costs_nothing(tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "people.parquet"
    parquet.write_table(TWO, place)
    real = Synthesis.spending

    def meanwhile(self: Synthesis) -> Any:
        parquet.write_table(TWO.slice(0, 40), place)
        return real(self)

    monkeypatch.setattr(Synthesis, "spending", meanwhile)
    with pytest.raises(DiscreetError, match="has changed since it was opened"):
        fit(place, ledger=ledger, source="people", **GIVEN, schema=SCHEMA)
    assert [entry.kind for entry in ledger.history("people")] == ["open"]


@pytest.mark.parametrize(
    ("unit", "told"),
    [(user("x", rows=None), "no bound"), (Unit("family", "add_remove", rows=3, key=None), "needs a key")],
)
def test_units_that_cannot_be_bounded(unit: Unit, told: str, ledger: Ledger) -> None:
    refused(ledger, told, unit=unit)


def test_free_text_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidValue, match=r"free text cannot be synthesised.*Leave it out"):
        Schema.of({"notes": {"type": "text"}})
    assert Synthesis((2, 2), record(), 1.0, 1e-6, Tree()).claims()
