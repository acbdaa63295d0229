"""Two linked tables: types, keys and numbers of children come back, relations are kept, and what is refused before spending."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from discreet import Ledger, record, user
from discreet.cli import app
from discreet.core import Mechanism
from discreet.errors import BudgetExceeded, InvalidValue
from discreet.noise.source import seeded_for_tests
from discreet.synth import Column, Junction, LinkedSynthesis, Tree, explain_linked, fit_linked
from discreet.synth.linked_table import LinkedTable, schemas_of

SCHEMA: dict[str, Any] = {
    "users": {"age": Column("integer", bounds=(18, 89), bins=(40, 60)), "sex": ["f", "m"]},
    "ratings": {"stars": [1, 2, 3, 4, 5], "genre": ["action", "drama"], "day": (date(2024, 1, 1), date(2024, 12, 31))},
}
ASKED: dict[str, Any] = {
    "parent": "users", "child": "ratings", "unit": user("user_id", rows=10), "epsilon": 8.0, "delta": 1e-6, "schema": SCHEMA,
}  # fmt: skip


def rated(count: int = 3000, most: int = 10) -> dict[str, pa.Table]:
    """The young rate more often than the old, and action; who rates drama gives more stars."""
    random = np.random.default_rng(3)
    age = random.integers(18, 90, count)
    number = np.where(age < 40, random.integers(4, most + 1, count), random.integers(0, 3, count))
    keys = random.permutation(count).astype(np.int32) + 500
    own = np.repeat(np.arange(count), number)
    genre = np.where(random.random(len(own)) < np.where(age[own] < 40, 0.9, 0.1), "action", "drama")
    stars = np.where(genre == "drama", 4, 2) + random.integers(0, 2, len(own))
    days = pa.array(19723 + random.integers(0, 366, len(own)), pa.int32()).cast(pa.date32())
    return {
        "users": pa.table({"age": age, "user_id": pa.array(keys), "sex": random.choice(["f", "m"], count)}),
        "ratings": pa.table({"stars": pa.array(stars, pa.int8()), "genre": genre, "day": days, "user_id": pa.array(keys[own])}),
    }  # fmt: skip


TABLES = rated()


@pytest.fixture(scope="module")
def fitted() -> Any:
    """The model, by the mechanism that fit_linked runs: the same every time."""
    unit = ASKED["unit"]
    with (
        seeded_for_tests(b"linked"),
        LinkedTable(TABLES, schemas_of(SCHEMA, "users", "ratings"), "users", "ratings", unit) as data,
    ):
        known = len(data.parents.sizes)
        return LinkedSynthesis(data.parents.sizes, data.children.sizes[known:], unit, 8.0, 1e-6, Junction()).run(data)


def test_types_order_and_new_keys(fitted: Any) -> None:
    made = fitted.sample(2000, seed=1).to_arrow()
    for name, table in TABLES.items():
        assert made[name].schema.names == table.schema.names
        assert made[name].schema.types == table.schema.types
    keys = made["users"]["user_id"].to_pylist()
    assert keys == list(range(1, 2001))
    owners, numbers = np.unique(made["ratings"]["user_id"].to_numpy(), return_counts=True)
    assert set(owners) <= set(keys)
    assert numbers.max() <= 10
    assert len(owners) < 2000, "some have no children, as in the table"


def test_children_follow_their_parent_and_one_another(fitted: Any) -> None:
    made = fitted.sample(5000, seed=2).to_arrow()
    users, ratings = (made[name].to_pandas() for name in ("users", "ratings"))
    both = ratings.merge(users, on="user_id")
    young = both["age"] < 40
    assert len(ratings) / len(users) == pytest.approx(len(TABLES["ratings"]) / len(TABLES["users"]), rel=0.1)
    assert young.mean() == pytest.approx(0.75, abs=0.08)
    assert (both["genre"][young] == "action").mean() == pytest.approx(0.9, abs=0.06)
    # The old are 29 % of the ratings, some 40 at each age, against noise of about 20: eight seeds gave .77 +- .07, not
    # the .9 of the table; without the link between parent and child it would be the .3 of all ratings.
    assert (both["genre"][~young] == "drama").mean() > 0.6
    assert both["stars"][both["genre"] == "drama"].mean() == pytest.approx(4.5, abs=0.25)
    assert both["stars"][both["genre"] == "action"].mean() == pytest.approx(2.5, abs=0.25)


def test_the_claim_is_for_a_parent_in_one_charge(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("users", unit=user("user_id", rows=10), epsilon=8.0, delta=1e-6)
    made = fit_linked(TABLES, **ASKED, ledger=ledger, source="users")
    (claim,) = made.claims
    assert claim.game.unit == user("user_id", rows=10)
    assert made.entry is not None
    assert made.facts["synthetic"]["tables"] == ("users", "ratings")
    made.save(tmp_path / "release.json")
    with pytest.raises(BudgetExceeded):
        fit_linked(TABLES, **ASKED, ledger=ledger, source="users")


def test_explain_tells_both_parts_and_costs_nothing() -> None:
    told = explain_linked(TABLES, **ASKED)
    assert sum(told.split.values()) == pytest.approx(1.0)
    assert sum(share for name, share in told.split.items() if name.startswith("ratings")) == pytest.approx(0.5)
    assert "a count of a chosen pair with children is off by" in str(told)
    assert list(told.columns)[:3] == ["age", "sex", "number of ratings"]


def test_the_mechanism_keeps_to_the_protocol() -> None:
    made = LinkedSynthesis((3, 5), (2,), user("id", rows=4), 1.0, 1e-6, Tree())
    assert isinstance(made, Mechanism)
    wider = LinkedSynthesis((3, 5), (2,), user("id", rows=8), 1.0, 1e-6, Tree())
    assert wider.spending().parts["pairs"] == pytest.approx(2 * made.spending().parts["pairs"])


def test_given_columns_of_parents_hold(fitted: Any) -> None:
    made = fitted.sample(500, {"sex": "f"}, seed=3).to_arrow()
    assert set(made["users"]["sex"].to_pylist()) == {"f"}
    assert made["ratings"].num_rows > 0


def test_parents_without_children(tmp_path: Path) -> None:
    """An empty table of children is a table."""
    empty = {"users": TABLES["users"], "ratings": TABLES["ratings"].slice(0, 0)}
    made = fit_linked(empty, **ASKED).value.sample(300).to_parquet(tmp_path)
    assert parquet.read_table(made[0]).num_rows == 300
    assert parquet.read_schema(made[1]).names == TABLES["ratings"].schema.names


def test_text_keys_of_csv_files(tmp_path: Path) -> None:
    for name, table in TABLES.items():
        csv.write_csv(table, tmp_path / f"{name}.csv")
    places = {name: tmp_path / f"{name}.csv" for name in TABLES}
    made = fit_linked(places, **ASKED).value.sample(50).to_arrow()
    assert made["users"]["user_id"].to_pylist()[:2] == ["1", "2"]
    assert made["ratings"].schema.field("user_id").type == pa.string()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"unit": record()}, "protect a parent with its children"),
    ({"unit": user("user_id", rows=None)}, "with a bound on those"),
    ({"unit": user("nobody", rows=5)}, "has no such column"),
    ({"child": "users"}, "two tables"),
    ({"child": "visits"}, "must describe the tables users and visits"),
    ({"schema": {"users": SCHEMA["users"]}}, "must describe the tables"),
    ({"schema": [1]}, "maps each to its own"),
    ({"schema": {**SCHEMA, "users": {"age": (18, 89)}}}, "says nothing of 'sex'"),
    ({"schema": {**SCHEMA, "users": {"age": {"type": "integer", "bounds": (18, 89), "find": "bins"}, "sex": ["f"]}}}, "found"),
    ({"method": "aim"}, "one table with a workload"),
    ({"epsilon": 1e-5}, "too small"),
]


@pytest.mark.parametrize(("changed", "says"), WRONG, ids=[says for _, says in WRONG])
def test_what_is_wrong_is_told_before_anything_is_spent(changed: dict[str, Any], says: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("users", unit=user("user_id", rows=10), epsilon=8.0, delta=1e-6)
    with pytest.raises(InvalidValue, match=says):
        fit_linked(TABLES, **{**ASKED, **changed}, ledger=ledger, source="users")
    assert [entry.kind for entry in ledger.history("users")] == ["open"]


def test_keys_of_two_types_are_refused() -> None:
    other = TABLES["ratings"].set_column(3, "user_id", TABLES["ratings"]["user_id"].cast(pa.string()))
    with pytest.raises(InvalidValue, match="nobody knows which rows belong together"):
        fit_linked({**TABLES, "ratings": other}, **ASKED)


def test_both_files_appear_or_none(fitted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Any, place: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InvalidValue, match="No space left"):
        fitted.sample(100).to_parquet(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_command_makes_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with duckdb.connect("shop.duckdb") as link:
        for name, table in rated(600).items():
            parquet.write_table(table, f"{name}.parquet")
            link.execute(f"CREATE TABLE {name} AS SELECT * FROM '{name}.parquet'")
        link.execute("CREATE TABLE third AS SELECT 1 AS one")
    Path("schema.toml").write_text(
        '[users]\nage = {type = "integer", bounds = [18, 89]}\nsex = {type = "categorical", values = ["f", "m"]}\n'
        '[ratings.stars]\ntype = "ordinal"\nvalues = [1, 2, 3, 4, 5]\n[ratings.genre]\ntype = "categorical"\n'
        'values = ["action", "drama"]\n[ratings.day]\ntype = "date"\nbounds = [2024-01-01, 2024-12-31]\n'
    )
    asked = ["--schema", "schema.toml", "--epsilon", "4", "--delta", "1e-6", "--unit", "user:user_id", "--unit-rows", "10"]
    run = CliRunner().invoke
    for where in (["users.parquet", "--child", "ratings.parquet"], ["shop.duckdb", "--table", "users", "--child", "ratings"]):
        done = run(app, ["synth", *where, *asked, "-o", "out", "--rows", "40", "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["rows"] == 40
        assert parquet.read_table("out/users.parquet").num_rows == 40
        assert parquet.read_schema("out/ratings.parquet").names == ["stars", "genre", "day", "user_id"]
        assert run(app, ["show", "out/release.json"]).exit_code == 0
    assert "costs" in run(app, ["synth", "shop.duckdb", "--table", "users", "--child", "ratings", *asked, "--explain"]).output
    lost = run(app, ["synth", "shop.duckdb", "--child", "ratings", *asked, "-o", "out"])
    assert lost.exit_code != 0
    assert "name the parents too" in lost.output


def test_no_row_is_read_before_it_is_paid_for() -> None:
    with LinkedTable(TABLES, schemas_of(SCHEMA, "users", "ratings"), "users", "ratings", user("user_id", rows=10)) as data:
        assert data.children.sizes[: len(data.parents.sizes)] == data.parents.sizes
        assert data.parents.cells[-1].labels()[:2] == ["0", "1"]
