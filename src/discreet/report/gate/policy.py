"""A policy: the rules of `privacy.toml`, read strictly. A word it does not know is refused, with its line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from discreet.audit.judge import SURE
from discreet.core import Release, check
from discreet.core.document import parse_toml, read_text
from discreet.core.game import RELATIONS, VIEWS
from discreet.errors import InvalidDocument, InvalidValue
from discreet.report.gate.finding import Finding, one_line
from discreet.report.gate.lines import Path, lines_of
from discreet.report.gate.parts import Part, hint
from discreet.report.gate.proofs import GENUINE, NOTHING, Genuine, Proofs
from discreet.report.gate.rules import Area, ClaimedEpsilon, Rate, Require, Rule, ShownEpsilon, Unrefuted

LARGEST = 1 << 20  # bytes
LONGEST = 100  # letters of a name
TOP = ("rule", "refute", "strict", "keys")
WHERE = ("attack.*", "claim", "release")
CHECKS = {"attack": ("tpr", "auc", "epsilon"), "claim": ("epsilon",), "release": ("require",)}
KEYS = ("name", "on", "tpr", "auc", "epsilon", "require")
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules for releases; `judge` tells what each finds.

    >>> policy = Policy.from_toml('[[rule]]\\non = "release"\\nrequire = ["evidence"]')
    >>> nothing = Release(value=1, source="people", claims=())
    >>> [each.outcome for each in policy.judge(nothing)]
    ['failed']
    """

    rules: tuple[Rule, ...]
    name: str = "privacy.toml"
    strict: bool = True
    keys: tuple[str, ...] = ()  # public keys whose signatures count
    genuine: Genuine = GENUINE

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Policy:
        """The policy in a TOML file."""
        return cls.from_toml(read_text(path, LARGEST, "policy"), str(path))

    @classmethod
    def from_toml(cls, text: str, name: str = "privacy.toml") -> Policy:
        """The policy in a text; `name` is what errors and alerts call it."""
        document = parse_toml(text, name, checked=True)  # first: lines are those of valid TOML
        return _Reader(name, lines_of(text)).policy(document)

    def judge(self, release: Release[Any], proofs: Proofs = NOTHING) -> tuple[Finding, ...]:
        """Whether the release is what it says it is, then what every rule finds in it, in the order of the policy."""
        return tuple(finding for rule in (self.genuine, *self.rules) for finding in rule.judge(release, proofs))


