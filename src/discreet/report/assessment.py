"""What a release says, measured once: every view of a report is made from this."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.audit.appraisal import CONFIDENCE, DELTA, Appraisal, appraise
from discreet.audit.intervals import auc, auc_either_way
from discreet.audit.judge import ceiling_of
from discreet.core import Claim, Curve, ExternalValue, NonPrivate, Release, check
from discreet.core.curve import belief_exception
from discreet.errors import DiscreetError, InvalidValue
from discreet.report import text
from discreet.report.coverage import not_tried

if TYPE_CHECKING:
    from discreet.report.signature import Signed

DELTAS = (DELTA, 1e-9)  # at which a claim's epsilon is told where no budget says another
PRIORS = (0.01, 0.1, 0.5)
LEVELS = (0.001, 0.01)  # false-positive rates of the table

ReleaseLike = Release[Any] | str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """One claim, and what follows from it; `curve` is None where nothing is bounded, and `why` says so.

    `machine` says that it is about the machine that computed on ciphertexts alone, and not about what is released.
    """

    claim: Claim
    curve: Curve | None
    why: str | None
    epsilons: tuple[tuple[float, float], ...] = ()  # delta, epsilon
    beliefs: tuple[tuple[float, float], ...] = ()  # prior, posterior
    rare: float = 1e-6  # the probability with which a belief may grow more than that
    powers: tuple[tuple[float, float], ...] = ()  # false positives, true positives
    machine: bool = False

    @property
    def guarantee(self) -> str:
        if self.curve is None:
            return f"No ceiling: {self.why}"
        told = text.guarantee(self.claim, self.curve, self.epsilons[0][0])
        return text.of_machine(told) if self.machine else told

    @property
    def mechanism(self) -> str:
        """What ran, as far as the claim is about it."""
        return text.MACHINE_RAN if self.machine else text.mechanism(self.claim.event)


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """One release with all that was found in it."""

    release: Release[Any]
    title: str
    hash: str | None
    ceilings: tuple[Ceiling, ...]
    floors: tuple[Appraisal, ...]
    not_tried: tuple[str, ...]
    delta: float = DELTA  # at which epsilon is told: that of the budget, where a ledger is given
    fault: str | None = None  # why the release is not what it says it is, by its ledger or its signature
    signed: str | None = None  # the key of the signature beside its file; "" where there is none, None where there is no file
    withheld: bool = False  # there is evidence that the reader of this report may not see
    status: str = field(init=False)
    sentence: str = field(init=False)

    def __post_init__(self) -> None:
        from discreet.report.sentences import judged

        status, sentence = judged(self)
        object.__setattr__(self, "status", status)
        object.__setattr__(self, "sentence", sentence)

    @property
    def facts(self) -> Any:
        return self.release.facts

    @property
    def bounded(self) -> list[Ceiling]:
        """The claims that bound something about what is released."""
        return [item for item in self.ceilings if item.curve is not None and not item.machine]

    @property
    def machine(self) -> list[Ceiling]:
        """The claims that bound what the machine learns that computed on ciphertexts, and nothing about what is released."""
        return [item for item in self.ceilings if item.curve is not None and item.machine]

    @property
    def open(self) -> list[Ceiling]:
        """The claims that bound nothing, of games that no other claim bounds."""
        bounded = [item.claim.game for item in (*self.bounded, *self.machine)]
        return [
            item for item in self.ceilings if item.curve is None and not any(item.claim.game.within(game) for game in bounded)
        ]

    @property
    def strongest(self) -> Appraisal | None:
        """The attack that surely reaches most at a low false-positive rate; of attacks alike in that, the largest area."""

        def reach(item: Appraisal) -> tuple[float, float]:
            return (max(item.at(level).low / level for level in LEVELS), item.auc.value)

        return max(self.floors, key=reach, default=None)

    @property
    def value(self) -> str:
        """What was released, in a few words."""
        if isinstance(self.release.value, ExternalValue):
            return f"{text.an(text.short(self.release.value.type, 60))}, beside this document"
        if isinstance(self.release.value, (bool, int, float, str)):
            return text.short(check.shown(self.release.value), 80)
        return f"{text.an(type(self.release.value).__name__)} inside its document"


def assess(
    releases: ReleaseLike | Iterable[ReleaseLike], *, confidence: float = CONFIDENCE, budgets: Mapping[str, float] | None = None
) -> tuple[Assessment, ...]:
    """Everything about one or more releases, given as such or by the names of their files.

    `budgets` has the delta of each source's budget: a release from it is told at that delta, as its ledger counts.
    """
    check.open_fraction("confidence", confidence)
    items = [releases] if isinstance(releases, (Release, str, os.PathLike)) else list(_several(releases))
    if not items:
        raise InvalidValue("releases holds nothing; a report is about at least one release.")
    opened = [_opened(item) for item in items]
    names = _titles([release for release, _, _ in opened])
    deltas = [(budgets or {}).get(release.source, DELTA) for release, _, _ in opened]
    assessments = [
        _assess(release, name, digest, confidence, delta) for (release, digest, _), name, delta in zip(opened, names, deltas)
    ]
    return tuple(
        replace(item, fault=signed.fault if signed is not None and signed.there else None, signed=_key(signed))
        for item, (_, _, signed) in zip(assessments, opened)
    )


def _key(signed: Signed | None) -> str | None:
    return None if signed is None else (signed.key or "") if signed.there else ""


def _several(releases: Any) -> Sequence[ReleaseLike]:
    wanted = "a release, the name of its file, or a list of them"
    return check.items("releases", releases, wanted)


def _opened(item: ReleaseLike) -> tuple[Release[Any], str | None, Signed | None]:
    """The release, the hash of its file, and what the signature beside it shows."""
    if isinstance(item, Release):
        return item, None, None
    if not isinstance(item, (str, os.PathLike)):
        raise InvalidValue(f"releases must hold releases or the names of their files; got {text.an(type(item).__name__)}.")
    release: Release[Any] = Release.load(item)
    try:
        return release, f"sha256:{hashlib.sha256(Path(item).read_bytes()).hexdigest()}", _signature(Path(item))
    except OSError:  # a pipe is read only once
        return release, None, None


def _signature(path: Path) -> Signed:
    from discreet.report.signature import check_release

    return check_release(path)


def _titles(releases: Sequence[Release[Any]]) -> list[str]:
    """A name for each, no two the same."""
    plain = [text.short(item.facts.get("title") or f"Release from {item.source}", 120) for item in releases]
    return [name if plain.count(name) == 1 else f"{name} ({plain[:place].count(name) + 1})" for place, name in enumerate(plain)]


def _assess(release: Release[Any], title: str, digest: str | None, confidence: float, delta: float) -> Assessment:
    about_value = set(release.claims_on_value)
    worked_out = {
        claim: replace(_ceiling(claim, delta), machine=claim not in about_value) for claim in dict.fromkeys(release.claims)
    }
    ceilings = tuple(worked_out[claim] for claim in release.claims)
    floors = tuple(_turned(appraise(item, release.claims, confidence=confidence, delta=delta)) for item in release.evidence)
    untried = tuple(release.facts["not_tried"]) if "not_tried" in release.facts else not_tried(release)
    return Assessment(
        release=release, title=title, hash=digest, ceilings=ceilings, floors=floors, not_tried=untried, delta=delta
    )  # fmt: skip


def is_reversed(floor: Appraisal) -> bool:
    """Whether the scores of an attack are surely lower for those inside: who attacks turns them round."""
    return float(auc(floor.evidence, floor.confidence).high) < 0.5


def _turned(floor: Appraisal) -> Appraisal:
    """The area under the curve of reversed scores, as the gate has it; rates are of either direction already."""
    return replace(floor, auc=auc_either_way(floor.evidence, floor.confidence)) if is_reversed(floor) else floor


def told_at(delta: float) -> tuple[float, float]:
    """The deltas at which epsilon is told: that of the budget first, and another."""
    return delta, DELTAS[1] if delta > DELTAS[1] else DELTAS[0]


def _ceiling(claim: Claim, delta: float) -> Ceiling:
    if isinstance(claim.event, NonPrivate):
        return Ceiling(claim=claim, curve=None, why="nothing is claimed; whatever an attack finds, nothing here forbids it.")
    try:
        curve_of_claim = ceiling_of(claim.event)
        powers = tuple((level, curve_of_claim.power(level)) for level in LEVELS)
        epsilons = tuple((each, curve_of_claim.epsilon(each)) for each in told_at(delta))
        rare = belief_exception(curve_of_claim)
        beliefs = tuple((prior, curve_of_claim.posterior(prior, rare)) for prior in PRIORS)
    except DiscreetError as error:
        return Ceiling(claim=claim, curve=None, why=f"no bound could be worked out: {text.short(error)}")
    if all(power >= 1 for _, power in powers):
        return Ceiling(
            claim=claim, curve=None, why="what ran bounds nothing; whatever an attack finds, nothing here forbids it."
        )
    return Ceiling(
        claim=claim, curve=curve_of_claim, why=None, epsilons=epsilons, beliefs=beliefs, rare=rare, powers=powers
    )  # fmt: skip
