"""A claim: the proven ceiling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from discreet.core import check
from discreet.core.adjacency import check_relation
from discreet.core.document import members
from discreet.core.event import Event, check_event, event_from_json
from discreet.core.game import Game, Unit
from discreet.errors import InvalidDocument, InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """No adversary in `game` does better than `event` allows, provided the `assumptions` hold.

    The event must state its curve for the relation of the game's unit (docs/theory/adjacency.md).
    """

    game: Game
    event: Event
    assumptions: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if not isinstance(self.game, Game):
            raise InvalidValue(f"game must be a Game, such as Game(record(), {{'answers'}}); got {type(self.game).__name__}.")
        check_relation(check_event("event", self.event), self.game.unit.relation)
        sentences = check.items("assumptions", self.assumptions, "a list of sentences, such as ('...',)")
        object.__setattr__(self, "assumptions", tuple(check.word("assumption", item) for item in sentences))

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
    view = parts["view"]
    if not isinstance(view, list) or not all(isinstance(item, str) for item in view) or len(set(view)) != len(view):
        raise InvalidDocument(f"view of a game must be a list of different strings; got {check.shown(view)}.")
    try:
        return Game(Unit(unit["name"], unit["relation"], unit["rows"], unit.get("key")), view)
    except InvalidValue as error:
        raise InvalidDocument(f"The game is not valid: {error}") from None
