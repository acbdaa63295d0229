"""No row of one unit decides about acceptance, errors, shapes, types or messages, nor moves a sum further than was charged.

`make adversary` plays more rounds. Nothing here is left to chance but the noise of answers, which is not looked at.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import postgres
import spark
from adversary.sql.game import compare, sides
from adversary.sql.worlds import WORLDS, World

ROUNDS = int(os.environ.get("ADVERSARY_ROUNDS", "1"))
QUESTIONS = {"duckdb": 12, "postgres": 8, "spark": 2}  # in one round; Spark takes its time


@pytest.fixture(autouse=True)
def one_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which groups count is drawn from a salt that does not depend on the data, so both sides may share it."""
    monkeypatch.setattr(secrets, "randbits", lambda bits: 0x1234_5678_9ABC_DEF % (1 << bits))


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with postgres.database(request.getfixturevalue("postgres_server")) as made:
        yield made


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: f"{world.engine} {world.name}")
def test_neighbours_are_told_apart_by_what_was_paid_alone(world: World, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if world.engine == "spark" and spark.missing():
        pytest.skip(spark.missing() or "")
    place = request.getfixturevalue("url") if world.engine == "postgres" else ""
    for turn in range(ROUNDS):
        with sides(world, tmp_path / str(turn), place) as made:
            assert compare(world, made, Random(turn), QUESTIONS[world.engine]) == []
        if world.refused:
            break
