"""What a rule found: one line of a gate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

OUTCOMES = ("holds", "inconclusive", "failed", "refuted")  # from best to worst


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule says of one part of a release.

    `rule` is the rule's name, `where` the part (`attack.lira`, `claim`, …), `line` that of the policy. `needed` is how many
    targets would decide what is inconclusive, where that can be told. `value`, `low`, `high` and `limit` are what was compared.
    """

    rule: str
    where: str
    outcome: str
    message: str
    line: int
    needed: int | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The finding as data; a number that is infinite is null."""
        document = {name: getattr(self, name) for name in self.__slots__}
        return {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in document.items()}

    def __str__(self) -> str:
        return f"{self.outcome}: {one_line(self.rule)}, {one_line(self.where)}: {one_line(self.message)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A release, the file it came from, and what was found in it."""

    file: str
    source: str
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "source": self.source, "findings": [each.to_json() for each in self.findings]}


def worst(findings: Iterable[Finding], *, strict: bool = True) -> str:
    """The outcome of all of them together. What is inconclusive has failed; without `strict` it is said, and passes.

    >>> worst([])
    'holds'
    """
    place = max((OUTCOMES.index(each.outcome) for each in findings), default=0)
    return "failed" if strict and OUTCOMES[place] == "inconclusive" else OUTCOMES[place]


def one_line(text: str) -> str:
    """Text from a document as a line of a log may show it: no control characters, and nothing a CI server takes for a command.

    >>> one_line("a" + chr(10) + "::error::b")
    'a ::error::b'
    """
    return "".join(letter if letter.isprintable() else " " for letter in text).replace("##[", "# #[").strip()