class _Reader:
    """Checks a document key by key; every error names the file and the line."""

    def __init__(self, name: str, lines: dict[Path, int]) -> None:
        self.name, self.lines = name, lines
        self.names: set[str] = set()

    def line(self, path: Path) -> int:
        """The line of the innermost part of the path that has one."""
        return next((self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines), 1)

    def wrong(self, path: Path, message: str) -> InvalidDocument:
        return InvalidDocument(f"{self.name}, line {self.line(path)}: {message}")

    def checked(self, path: Path, look: Callable[..., Any], *args: Any) -> Any:
        try:
            return look(*args)
        except InvalidValue as error:
            raise self.wrong(path, str(error)) from None

    def table(self, path: Path, value: Any, keys: tuple[str, ...], what: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self.wrong(path, f"{what} must be a table, such as {{ {keys[0]} = … }}; got {check.shown(value)}.")
        for key in value:
            if key not in keys:
                raise self.wrong(
                    (*path, key), f"unknown key {check.shown(key)} in {what}{hint(key, keys)}; it may have {', '.join(keys)}."
                )
        return value

    def policy(self, document: dict[str, Any]) -> Policy:
        self.table((), document, TOP, "a policy")
        strict = document.get("strict", True)
        if not isinstance(strict, bool):
            raise self.wrong(("strict",), f"strict must be true or false; got {check.shown(strict)}.")
        refute = self.table(("refute",), document.get("refute", {}), ("confidence",), "refute")
        sure = self.number(("refute",), refute, "confidence", check.open_fraction, SURE)
        tables = document.get("rule", [])
        if not isinstance(tables, list):
            raise self.wrong(("rule",), "rules are written [[rule]], with two brackets: there may be several.")
        rules = [rule for place, each in enumerate(tables) for rule in self.rule(("rule", place), each)]
        if not rules:
            raise InvalidDocument(
                f'{self.name} has no [[rule]]: nothing would be checked. Write one, such as on = "attack.*" with '
                "tpr = { at_fpr = 0.001, max = 0.01 }."
            )
        keys = self.keys(document.get("keys", []), rules)
        line = self.line(("refute",))
        unrefuted = Unrefuted(name=self.unique("claims-hold"), line=line, confidence=sure)
        return Policy((*rules, unrefuted), self.name, strict, keys, Genuine(name=self.unique("as-it-says")))

    def keys(self, value: Any, rules: list[Rule]) -> tuple[str, ...]:
        """The public keys whose signatures count; where a signature is required, at least one."""
        from discreet.report.keys import check_public

        if not isinstance(value, list):
            raise self.wrong(("keys",), f'keys must list public keys, such as ["ed25519:…"]; got {check.shown(value)}.')
        for place, key in enumerate(value):
            self.checked(("keys", place), check_public, "a key", key)
        for rule in rules:
            if not value and isinstance(rule, Require) and rule.part.name in ("signature", "ledger.head"):
                raise InvalidDocument(
                    f"{self.name}, line {rule.line}: {rule.part} is required, and keys does not say whose signature counts; "
                    'anybody can make one. Write keys = ["ed25519:…"] at the top, as discreet keys show writes it.'
                )
        return tuple(value)

    def rule(self, path: Path, value: Any) -> Iterator[Rule]:
        terms = self.table(path, value, KEYS, "a rule")
        on = terms.get("on")
        if on is None:
            raise self.wrong(path, f"a rule lacks on, which says what it looks at: {', '.join(WHERE)}.")
        if not isinstance(on, str):
            raise self.wrong((*path, "on"), f"on says what a rule looks at: {', '.join(WHERE)}; got {check.shown(on)}.")
        kind = on.partition(".")[0] if on.startswith("attack.") else on
        if kind not in CHECKS or on in ("attack", "attack."):
            raise self.wrong((*path, "on"), f"on must be one of {', '.join(WHERE)}{hint(on, WHERE)}; got {check.shown(on)}.")
        checks = [key for key in ("tpr", "auc", "epsilon", "require") if key in terms]
        for key in checks:
            if key not in CHECKS[kind]:
                able = ", ".join(CHECKS[kind])
                raise self.wrong((*path, key), f"{key} is no rule for {on}; a rule on {on} has {able}.")
        if not checks:
            raise self.wrong(path, f"a rule on {on} checks nothing; give it {' or '.join(CHECKS[kind])}.")
        name = self.rule_name(path, terms.get("name"))
        for key in checks:
            yield from self.check_of(path, kind, on, key, terms[key], name if len(checks) == 1 or not name else f"{name} {key}")

    def check_of(self, path: Path, kind: str, on: str, key: str, value: Any, name: str | None) -> Iterator[Rule]:
        path = (*path, key)
        if key == "require":
            yield from self.require(path, value, name)
        elif kind == "claim":
            yield self.ceiling(path, value, name)
        else:
            yield self.on_attacks(path, on.partition(".")[2], key, value, name)

    def on_attacks(self, path: Path, attack: str, key: str, value: Any, name: str | None) -> Rule:
        keys = {"tpr": ("at_fpr",), "auc": (), "epsilon": ("at_delta",)}[key]
        terms = self.table(path, value, (*keys, "max", "confidence"), key)
        sure = self.number(path, terms, "confidence", check.open_fraction, _CONFIDENCE)
        common: dict[str, Any] = {"line": self.line(path), "attack": attack, "confidence": sure}
        if key == "tpr":
            fpr = self.number(path, terms, "at_fpr", check.open_fraction)
            limit = self.number(path, terms, "max", check.open_fraction)
            if limit <= fpr:
                raise self.wrong(
                    (*path, "max"), f"max must be above at_fpr, {fpr:g}: guessing alone reaches that; got {limit:g}."
                )
            return Rate(name=self.unique(name or f"attack.{attack}/tpr-at-{fpr:g}"), limit=limit, fpr=fpr, **common)
        if key == "auc":
            limit = self.number(path, terms, "max", check.open_fraction)
            if limit <= 0.5:
                raise self.wrong((*path, "max"), f"max must be above 0.5: guessing alone reaches that; got {limit:g}.")
            return Area(name=self.unique(name or f"attack.{attack}/auc"), limit=limit, **common)
        delta = self.number(path, terms, "at_delta", check.small_fraction)
        limit = self.number(path, terms, "max", check.nonnegative)
        return ShownEpsilon(
            name=self.unique(name or f"attack.{attack}/epsilon-at-{delta:g}"), limit=limit, delta=delta, **common
        )

    def ceiling(self, path: Path, value: Any, name: str | None) -> Rule:
        terms = self.table(path, value, ("at_delta", "max", "unit", "relation", "view"), "epsilon")
        delta = self.number(path, terms, "at_delta", check.small_fraction)
        limit = self.number(path, terms, "max", check.nonnegative)
        unit, relation = terms.get("unit"), terms.get("relation")
        if unit is not None:
            self.checked((*path, "unit"), check.word, "unit", unit)
        if relation is not None:
            self.known((*path, "relation"), "relation", relation, RELATIONS)
        seen = terms.get("view", [])
        views = seen if isinstance(seen, list) else [seen]
        for each in views:
            self.known((*path, "view"), "view", each, VIEWS)
        default = "/".join(each for each in ("claim", unit, relation, "+".join(sorted(views)), f"epsilon-at-{delta:g}") if each)
        return ClaimedEpsilon(
            name=self.unique(name or default), line=self.line(path), delta=delta, limit=limit, unit=unit, relation=relation,
            view=frozenset(views),
        )  # fmt: skip

    def require(self, path: Path, value: Any, name: str | None) -> Iterator[Rule]:
        if not isinstance(value, list) or not value:
            raise self.wrong(path, f'require must list parts, such as ["claim.unit", "evidence"]; got {check.shown(value)}.')
        for place, text in enumerate(value):
            here = (*path, place)
            if not isinstance(text, str):
                raise self.wrong(here, f"a part is written as text, such as 'claim.unit'; got {check.shown(text)}.")
            part = self.checked(here, Part.parse, text)
            yield Require(name=self.unique(f"{name or 'release'}/{part}"), line=self.line(here), part=part)

    def known(self, path: Path, what: str, value: Any, words: tuple[str, ...]) -> None:
        if not isinstance(value, str) or value not in words:
            near = hint(value, words) if isinstance(value, str) else ""
            raise self.wrong(path, f"{what} must be one of {', '.join(words)}{near}; got {check.shown(value)}.")

    def number(
        self, path: Path, terms: Mapping[str, Any], key: str, look: Callable[[str, Any], float], default: float | None = None
    ) -> float:
        if key not in terms:
            if default is None:
                raise self.wrong(path, f"{path[-1]} lacks {key}: it has no default.")
            return default
        number: float = self.checked((*path, key), look, key, terms[key])
        return number

    def rule_name(self, path: Path, name: Any) -> str | None:
        if name is None:
            return None
        self.checked((*path, "name"), check.word, "name", name)
        if len(name) > LONGEST or one_line(name) != name:
            raise self.wrong((*path, "name"), f"a name is one line of at most {LONGEST} letters; got {check.shown(name)}.")
        if name in self.names:
            raise self.wrong((*path, "name"), f"the name {check.shown(name)} is taken by another rule.")
        return str(name)

    def unique(self, name: str) -> str:
        """Names stay what they are when other rules come and go, so alerts keep their identity; a second gets a number."""
        candidate, count = name, 1
        while candidate in self.names:
            count += 1
            candidate = f"{name} ({count})"
        self.names.add(candidate)
        return candidate
