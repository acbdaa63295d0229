"""The two-worlds game: which contribution may differ, and what the adversary sees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from discreet.core import check
from discreet.errors import InvalidValue

RELATIONS = ("add_remove", "replace", "zero_out")

# What an adversary may see. An arrow means "computable from": who sees the left also sees the right.
VIEWS = (
    "labels", "scores", "logits", "weights", "transcript", "updates", "aggregate", "table", "answers", "ciphertexts",
)  # fmt: skip
_IMPLIES = {
    "transcript": ("weights", "aggregate"),
    "updates": ("aggregate",),
    "weights": ("logits",),
    "logits": ("scores",),
    "scores": ("labels",),
}


@dataclass(frozen=True, slots=True)
class Unit:
    """One protected contribution: what may differ between the two worlds.

    `rows` is the most rows one unit may own; None says there is no bound, so no sum over rows is bounded either.

    >>> Unit("user", relation="add_remove", rows=4, key="patient_id").name
    'user'
    """

    name: str
    relation: str
    rows: int | None
    key: str | None = None

    def __post_init__(self) -> None:
        check.word("unit name", self.name)
        check.word("relation", self.relation, RELATIONS)
        if self.rows is not None:
            object.__setattr__(self, "rows", check.whole("rows", self.rows))
        if self.key is not None:
            check.word("key", self.key)

    def __str__(self) -> str:
        change = {"add_remove": "added or removed", "replace": "replaced", "zero_out": "blanked out"}[self.relation]
        rows = "any number of rows" if self.rows is None else "1 row" if self.rows == 1 else f"at most {self.rows} rows"
        owner = f", known by {self.key}" if self.key else ""
        return f"one {self.name} ({rows}{owner}), {change}"


def record(relation: str = "add_remove") -> Unit:
    """The unit is one row.

    >>> str(record())
    'one record (1 row), added or removed'
    """
    return Unit("record", relation, rows=1)


def user(key: str, *, rows: int | None, relation: str = "add_remove") -> Unit:
    """The unit is one person: all rows that share a value in column `key`, at most `rows` of them.

    >>> str(user("patient_id", rows=4))
    'one user (at most 4 rows, known by patient_id), added or removed'
    """
    return Unit("user", relation, rows=rows, key=key)


@dataclass(frozen=True, slots=True)
class Game:
    """Two worlds that differ in one unit, and what the adversary sees of the world they are in.

    >>> g = Game(record(), {"transcript"})
    >>> Game(record(), {"weights"}).within(g)    # whoever saw every step also knows the final weights
    True
    """

    unit: Unit
    view: frozenset[str]

    def __init__(self, unit: Unit, view: Iterable[str]) -> None:
        if not isinstance(unit, Unit):
            raise InvalidValue(f"unit must be a Unit, such as discreet.record(); got {type(unit).__name__}.")
        views = (view,) if isinstance(view, str) else check.items("view", view, "a set of names, such as {'answers'}")
        names = [check.word("view", name, VIEWS) for name in views]
        if not names:
            raise InvalidValue(f"view must name at least one of {', '.join(VIEWS)}; got none.")
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "view", frozenset(names))

    def sees(self) -> frozenset[str]:
        """Everything computable from the view."""
        views: set[str] = set()
        todo = list(self.view)
        while todo:
            name = todo.pop()
            if name not in views:
                views.add(name)
                todo.extend(_IMPLIES.get(name, ()))
        return frozenset(views)

    def within(self, other: Game) -> bool:
        """A win in this game is a win in `other`: the same unit, and nothing seen here that is hidden there.

        A replacement game is never compared with an add/remove game: their epsilons differ by up to a factor of two.
        """
        return self.unit == other.unit and self.sees() <= other.sees()
