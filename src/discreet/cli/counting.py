"""Where torch is not installed: a count with noise, and a twin that adds half of the noise it claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.cli.hospital import DIAGNOSES, SOURCE, People
from discreet.core import Claim, Release, record
from discreet.core.facts import made
from discreet.ledger import release
from discreet.noise import LaplaceNoise

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.ledger import Ledger

STROKE = DIAGNOSES.index("stroke")


@dataclass(frozen=True, slots=True)
class Count:
    """A number with `noise` added, and the claim of the noise it says it adds."""

    noise: LaplaceNoise
    said: LaplaceNoise

    def claims(self) -> tuple[Claim, ...]:
        return self.said.claims()

    def run(self, data: int) -> int:
        return int(self.noise.run(data))


def honest() -> Count:
    """The count that adds the noise it claims."""
    noise = LaplaceNoise(1, sensitivity=1, unit=record())
    return Count(noise=noise, said=noise)


def half_noise() -> Count:
    """The broken twin: the same claim over half the noise."""
    return Count(noise=LaplaceNoise(0.5, sensitivity=1, unit=record()), said=honest().said)


def count(
    patients: People, ledger: Ledger, runs: int, progress: Callable[[int, int], None] | None
) -> tuple[Release[int], Release[int]]:
    """How many had a stroke, paid for and audited; and its broken twin, audited the same way."""
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
    """The answer, and the evidence of the best attack there is: who knows all others compares it with the count of those."""
    from discreet.audit import Pair, Readout, audit

    evidence = audit(mechanism, Readout(), Pair(strokes, strokes - 1), runs=runs, progress=progress)
    facts = {"title": title, "made": made()}
    return Release(
        value=answer, source=SOURCE, claims=mechanism.claims(), entry=entry, evidence=(evidence,), facts=facts
    )  # fmt: skip
