"""Every part that fits, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from discreet.attack.everything.case import ACCESS, Case, Part
from discreet.attack.everything.parts import PARTS
from discreet.core import Evidence
from discreet.errors import DiscreetError, MissingExtra


@dataclass(frozen=True)
class Everything:
    """Facts and evidence of all parts that ran, the names of these, and why others did not."""

    facts: Mapping[str, Any]
    evidence: tuple[Evidence, ...]
    tried: tuple[str, ...]
    left_out: tuple[str, ...]


def everything(case: Case, *, parts: Iterable[Part] = PARTS, say: Callable[[str], None] = lambda _: None) -> Everything:
    """Run every part that fits; `say` is told which one runs."""
    facts: dict[str, Any] = {}
    evidence: list[Evidence] = []
    tried, left_out = [], []
    for part in parts:
        lacks = part.lacks(case) if part.view <= ACCESS[case.access] else f"needs more than {case.access}."
        if lacks is None:
            say(f"Now {part.name}.")
            try:
                found = part.run(case)
            except MissingExtra as error:
                lacks = str(error)
            except DiscreetError as error:
                lacks = f"it was tried and gave up: {error}"
        if lacks is not None:
            left_out.append(f"{part.name[0].upper()}{part.name[1:]}: {lacks}")
            continue
        tried.append(part.name)
        evidence += found.evidence
        for name, value in found.facts.items():
            facts[name] = [*facts.get(name, ()), *value]
    return Everything(facts, tuple(evidence), tuple(tried), tuple(left_out))
