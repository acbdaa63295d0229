"""A small server for the tests of the web app: a hospital of made-up visits, three people, a ledger, a folder of releases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from starlette.testclient import TestClient

from discreet.cli.attack_tasks import ATTACKS
from discreet.core import Claim, Evidence, Game, Laplace, Release, record, user
from discreet.serve import AppState, Settings, make_app
from discreet.serve.settings import Source, Target
from discreet.serve.users import Session

UNIT = user("patient_id", rows=4)
SCHEMA = """
[visits.ward]
values = ["A", "B", "C"]
[visits.age]
bounds = [0, 120]
"""
SYNTH = """
[patient_id]
type = "omit"
[note]
type = "omit"
[ward]
type = "categorical"
values = ["A", "B", "C"]
["<b>odd</b>"]
type = "categorical"
values = [0, 1]
[age]
type = "integer"
bounds = [0, 120]
"""
PLANTED = "zanzibar-7731"  # a value of one row, which no page and no log may ever show
COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
PASSWORD = "correct horse battery"


def visits(folder: Path) -> Path:
    """A table in which one row holds a value that must never be seen."""
    draw = np.random.default_rng(0)
    notes = ["ordinary"] * 2000
    notes[17] = PLANTED
    made = pa.table({
        "patient_id": draw.integers(0, 500, 2000), "ward": draw.choice(["A", "B", "C"], 2000), "note": notes,
        "<b>odd</b>": draw.integers(0, 2, 2000),
        "age": draw.integers(0, 100, 2000),
    })  # fmt: skip
    parquet.write_table(made, folder / "visits.parquet")
    (folder / "schema.toml").write_text(SCHEMA)
    (folder / "synth.toml").write_text(SYNTH)
    return folder / "visits.parquet"


def settings(folder: Path, **more: Any) -> Settings:
    source = Source("hospital", str(visits(folder)), UNIT, folder / "schema.toml", synth=folder / "synth.toml")
    target = Target("readmission", "model", "model", {"weights": "w", "members": "m", "nonmembers": "n", "recipe": "r"})
    given = {"sources": {"hospital": source}, "targets": {"readmission": target}, **more}
    return Settings(str(folder / "ledger.db"), folder / "releases", folder / "users.db", **given)


def model(title: str = "Readmissions", evidence: bool = True) -> Release[Any]:
    """A release with a claim and an attack."""
    game = Game(record(), {"scores"})
    draw = np.random.default_rng(1)
    inside = np.arange(400) % 2 == 0
    found = Evidence(game=game, attack="loss", score=draw.normal(size=400) + 0.3 * inside, inside=inside,
                     run=np.zeros(400, int), design="post_hoc")  # fmt: skip
    facts = {"title": title, "exposed": [{"index": 3, "score": 0.8642}]}
    claims = (Claim(game=game, event=Laplace(1.0)),)
    return Release(value={"model": "x"}, source="hospital", claims=claims, evidence=(found,) if evidence else (), facts=facts)


@dataclass
class Served:
    """A running app and people who are in."""

    state: AppState
    client: TestClient
    sessions: dict[str, Session]

    def cookies(self, name: str) -> dict[str, str]:
        return {"discreet": self.sessions[name].key}

    def get(self, path: str, who: str | None = None, **more: Any) -> Any:
        """Look at a page as someone, without following where it leads."""
        self.client.cookies.clear()
        if who is not None:
            self.client.cookies.update(self.cookies(who))
        return self.client.get(path, follow_redirects=False, **more)

    def post(
        self, path: str, who: str | None = None, data: dict[str, Any] | None = None, *, proof: bool = True, **more: Any
    ) -> Any:
        """Send a form as someone, with the proof that the page had."""
        self.client.cookies.clear()
        fields = dict(data or {})
        if who is not None:
            self.client.cookies.update(self.cookies(who))
            fields |= {"proof": self.sessions[who].proof} if proof else {}
        return self.client.post(path, data=fields, follow_redirects=False, **more)

    def ask(self, who: str = "ann", sql: str = COUNT, epsilon: str = "0.5", **more: Any) -> Any:
        return self.post("/console/ask.json", who, {"source": "hospital", "sql": sql, "epsilon": epsilon, **more})


@contextmanager
def serving(folder: Path, *, ledger: bool = True, **more: Any) -> Iterator[Served]:
    """A server with an owner ada, an analyst ann who has half of the budget, an analyst bob who has none, an officer olga."""
    state = AppState(settings(folder, **more), ATTACKS)
    sessions = {}
    for name, role in (("ada", "owner"), ("ann", "analyst"), ("bob", "analyst"), ("olga", "officer")):
        link = state.users.invite(name, role, account="default" if role == "owner" else name)
        sessions[name] = state.users.enter(state.users.join(link, name, PASSWORD))
    if ledger:
        state.ledger.open("hospital", unit=UNIT, epsilon=4.0, delta=1e-6)
        state.ledger.share("hospital", "ann", 0.5, by="ada")
    state.store.save("model", model())
    with TestClient(make_app(state), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield Served(state, client, sessions)


def fill(path: str) -> str:
    """An address of the table of routes with something in its places."""
    known = {"name": "model", "source": "hospital", "kind": "html", "file": "app.css", "secret": "none", "number": "1"}
    return re.sub(r"{(\w+)(?::path)?}", lambda found: known[found[1]], path)
