"""How often an attack guessed right, and how often a claim lets anyone guess right."""

from __future__ import annotations

import math
from dataclasses import dataclass

from discreet.audit.binomial import rate_ceiling, rate_floor
from discreet.core import Claim, Evidence, check


@dataclass(frozen=True, slots=True)
class Guesses:
    """`right` of `targets` guesses; `low` and `high` enclose the rate at the confidence asked, were the guesses independent."""

    right: int
    targets: int
    share: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.right} of {self.targets} guessed right: {self.share:.1%} ({self.low:.1%} to {self.high:.1%})"


def guesses(evidence: Evidence, *, threshold: float = 0.0, confidence: float = 0.95) -> Guesses:
    """How many targets were guessed right when a score above `threshold` means inside.

    >>> from discreet.core import Game, record
    >>> seen = Evidence(game=Game(record(), {"answers"}), attack="peek", score=[1.0, -1.0], inside=[True, False],
    ...                 run=[0, 0], design="canary")
    >>> guesses(seen).share
    1.0
    """
    alpha = (1.0 - check.open_fraction("confidence", confidence)) / 2.0
    right = int(((evidence.score > threshold) == evidence.inside).sum())
    low, high = (float(bound(right, len(evidence), alpha)) for bound in (rate_floor, rate_ceiling))
    return Guesses(right, len(evidence), right / len(evidence), low, high)


def best_guess(claim: Claim) -> float:
    """The largest chance to guess a fair coin's side right that the claim leaves anyone; e^ε / (1 + e^ε) for pure ε.

    The advantage of a test is at most delta(0), the total variation distance of the two worlds, so the chance is at most
    (1 + delta(0)) / 2; and at most e^ε / (1 + e^ε) where the claim has an epsilon at delta 0.

    >>> from discreet.core import Game, Pure, record
    >>> round(best_guess(Claim(game=Game(record(), {"answers"}), event=Pure(1.0))), 4)
    0.7311
    """
    from discreet.accounting import curve
    from discreet.core import NonPrivate

    if isinstance(claim.event, NonPrivate):
        return 1.0
    ceiling = curve(claim.event)
    epsilon = ceiling.epsilon(0.0)
    pure = 1.0 / (1.0 + math.exp(-epsilon)) if math.isfinite(epsilon) else 1.0
    return min(1.0, pure, (1.0 + ceiling.delta(0.0)) / 2.0)
