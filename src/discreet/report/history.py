"""The history of a gate: one line of JSON for every release that it judged, so that versions can be compared and drawn.

Lines are only ever added. A line that cannot be read is left out and said, as a file in version control may be merged by hand.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from discreet.charts.trend import Version, trend
from discreet.core import Release, check
from discreet.core.document import parse_plain
from discreet.errors import InvalidDocument, InvalidValue
from discreet.figures import percent_down, percent_up, up
from discreet.report import text
from discreet.report.assessment import Assessment
from discreet.report.section import Section
from discreet.report.sentences import STATUSES
from discreet.report.tables import Table

LEVEL = 0.01  # the false-positive rate at which versions are compared
SHOWN = 30  # versions of one release that are drawn
LONGEST = 20_000  # lines that are read, the last of a longer file
_OUTCOMES = ("holds", "inconclusive", "failed", "refuted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What was found of one release.

    The verdict of its report, the outcome of its gate, what is claimed, and what the strongest attack reached at `LEVEL`.
    """

    at: str
    release: str
    version: str
    hash: str
    verdict: str
    outcome: str
    delta: float
    epsilon: float | None
    most: float | None
    attack: str | None
    rate: float | None
    low: float | None
    high: float | None

    @property
    def found(self) -> tuple[float, float, float] | None:
        if self.rate is None or self.low is None or self.high is None:
            return None
        return self.rate, self.low, self.high

    @property
    def name(self) -> str:
        return text.short(" ".join(each for each in (self.version, self.at[:10]) if each), 40)


def title_of(release: Release[Any]) -> str:
    """What a release is called; versions of one thing share it."""
    return text.short(release.facts.get("title") or f"Release from {release.source}", 120)


