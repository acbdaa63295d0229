"""A claim: the proven ceiling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from discreet.core import check
from discreet.core.event import Event, event_from_json
from discreet.core.game import Game, Unit
from discreet.errors import InvalidDocument, InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """No adversary in `game` does better than `event` allows, provided the `assumptions` hold."""

    game: Game
    event: Event
    assumptions: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if not isinstance(self.game, Game):
            raise InvalidValue(f"game must be a Game, such as Game(record(), {{'answers'}}); got {type(self.game).__name__}.")
        if not isinstance(self.event, Event):
            raise InvalidValue(f"event must be an event, such as Gaussian(1.0); got {type(self.event).__name__}.")
        if isinstance(self.assumptions, str):
            raise InvalidValue("assumptions must be a list of sentences; got one string. Write assumptions=('...',).")
        object.__setattr__(self, "assumptions", tuple(check.word("assumption", item) for item in self.assumptions))

    def to_json(self) -> dict[str, Any]:
        return {
            "game": game_to_json(self.game),
            "event": self.event.to_json(),
            "assumptions": list(self.assumptions),
        }

    @classmethod
    def from_json(cls, document: Any) -> Claim:
        parts = members("claim", document, required=("game", "event"), optional=("assumptions",))
        assumptions = parts.get("assumptions", [])
        if not isinstance(assumptions, list):
            raise InvalidDocument(f"assumptions of a claim must be a list; got {type(assumptions).__name__}.")
        game, event = game_from_json(parts["game"]), event_from_json(parts["event"])
        try:
            return cls(game=game, event=event, assumptions=tuple(assumptions))
        except InvalidValue as error:
            raise InvalidDocument(f"The claim is not valid: {error}") from None


def game_to_json(game: Game) -> dict[str, Any]:
    unit = game.unit
    return {
        "unit": {"name": unit.name, "relation": unit.relation, "rows": unit.rows, "key": unit.key},
        "view": sorted(game.view),
    }


def game_from_json(document: Any) -> Game:
    parts = members("game", document, required=("unit", "view"))
    unit = members("unit", parts["unit"], required=("name", "relation", "rows"), optional=("key",))
    if not isinstance(parts["view"], list) or not all(isinstance(item, str) for item in parts["view"]):
        raise InvalidDocument("view of a game must be a list of strings.")
    try:
        return Game(Unit(unit["name"], unit["relation"], unit["rows"], unit.get("key")), parts["view"])
    except InvalidValue as error:
        raise InvalidDocument(f"The game is not valid: {error}") from None


def members(what: str, document: Any, *, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """The members of a JSON object, after checking that it has all it must and nothing unknown."""
    if not isinstance(document, dict):
        raise InvalidDocument(f"A {what} must be a JSON object; got {type(document).__name__}.")
    lacking = [name for name in required if name not in document]
    if lacking:
        raise InvalidDocument(f"The {what} lacks {', '.join(lacking)}.")
    extra = sorted(set(map(str, document)) - set(required) - set(optional))
    if extra:
        raise InvalidDocument(f"The {what} has unknown members: {', '.join(extra[:5])}.")
    return document
