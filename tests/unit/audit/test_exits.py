"""Whatever a stranger's code raises, an audit ends with a verdict or an error, and never with the exit status of a success."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from discreet.audit import Pair, Readout, audit, check_attack, check_mechanism
from discreet.audit.flatten import flatten
from discreet.core import Claim, Game, Pure, record
from discreet.errors import ClaimRefuted, RunFailed
from discreet.noise import LaplaceNoise

CLAIM = Claim(game=Game(record(), {"answers"}), event=Pure(0.1))
NOISE = LaplaceNoise(scale=1, sensitivity=1, unit=record())
EXITS = [SystemExit(0), SystemExit(), GeneratorExit(), asyncio.CancelledError(), BaseException("x"), pytest.skip.Exception("x")]


class Ends:
    """Raises where the unit is, or always; or in one of its other methods."""

    def __init__(self, error: BaseException, where: str = "the unit") -> None:
        self.error, self.where = error, where

    def claims(self) -> tuple[Claim, ...]:
        if self.where == "claims":
            raise self.error
        return (CLAIM,)

    def neighbours(self) -> Any:
        if self.where == "neighbours":
            raise self.error
        return [(1, 0)]

    def run(self, data: int) -> int:
        if self.where == "always" or (self.where == "the unit" and data):
            raise self.error
        return 0


@pytest.mark.parametrize("error", EXITS, ids=repr)
def test_what_ends_a_program_is_an_output(error: BaseException) -> None:
    with pytest.raises(ClaimRefuted):
        check_mechanism(Ends(error), runs=400, seed=1)


@pytest.mark.parametrize("where", ["claims", "neighbours", "always"])
@pytest.mark.parametrize("error", EXITS, ids=repr)
def test_what_ends_a_program_elsewhere_is_an_error(error: BaseException, where: str) -> None:
    with pytest.raises(RunFailed, match=f"raised {type(error).__name__}"):
        check_mechanism(Ends(error, where), runs=16)


class Attack:
    name, view = "ends", frozenset({"answers"})

    def score(self, seen: Any, targets: Any) -> Any:
        raise SystemExit(0)


class Worlds:
    def draw(self, run: int) -> tuple[Any, Any, Any]:
        if run:
            raise SystemExit(0)
        return 1, [None], np.array([True])


def test_a_game_is_never_ended_from_within() -> None:
    pair: Pair[int] = Pair(1, 0)
    plays: list[Callable[[], object]] = [
        lambda: audit(Ends(SystemExit(0), "always"), Readout(), pair, runs=8), lambda: audit(NOISE, Attack(), pair, runs=8),
        lambda: audit(NOISE, Readout(), Worlds(), runs=8), lambda: check_attack(Attack(), NOISE, pair, runs=8),
        lambda: audit(Ends(SystemExit(0), "claims"), Readout(), pair, runs=8),
        lambda: check_attack(Readout(), Ends(SystemExit(0), "always"), pair, runs=8),
        lambda: check_attack(Readout(), NOISE, Worlds(), runs=8),
    ]  # fmt: skip
    for play in plays:
        with pytest.raises(RunFailed, match="raised SystemExit"):
            play()


def test_an_output_cannot_end_the_look_at_it() -> None:
    class Refuses(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            raise SystemExit(0)

        def __reduce_ex__(self, protocol: Any) -> Any:
            raise SystemExit(0)

    assert "SystemExit" in " ".join(flatten(Refuses([1])).unseen.values())


@pytest.mark.parametrize("where", ["the unit", "always", "claims"])
def test_whoever_is_at_the_keyboard_may_end_it(where: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        check_mechanism(Ends(KeyboardInterrupt(), where), runs=64)
