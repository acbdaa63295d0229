"""Where torch is not installed: a count with noise, and a broken control that adds half of the noise it claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.core import Claim, Release, record
from discreet.core.facts import made
from discreet.demo.hospital import DIAGNOSES, SOURCE, Cohort
from discreet.ledger import release
from discreet.noise import LaplaceNoise

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.ledger import Ledger

STROKE = DIAGNOSES.index("stroke")


@dataclass(frozen=True, slots=True)
class Count:
    """A number with `noise` added, which claims what `claimed` would guarantee."""

    noise: LaplaceNoise
    claimed: LaplaceNoise

    def claims(self) -> tuple[Claim, ...]:
        return self.claimed.claims()

    def run(self, data: int) -> int:
        return int(self.noise.run(data))


def honest() -> Count:
    """The count that adds the noise it claims."""
    noise = LaplaceNoise(1, sensitivity=1, unit=record())
    return Count(noise=noise, claimed=noise)


def half_noise() -> Count:
    """The broken control: the same claim with half the noise."""
    return Count(noise=LaplaceNoise(0.5, sensitivity=1, unit=record()), claimed=honest().claimed)


def count(
    patients: Cohort, ledger: Ledger, runs: int, progress: Callable[[int, int], None] | None
) -> tuple[Release[int], Release[int]]:
    """How many had a stroke, paid for and audited; and the broken control, audited the same way."""
    strokes = int(np.sum(patients.diagnosis == STROKE))
    sound, broken = honest(), half_noise()
    answer = release(sound, strokes, source=SOURCE, ledger=ledger)
    return (
        _audited(
            sound, answer.value, "Patients with a stroke, counted with noise", strokes, runs, progress, entry=answer.entry
        ),
        _audited(broken, broken.run(strokes), "The same count by a broken mechanism", strokes, runs, progress),
    )


def _audited(
    mechanism: Count, answer: int, title: str, strokes: int, runs: int, progress: Any, entry: str | None = None
) -> Release[int]:
    """The answer and its evidence. The attack is the strongest there is: the adversary knows the count of all other rows."""
    from discreet.audit import Pair, Readout, audit

    evidence = audit(mechanism, Readout(), Pair(strokes, strokes - 1), runs=runs, progress=progress)
    facts = {"title": title, "made": made()}
    return Release(
        value=answer, source=SOURCE, claims=mechanism.claims(), entry=entry, evidence=(evidence,), facts=facts
    )  # fmt: skip