def judgement(item: Assessment, outcome: str, now: datetime | None = None) -> Judgement:
    """What is kept of a release and the outcome of its gate."""
    best = item.strongest
    measured = best.at(LEVEL) if best is not None else None
    whole = item.bounded and not item.open
    return Judgement(
        at=(now or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ"), release=title_of(item.release),
        version=text.short(item.facts.get("version", ""), 40), hash=item.hash or _hash(item.release), verdict=item.status,
        outcome=outcome, delta=item.delta,
        epsilon=max(each.epsilons[0][1] for each in item.bounded) if whole else None,
        most=max(each.curve.power(LEVEL) for each in item.bounded if each.curve is not None) if whole else None,
        attack=text.short(best.evidence.attack, 60) if best is not None else None,
        rate=measured.rate if measured else None, low=measured.low if measured else None,
        high=measured.high if measured else None,
    )  # fmt: skip


def _hash(release: Release[Any]) -> str:
    """That of the file that `save` writes: a release from a pipe has no file."""
    return f"sha256:{hashlib.sha256(json.dumps(release.to_json()).encode()).hexdigest()}"


def append(path: str | os.PathLike[str], items: Iterable[Judgement]) -> None:
    """Add a line for each, in one write that other gates on the same file cannot cut; `read` refuses what is no history."""
    lines = "".join(json.dumps(_plain(item), ensure_ascii=True) + "\n" for item in items).encode()
    try:
        place = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            end = os.lseek(place, 0, os.SEEK_END)
            whole = end == 0 or os.pread(place, 1, end - 1) == b"\n"  # a line that was cut does not take this one with it
            os.write(place, lines if whole else b"\n" + lines)
            os.fsync(place)
        finally:
            os.close(place)
    except OSError as error:
        raise InvalidValue(f"The history {os.fspath(path)} cannot be written: {error.strerror}.") from None


def read(path: str | os.PathLike[str], *, missing: bool = False) -> tuple[list[Judgement], list[str]]:
    """The judgements in a history, oldest first, and what there is to warn of. `missing`: it need not be there yet."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        if missing:
            return [], []
        raise InvalidValue(f"There is no history {os.fspath(path)}; discreet gate --history writes it.") from None
    except OSError as error:
        raise InvalidValue(f"The history {os.fspath(path)} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise InvalidValue(f"{check.shown(os.fspath(path))} is not the name of a file.") from None
    found: list[Judgement] = []
    damaged: list[int] = []
    for number, content in list(enumerate(lines, 1))[-LONGEST:]:
        if content.strip():
            if (judged := _read(content)) is None:
                damaged.append(number)
            else:
                found.append(judged)
    if damaged and not found:  # a release, a policy or a ledger that was named by mistake must not get a line
        raise InvalidDocument(
            f"{os.fspath(path)} is no history: no line of it is a judgement that discreet gate --history wrote. "
            "Nothing was added to it; name another file, or one that is not there yet."
        )
    numbers = ", ".join(map(str, damaged[:5])) + (f" and {len(damaged) - 5} more" if len(damaged) > 5 else "")
    warning = f"{os.fspath(path)} is damaged in line {numbers}: nothing is known of what stood there."
    return found, [warning] if damaged else []


def change(before: Sequence[Judgement], now: Judgement) -> str | None:
    """What became of a release since the gate saw its last other version; None where it saw none."""
    last = next((each for each in reversed(before) if each.release == now.release and each.hash != now.hash), None)
    if last is None:
        return None
    parts = [f"ε {_epsilon(last)} → {_epsilon(now)}"]
    if last.found and now.found:
        grown = (
            "more, beyond both intervals"
            if now.found[1] > last.found[2]
            else ("less, beyond both intervals" if now.found[2] < last.found[1] else "no more than intervals allow for chance")
        )
        parts.append(f"attacks reached {_found(last)} → {_found(now)} at 1 % false positives: {grown}")
    return f"{now.release}, since {last.name}: {'; '.join(parts)}."


@dataclass(frozen=True)
class Trend:
    """The section on earlier versions of a release, as gates judged them."""

    past: Sequence[Judgement]
    warnings: Sequence[str] = ()
    name: str = "trend"
    heading: str = "Earlier versions, as the gate judged them"

    def section(self, item: Assessment, plots: bool) -> Section | None:
        title = title_of(item.release)
        mine = [each for each in self.past if each.release == title]
        if not mine:
            return None
        last = mine[-SHOWN:]
        rows: tuple[tuple[str, ...], ...] = tuple(
            (each.name, each.verdict, each.outcome, _epsilon(each), _found(each), each.attack or "") for each in last
        )
        heads: tuple[str, ...] = (
            "version",
            "verdict",
            "rules of the gate",
            "ceiling: ε",
            "reached at 1 % false positives",
            "by",
        )
        drawn = [Version(name=each.name, epsilon=each.epsilon, most=each.most, found=each.found) for each in last]
        withheld = ("Attacks on earlier versions are withheld.",) if item.withheld else ()
        if item.withheld:
            shown = (0, 2, 3)  # the verdict would say what attacks reached
            rows, heads, drawn = tuple(tuple(row[k] for k in shown) for row in rows), tuple(heads[k] for k in shown), []
        left = f"and {len(mine) - len(last)} earlier ones" if len(mine) > len(last) else ""
        return Section(
            item.title, tables=(("Oldest first", Table(heads, rows, left)),),
            plots=(trend(drawn, level=LEVEL),) if plots and drawn else (), notes=(*self.warnings, *withheld),
        )  # fmt: skip


def _epsilon(judged: Judgement) -> str:
    return "none" if judged.epsilon is None else f"{up(judged.epsilon)} at δ {text.small(judged.delta)}"


def _found(judged: Judgement) -> str:
    if judged.found is None:
        return "none was tried"
    value, low, high = judged.found
    return f"{percent_down(value)} ({percent_down(low)} to {percent_up(high)})"


def _plain(judged: Judgement) -> dict[str, Any]:
    """As JSON: what is infinite is null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in asdict(judged).items()
    }


_TEXTS = ("at", "release", "version", "hash", "verdict", "outcome")
_NUMBERS = ("delta", "epsilon", "most", "rate", "low", "high")


def _read(line: str) -> Judgement | None:
    """A judgement, or None for a line that is none: its numbers are drawn, so each is finite and in its range."""
    try:
        data = parse_plain(line)
    except InvalidDocument:
        return None
    if not isinstance(data, dict) or set(data) != {each.name for each in fields(Judgement)}:
        return None
    words = all(isinstance(data[name], str) for name in _TEXTS) and data["outcome"] in _OUTCOMES and data["verdict"] in STATUSES
    if not words or not isinstance(data["attack"], (str, type(None))) or not data["release"]:
        return None
    for name in _NUMBERS:
        value = data[name]
        if value is None and name != "delta":
            continue
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
        if not good or (name != "epsilon" and value > 1):
            return None
    judged = Judgement(**data)
    return judged if _in_order(judged) else None


def _in_order(judged: Judgement) -> bool:
    """Whether the interval is around the rate, and is there where an attack is."""
    parts = (judged.low, judged.rate, judged.high)
    told = [each for each in parts if each is not None]
    return told == sorted(told) and len(told) in (0, 3) and (judged.attack is None) == (not told)
