"""A generator audited in one fit: made-up rows, each in the table by its own fair coin, and how well the synthetic table
betrays the coins (Steinke, Nasr and Jagielski 2023).

Every canary is drawn column by column, each evenly from the values that the column has: such rows stand alone. Fits for an
audit read the real table and are not paid for, so what they show stays with its owner.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from discreet.attack.tables.attacks import DensityRatio, Generator
from discreet.attack.tables.encode import joined
from discreet.audit import Canaries, audit
from discreet.columns import Column, columns, missing
from discreet.core import Attack, Claim, Evidence, Game, NonPrivate, Unit, check, record
from discreet.errors import InvalidValue

APART = (67, 97)  # with a seed, canaries and their coins come from different random numbers


class _Generates:
    """A generator as a mechanism that claims nothing."""

    def __init__(self, generator: Generator, unit: Unit) -> None:
        self.generator, self.unit = generator, unit

    def claims(self) -> tuple[Claim, ...]:
        return (Claim(game=Game(self.unit, {"table"}), event=NonPrivate()),)

    def run(self, data: Any) -> Any:
        return self.generator(data)


def made_canaries(table: Any, count: int, *, seed: int | None = None) -> dict[str, Column]:
    """`count` rows that stand alone: each column evenly from its own values, by itself.

    >>> made_canaries({"sex": ["f", "m"], "age": [30, 40]}, 3, seed=0)["sex"].tolist()
    ['m', 'f', 'f']
    """
    count = check.whole("canaries", count, least=10 if seed is None else 1)
    random = np.random.default_rng(None if seed is None else [seed, *APART])
    made = {}
    for name, values in columns(table).items():
        known = [value for value in dict.fromkeys(values.tolist()) if not missing(value)] or [None]
        drawn = [known[place] for place in random.integers(0, len(known), count)]
        array = np.empty(count, object)
        array[:] = drawn
        made[name] = array.astype(values.dtype) if values.dtype != object else array
    return made


def audit_generator(
    generator: Generator, table: Any, *, canaries: int, unit: Unit | None = None, seed: int | None = None,
    attack: Callable[[Any, Any], Attack[Any]] | None = None, runs: int = 1,
) -> Evidence:  # fmt: skip
    """Fit the generator once to the table with canaries, each inside by a fair coin; the evidence has the design "canary".

    Where the unit has a key, a canary is a made-up person with as many equal rows as count, and a key that nobody has.

    `attack(canaries, table)` makes the attack; by default it is a density ratio, by a kernel and by pairs of columns, against
    the table itself, which the adversary of the game knows. `unit` is what the claims are about.

    >>> rows = {"x": list(range(30)) * 4, "y": [0, 1, 2, 3] * 30}
    >>> audit_generator(lambda table: table, rows, canaries=20, seed=1).design
    'canary'
    """
    whose = unit or record()
    whole = columns(table)
    known = {name: values for name, values in whole.items() if name != whose.key}
    unknown = made_canaries(known, canaries, seed=seed)
    added = dict(unknown)
    if whose.key is not None:
        if whose.key not in whole or whose.rows is None:
            raise InvalidValue(
                f"The unit is {whose}: the table needs the column {whose.key!r}, and the unit a bound on its rows."
            )
        added[whose.key] = _new_keys(whole[whose.key], canaries)

    def insert(base: Any, inside: list[Any]) -> Any:
        rows = np.repeat(np.array(inside, np.int64), whose.rows or 1)
        return joined(base, {name: values[rows] for name, values in added.items()}) if inside else base

    worlds: Canaries[Any] = Canaries(whole, range(canaries), insert, seed=seed)
    chosen = attack(unknown, known) if attack else DensityRatio(unknown, known, by="both", name="canaries in one fit")
    return audit(_Generates(generator, whose), chosen, worlds, runs=runs)


def _new_keys(values: Column, count: int) -> Column:
    """Keys of the same kind that are in no row."""
    if values.dtype.kind in "iuf":
        known = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        made: Column = (known.max(initial=0) + 1 + np.arange(count)).astype(values.dtype)
        return made
    taken = {str(value) for value in values.tolist()}
    free = (name for i in itertools.count() if (name := f"canary {i}") not in taken)
    return np.array(list(itertools.islice(free, count)), object)
