"""Facts: what a report shows beside claims and evidence. Plain JSON, read-only; nothing here is a ceiling or a floor."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from discreet.core import check
from discreet.errors import InvalidValue

_DEEPEST = 20
LARGEST_PICTURE = 64_000
_PACKAGES = (
    "numpy",
    "scipy",
    "torch",
    "sklearn",
    "duckdb",
    "sqlglot",
    "pyarrow",
    "pandas",
    "polars",
    "pyspark",
    "transformers",
)


class Facts(Mapping[str, Any]):
    """A read-only copy of plain JSON, down to its innermost list: lists are tuples, objects are Facts.

    Every key is optional, and keys of one's own are kept. Those that a report reads are checked: `title`, `made`, `seeds`,
    `hashes`, `groups`, `exposed`, `controls`, `quality`, `spending`, `marginal_errors`, `tried`, `not_tried`, and of a
    synthetic table `synthetic`, `fidelity`, `owner_fidelity`, `risks` and `usefulness`, of attribute inference `inference`, of
    stealing `stealing` and `descent`, of language models `extraction`, `exposure`, `unprompted` and `verbatim`, of pictures
    that were recreated `recreated` and `encodings`, of training data as a whole `shares`.

    >>> facts = Facts({"title": "Readmissions", "seeds": {"shadows": 0}})
    >>> facts["title"], facts["seeds"]["shadows"]
    ('Readmissions', 0)
    """

    __slots__ = ("_members",)

    def __init__(self, members: Mapping[str, Any] = {}) -> None:
        copied = members if isinstance(members, Facts) else _copied("facts", members)
        if not isinstance(copied, Facts):
            raise InvalidValue(f"facts must be an object with names for keys; got {check.shown(members)}.")
        for name, test in SHAPES.items():
            if name in copied:
                test(f"{name} of the facts", copied[name])
        self._members: dict[str, Any] = copied._members

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"Facts({', '.join(self._members)})"

    def to_json(self) -> dict[str, Any]:
        return {name: _thawed(value) for name, value in self._members.items()}


def made(command: str | None = None) -> dict[str, Any]:
    """The fact `made`: when, with which versions, and by which command. Packages are those in use now.

    >>> sorted(made("discreet audit ..."))
    ['command', 'discreet', 'packages', 'python', 'when']
    """
    found: dict[str, Any] = {
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "discreet": str(_version("discreet")),
        "python": ".".join(map(str, sys.version_info[:3])),
        "packages": {name: str(version) for name in _PACKAGES if (version := _version(name))},
    }
    return found if command is None else {**found, "command": command}


def _version(package: str) -> Any:
    return getattr(sys.modules.get(package), "__version__", None)


def _copied(name: str, value: Any, depth: int = 0) -> Any:
    """The value as JSON holds it, copied and frozen."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return check.word(name, value) if value else ""
    if hasattr(value, "tolist") and type(value).__module__ == "numpy":
        value = value.tolist()
    if isinstance(value, int):
        return check.whole(name, value, least=-check.LARGEST_WHOLE)
    if isinstance(value, float):
        return check.real(name, value)
    if depth >= _DEEPEST:
        raise InvalidValue(f"{name} is nested more than {_DEEPEST} deep.")
    if isinstance(value, (list, tuple)):
        return tuple(_copied(name, item, depth + 1) for item in value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        found = object.__new__(Facts)
        found._members = {_copied(name, key): _copied(name, item, depth + 1) for key, item in value.items()}
        return found
    raise InvalidValue(f"{name} must be plain JSON: text, numbers, lists and objects; got {check.shown(value)}.")


def _thawed(value: Any) -> Any:
    if isinstance(value, Facts):
        return value.to_json()
    return [_thawed(item) for item in value] if isinstance(value, tuple) else value


Test = Callable[[str, Any], object]


def _list(test: Test) -> Test:
    def all_of(name: str, value: Any) -> None:
        if not isinstance(value, tuple):
            raise InvalidValue(f"{name} must be a list; got {check.shown(value)}.")
        for item in value:
            test(f"an item of {name}", item)

    return all_of


def _object(test: Test) -> Test:
    def all_of(name: str, value: Any) -> None:
        for item in _mapping(name, value).values():
            test(f"a member of {name}", item)

    return all_of


def _members(required: dict[str, Test], optional: dict[str, Test]) -> Test:
    def those_of(name: str, value: Any) -> None:
        mapping = _mapping(name, value)
        for key, test in {**required, **optional}.items():
            if key in mapping:
                test(f"{key} of {name}", mapping[key])
            elif key in required:
                raise InvalidValue(f"{name} lacks {key}.")

    return those_of


def _mapping(name: str, value: Any) -> Facts:
    if not isinstance(value, Facts):
        raise InvalidValue(f"{name} must be an object; got {check.shown(value)}.")
    return value


def _rates(name: str, value: Any) -> None:
    """True-positive rates, each under the false-positive rate it was measured at."""
    for level, rate in _mapping(name, value).items():
        check.fraction(name, rate)
        try:
            allowed = 0 < float(level) <= 1 and math.isfinite(float(level))
        except ValueError:
            allowed = False
        if not allowed:
            raise InvalidValue(f"{name} must be named by false-positive rates, such as '0.01'; got {check.shown(level)}.")


def _pair(name: str, value: Any) -> None:
    if not isinstance(value, tuple) or len(value) != 2:
        raise InvalidValue(f"{name} must be a pair of a step and an epsilon; got {check.shown(value)}.")
    for number in value:
        check.nonnegative(name, number)


def _count(name: str, value: Any) -> None:
    check.whole(name, value, least=0)


def _kind(name: str, value: Any) -> None:
    check.word(name, value, ("positive", "negative"))


def _truth(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise InvalidValue(f"{name} must be true or false; got {check.shown(value)}.")


def _picture(name: str, value: Any) -> None:
    """A PNG in base64, small enough for a page, and nothing else: it is written into HTML."""
    check.word(name, value)
    if len(value) > LARGEST_PICTURE or not re.fullmatch(r"iVBORw0KGgo[A-Za-z0-9+/]+={0,2}", value):
        raise InvalidValue(f"{name} must be a PNG in base64 of at most {LARGEST_PICTURE:,} letters.")


_FIDELITY = _members(
    {
        "for_release": _truth,
        "distances": _list(
            _members({"columns": _list(check.word), "distance": check.fraction}, dict.fromkeys(("low", "high"), check.fraction))
        ),
    },
    {
        "means": _object(check.fraction),
        "association_error": check.nonnegative,
        "associations": _list(
            _members({"columns": _list(check.word), **dict.fromkeys(("real", "synthetic"), check.nonnegative)}, {})
        ),
    },
)
_RISK = dict.fromkeys(("members", "control", "baseline", "share", "low", "high", "confidence"), check.fraction)
SHAPES: dict[str, Test] = {
    "title": check.word,
    "made": _members(
        {},
        {**dict.fromkeys(("when", "discreet", "python", "command"), check.word), "packages": _object(check.word)},
    ),
    "seeds": _object(check.real),
    "hashes": _object(check.word),
    "groups": _list(
        _members(
            {"by": check.word, "group": check.word},
            {"n": _count, "tpr": _rates, **dict.fromkeys(("auc", "low", "high"), check.fraction)},
        )
    ),
    "exposed": _list(_members({"index": _count, "score": check.real}, {})),
    "controls": _list(
        _members(
            {"name": check.word, "kind": _kind},
            {"attack": check.word, "found": _truth, "tpr": _rates, "auc": check.fraction},
        )
    ),
    "quality": _object(check.real),
    "spending": _list(_pair),
    "marginal_errors": _object(check.nonnegative),
    "tried": _list(check.word),
    "not_tried": _list(check.word),
    "synthetic": _members(
        {"method": check.word, "columns": _list(_members({"name": check.word, "cells": _count}, {}))},
        {
            **dict.fromkeys(("epsilon", "delta", "rows", "gap"), check.nonnegative),
            "noise": _object(check.nonnegative),
            "measured": _list(_members({"columns": _list(check.word), "sigma": check.nonnegative}, {})),
            "measured_count": _count,
            "converged": _truth,
        },
    ),
    "fidelity": _FIDELITY,
    "owner_fidelity": _FIDELITY,
    "risks": _list(_members({"name": check.word, "attempts": _count, **_RISK}, {})),
    "inference": _list(
        _members(
            {"name": check.word, "attempts": _count, **_RISK}, dict.fromkeys(("auc_members", "auc_control"), check.fraction)
        )
    ),
    "extraction": _list(
        _members(
            {"samples": _count, "p": check.fraction, "prompt": _count, "suffix": _count, "near": check.fraction, **_RISK}, {}
        )
    ),
    "exposure": _list(
        _members(
            {
                **dict.fromkeys(("repetitions", "canaries", "exact", "first"), _count),
                **dict.fromkeys(("bits", "most_bits"), check.nonnegative),
            },
            {},
        )
    ),
    "stealing": _list(
        _members(
            {"method": check.word, "queries": _count},
            {
                "answers": check.word,
                **dict.fromkeys(("parameters", "leaves"), _count),
                "error": check.nonnegative,
                **dict.fromkeys(("agreement", "agreement_low", "agreement_high"), check.fraction),
            },
        )
    ),
    "descent": _members(
        {"suspect": check.word, "accused": _truth, **dict.fromkeys(("p", "level"), check.fraction)},
        {"similarity": _object(check.real), "siblings": _count},
    ),
    "verbatim": _list(check.word),
    "unprompted": _members(dict.fromkeys(("texts", "tokens", "run", "memorised"), _count), {}),
    "recreated": _list(
        _members(
            {"method": check.word, "prior": check.word, "classes": _count, "queries": _count},
            {"judge": check.word, "picture": _picture, "attempts": _count, **_RISK},
        )
    ),
    "encodings": _members(
        {"encodings": _count, "private": _count, "signs": _truth},
        {"found": _count, **dict.fromkeys(("ssim", "baseline"), check.real), "picture": _picture},
    ),
    "shares": _list(
        _members(
            {"property": check.word, **dict.fromkeys(("estimate", "low", "high", "confidence"), check.fraction)},
            {"blind": check.nonnegative, "shadows": _count},
        )
    ),
    "usefulness": _members(
        {"label": check.word, "rows": _count, **dict.fromkeys(("synthetic_accuracy", "real_accuracy"), check.fraction)}, {}
    ),
}  # fmt: skip
