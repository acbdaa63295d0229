"""A table as the catalogue of its engine describes it: columns, types, and whether it is stored. No row is read for it.

How two unit keys are compared is decided here, by the types of their columns: by one exact rule of our own, and never by what
an engine does with values of two types.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field

NO_RULE = ""  # of a type whose values have no exact comparison, such as a text whose collation takes two spellings for one
WHOLE = "whole"  # integers of 64 bits: compared as such
WIDE = "wide"  # whole numbers of any length: compared as decimal digits
DOUBLE = "double"  # floats: compared as doubles, with one zero; NaN and infinity are nobody's
TEXT = "text"  # by bytes


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Where values lie in memory: from `start` up to, and without, `stop`."""

    start: int
    stop: int


def shares_data(one: frozenset[Hashable], other: frozenset[Hashable]) -> bool:
    """Whether two tables have a mark in common, or values that lie in memory where values of the other do: then rows of one may
    be rows of the other, also where one has fewer columns or begins later."""
    spans = sorted((span, table) for table, marks in enumerate((one, other)) for span in marks if isinstance(span, Span))
    ends = [0, 0]  # how far the spans of each table reach so far
    for span, table in spans:
        if span.start < ends[1 - table]:
            return True
        ends[table] = max(ends[table], span.stop)
    return bool(one & other)


@dataclass(frozen=True, slots=True)
class Stored:
    """One table. `derived` says why its rows need not be rows of one unit each, such as "a view"; empty for a base table.

    `compared` names by column the rule by which unit keys of that type are compared. Tables that share a `same` mark
    (`shares_data`) show the same stored rows. `place` is where it is, outermost first: its database and schema, as far as
    there are such.
    """

    kinds: Mapping[str, str]
    compared: Mapping[str, str] = field(default_factory=dict)
    derived: str = ""
    same: frozenset[Hashable] = frozenset()
    place: tuple[str, ...] = ()


def common_rule(rules: Collection[str]) -> str:
    """The rule by which keys with these rules are compared with one another, or NO_RULE where there is none."""
    different = set(rules)
    if len(different) == 1:
        return next(iter(different))
    return WIDE if different and different <= {WHOLE, WIDE} else NO_RULE


def rule_of_kind(kind: str) -> str:
    """The rule for a column that is read as a declared kind."""
    return {"integer": WHOLE, "number": DOUBLE, "text": TEXT}.get(kind, kind)
