"""Parts that a policy may require of a release: `claim.unit == user`, `evidence.membership`, `evidence.design != post_hoc`, …

A part is there when one claim, or one piece of evidence, has it: more evidence never breaks a requirement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from discreet.core import Claim, Evidence, Release
from discreet.core.evidence import DESIGNS
from discreet.core.game import RELATIONS, VIEWS
from discreet.errors import DiscreetError, InvalidValue
from discreet.report.controls import BLIND, blind

SECTIONS = ("claim", "evidence", "controls", "entry", "ledger", "signature", "facts")
_SHAPE = re.compile(r"\s*(?P<part>[^=!]+?)\s*(?:(?P<sign>==|!=)\s*(?P<value>.+?)\s*)?", re.DOTALL)
# What a claim or evidence can be asked for, and the values there are (none: any word)
_ASKED: dict[str, dict[str, tuple[str, ...]]] = {
    "claim": {"unit": (), "relation": RELATIONS, "view": VIEWS, "rows": ()},
    "evidence": {"unit": (), "relation": RELATIONS, "view": VIEWS, "design": DESIGNS},
}
# Attacks that do not ask who was inside; all others are membership inference, whatever they are called
KINDS = {
    "linkage": ("join *", "scoreboard *"),
    "reconstruction": ("reconstruction*", "gradient inversion*", "model inversion*"),
    "attribute": ("attribute inference*", "inference of *", "reading the class*"),
    "property": ("property inference*",),
    "extraction": ("text extraction*",),
    "membership": (),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One part: a section of the release, what is asked of it, and what that should or should not be."""

    section: str
    asked: str | None = None
    sign: str | None = None
    value: str | None = None

    @classmethod
    def parse(cls, text: str) -> Part:
        """
        >>> Part.parse("evidence.design != post_hoc").sign
        '!='
        """
        match = _SHAPE.fullmatch(text)
        if not match:
            raise InvalidValue(f"{text!r} is not a part; write claim.unit, evidence.membership or evidence.design != post_hoc.")
        section, _, asked = match["part"].partition(".")
        if section not in SECTIONS:
            raise InvalidValue(f"{section!r} is no part of a release{hint(section, SECTIONS)}; it has {', '.join(SECTIONS)}.")
        part = cls(section, asked or None, match["sign"], match["value"])
        part._check()
        return part

    def _check(self) -> None:
        values = _ASKED.get(self.section, {}).get(self.asked or "")
        if self.sign is not None and (values is None or self.asked == "rows"):
            able = [f"{section}.{name}" for section, names in _ASKED.items() for name in names if name != "rows"]
            raise InvalidValue(f"{self.name} cannot be compared with a value; what can is {', '.join(able)}.")
        if values and self.value is not None and self.value not in values:
            raise InvalidValue(f"{self.name} is one of {', '.join(values)}{hint(self.value, values)}; got {self.value!r}.")
        known: dict[str, tuple[str, ...]] = {
            "claim": tuple(_ASKED["claim"]), "controls": ("positive", "negative"), "entry": (), "ledger": ("head",),
            "signature": (),
        }  # fmt: skip
        if self.section in known and self.asked is not None and self.asked not in known[self.section]:
            have = f"; it has {', '.join(known[self.section])}" if known[self.section] else ""
            raise InvalidValue(f"{self.section} has no {self.asked!r}{hint(self.asked, known[self.section])}{have}.")
        if self.section == "facts" and self.asked is None:
            raise InvalidValue("facts must name one, such as facts.made.")

    @property
    def name(self) -> str:
        return self.section if self.asked is None else f"{self.section}.{self.asked}"

    def __str__(self) -> str:
        return self.name if self.sign is None else f"{self.name} {self.sign} {self.value}"

    def find(self, release: Release[Any]) -> tuple[bool, str]:
        """Whether the release has it, and a sentence that says so."""
        match self.section:
            case "claim":
                return self._of_claims(release)
            case "evidence":
                return self._of_evidence(release)
            case "controls":
                return self._of_controls(release)
            case "entry":
                return release.entry is not None, "paid from a ledger." if release.entry else "no ledger entry paid for it."
        assert self.asked is not None
        there = bool(release.facts.get(self.asked))
        return there, f"the facts {'tell' if there else 'do not tell'} {self.asked}."

    def _of_claims(self, release: Release[Any]) -> tuple[bool, str]:
        asked = release.claims if self.asked == "view" else release.claims_on_value
        ceilings = [claim for claim in asked if _bounds(claim)]
        if not ceilings and asked != release.claims:
            return False, "no claim with a ceiling is about what is released; the machine that computed saw ciphertexts."
        if not ceilings:
            return False, "no claim of the release has a ceiling: nothing is proven."
        if self.asked == "rows":
            there = any(claim.game.unit.rows is not None for claim in ceilings)
            return there, "the rows of one unit are bounded." if there else "no claim bounds the rows of one unit."
        return self._told("claim", [_values(claim, self.asked) for claim in ceilings])

    def _of_evidence(self, release: Release[Any]) -> tuple[bool, str]:
        if not release.evidence:
            return False, "the release has no evidence: nothing was tried."
        if self.asked is None or self.asked in _ASKED["evidence"]:
            return self._told("piece of evidence", [_values(each, self.asked) for each in release.evidence])
        names = sorted({each.attack for each in release.evidence})
        silent = blind(release)
        matching = sorted((name for name in names if _is(name, self.asked)), key=lambda name: name in silent)
        if matching and set(matching) <= silent:
            few = "" if len(matching) == 1 else f" (and {len(matching) - 1} more)"
            return False, f"there is evidence of {matching[0]}{few}, and it {BLIND}."
        if matching:
            useless = len(silent.intersection(matching))
            note = f"; {useless} of these {len(matching)} found nothing even in their control" if useless else ""
            return True, f"there is evidence of {_listed(matching, 5)}{note}."
        near = hint(self.asked, (*names, *KINDS))
        return False, f"there is no evidence of {self.asked}{near}; there is {_listed(names, 10)}."

    def _told(self, what: str, values: list[frozenset[str]]) -> tuple[bool, str]:
        """Whether one of them has the value asked for, or one has another than the value that is not enough."""
        known = ", ".join(sorted({word for words in values for word in words})[:10])
        if self.sign is None:
            several = what.replace("piece", "pieces") if " " in what else f"{what}s"
            ending = f"; {self.asked}: {known}" if known else ""
            count = f"is 1 {what}" if len(values) == 1 else f"are {len(values)} {several}"
            return True, f"there {count}{ending}."
        there = any((self.value in words) == (self.sign == "==") for words in values)
        return there, f"{'a' if there else 'no'} {what} has {self.asked} {self.sign} {self.value}; found {known}."

    def _of_controls(self, release: Release[Any]) -> tuple[bool, str]:
        controls = [each for each in release.facts.get("controls") or () if hasattr(each, "get")]
        kinds = (self.asked,) if self.asked else ("positive", "negative")
        for kind in kinds:
            chosen = [each for each in controls if each.get("kind") == kind]
            if not chosen:
                return False, f"there is no {kind} control."
            wrong = [str(each.get("name")) for each in chosen if each.get("found") is not (kind == "positive")]
            if wrong:
                fault = "found nothing where it had to" if kind == "positive" else "found something where there was nothing"
                return False, f"the {kind} control {', '.join(wrong[:5])} {fault}."
        return True, f"{' and '.join(kinds)} controls came out as they should."


def hint(word: str, known: Iterable[str]) -> str:
    """A question with the nearest known word, or nothing.

    >>> hint("evidense", SECTIONS)
    ' (did you mean evidence?)'
    """
    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else ""


def _listed(names: list[str], most: int) -> str:
    """
    >>> _listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _is(attack: str, asked: str) -> bool:
    """Whether an attack is of this kind, or has a name of this pattern."""
    if asked == "membership":
        return not any(fnmatchcase(attack, pattern) for patterns in KINDS.values() for pattern in patterns)
    return any(fnmatchcase(attack, pattern) for pattern in KINDS.get(asked, (asked,)))


def _bounds(claim: Claim) -> bool:
    from discreet.audit.judge import ceiling_of

    try:
        return math.isfinite(ceiling_of(claim.event).epsilon(0.1))
    except DiscreetError:
        return False


def _values(item: Claim | Evidence, asked: str | None) -> frozenset[str]:
    game = item.game
    match asked:
        case "unit":
            return frozenset((game.unit.name,))
        case "relation":
            return frozenset((game.unit.relation,))
        case "view":
            return game.sees() if isinstance(item, Claim) else game.view
        case "design" if isinstance(item, Evidence):
            return frozenset((item.design,))
    return frozenset()
