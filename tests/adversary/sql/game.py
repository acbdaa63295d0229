"""The game: both sides of a world are opened and asked the same, and whatever differs must have been paid for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from adversary.sql.questions import first, question
from adversary.sql.worlds import Place, World
from conform.engines import distance, exact
from discreet import connect
from discreet.core import Repeat, Sequence
from discreet.errors import DiscreetError
from discreet.query import Database


@contextmanager
def sides(world: World, folder: Path, url: str = "") -> Iterator[list[Database | str]]:
    """The world with the unit and without it: a database each, or why it was refused."""
    with ExitStack() as stack:
        made: list[Database | str] = []
        for side, present in (("there", True), ("gone", False)):
            schema = f"{side}_{abs(hash((world.name, folder))) % 10**12}"  # of PostgreSQL: no two turns share one
            place = Place(folder / side, f"{url}&options=-csearch_path%3D{schema}" if url else "")
            shutil.rmtree(place.folder, ignore_errors=True)
            place.folder.mkdir(parents=True)
            try:
                made.append(
                    stack.enter_context(closing(connect(world.make(place, present), unit=world.unit, schema=world.schema)))
                )
                world.after(place, present)
            except DiscreetError as error:
                made.append(told(error))
        yield made


def added(event: Any) -> float:
    """All epsilons of an event together."""
    if isinstance(event, Sequence):
        return sum(map(added, event.events))
    return float(event.times * added(event.event) if isinstance(event, Repeat) else event.epsilon)


def told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def compare(world: World, made: list[Database | str], random: Random, rounds: int) -> list[str]:
    """What tells the sides apart beyond the charge; nothing is right."""
    if any(isinstance(side, str) for side in made):
        return _refusals(world, made)
    there, gone = (side for side in made if isinstance(side, Database))
    found = [] if there.tables() == gone.tables() else ["the tables or their types differ"]
    for turn in range(rounds):
        text, groups, given = question(world, random) if turn else (first(world), None, None)
        answers = [answer(side, text, groups, given) for side in (there, gone)]
        if answers[0][0] != answers[1][0] or str(answers[0][0]).startswith("claims"):
            found.append(f"{text}: {answers[0][0]} and {answers[1][0]}")
        if answers[0][1] is not None and answers[1][1] is not None:
            for (measure, one), (_, two) in zip(answers[0][1], answers[1][1], strict=True):
                if distance(one, two) > measure.sensitivity:
                    found.append(f"{text}: moved by {distance(one, two)} of {measure.sensitivity}")
        if found:
            break
    return found


def _refusals(world: World, made: list[Database | str]) -> list[str]:
    if made[0] != made[1]:
        return [f"one side was refused: {[side if isinstance(side, str) else 'open' for side in made]}"]
    return [] if world.refused and world.refused in str(made[0]) else [f"refused: {made[0]}"]


def answer(db: Database, text: str, groups: int | None, given: Any = None) -> tuple[Any, Any]:
    """What an analyst sees of an answer but its numbers, and the exact numbers before noise."""
    try:
        release = db.sql(text, epsilon=1.0, delta=1e-6, groups=groups, keys=given)
        if added(release.claims[0].event) > 1.0:
            return f"claims {added(release.claims[0].event)}", None
        public = all(one.keys is not None for one in db._price(text, 1.0, 1e-6, groups, given, None).sets)
        shown = public and "HAVING" not in text
        seen = ("answer", release.value.schema, release.value.num_rows if shown else None)
        return seen, exact(db, text, groups, given=given)
    except DiscreetError as error:
        return told(error), None
