"""Lower bounds on epsilon from scores: one idea per file, all one-sided, all valid at the confidence they name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.audit.bounds.betting import betting
from discreet.audit.bounds.clopper_pearson import clopper_pearson
from discreet.audit.bounds.fdp import curve_refuted, fdp
from discreet.audit.bounds.gaussian import gaussian
from discreet.audit.bounds.one_run import one_run
from discreet.audit.bounds.order import FORWARD, counted
from discreet.core import Evidence, check
from discreet.core.evidence import trials

Bound = Callable[[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64], float, float], float]

METHODS: dict[str, Bound] = {
    "betting": betting,
    "clopper_pearson": clopper_pearson,
    "one_run": one_run,
    "fdp": fdp,
    "gaussian": gaussian,
}

# Methods that lift a measured rate to epsilon through a Gaussian trade-off; elsewhere they can claim too much.
GAUSSIAN_ONLY = frozenset({"fdp", "gaussian"})

__all__ = ["GAUSSIAN_ONLY", "METHODS", "curve_refuted", "epsilon_at_least", "epsilon_lower_bound"]


def epsilon_lower_bound(
    score: ArrayLike, inside: ArrayLike, run: ArrayLike, delta: float, confidence: float, method: str = "auto"
) -> float:
    """With this confidence, what produced the scores is not (epsilon, delta)-DP for any epsilon below the answer.

    Each target must have been inside by its own fair coin. `auto` is `betting`: valid for any number of runs and targets
    and at every threshold at once. `clopper_pearson` and `gaussian` need one target per run; `fdp` and `gaussian`
    assume a Gaussian trade-off and are never chosen for you.

    >>> import numpy as np
    >>> inside = np.arange(1000) % 2 == 0
    >>> epsilon_lower_bound(np.where(inside, 1.0, 0.0), inside, np.arange(1000), delta=1e-5, confidence=0.95) > 4
    True
    """
    scores, truth, runs = trials(score, inside, run)
    check.small_fraction("delta", delta)
    check.open_fraction("confidence", confidence)
    check.word("method", method, ("auto", *METHODS))
    bound = METHODS["betting" if method == "auto" else method]
    return max(0.0, float(bound(scores, truth, runs, float(delta), 1.0 - confidence)))


def epsilon_at_least(evidence: Evidence, delta: float, confidence: float = 0.95) -> float:
    """The lower bound (floor): at this confidence, no smaller epsilon is true at `delta` of what was attacked.

    Of a `post_hoc` design it is indicative only. Bounds take every target to have been inside by a fair coin. Where none was
    tossed, the larger side is thinned blindly to the size of the other: with nine members to one other, guesses of "inside" are
    right nine times in ten whatever the attack knows, and would pass for an epsilon of log 9. Scores that are lower for members
    tell as much as ones that are higher, so both are tried, the reversed ones with a hundredth of the error.

    >>> from discreet.core import Game, record
    >>> inside = np.arange(1000) % 2 == 0
    >>> seen = Evidence(game=Game(record(), {"answers"}), attack="peek", score=inside, inside=inside, run=np.arange(1000),
    ...                 design="paired")
    >>> epsilon_at_least(seen, 1e-5) > 4
    True
    """
    kept, error = counted(evidence), 1.0 - check.open_fraction("confidence", confidence)
    score, inside, run = evidence.score[kept], evidence.inside[kept], evidence.run[kept]
    ways = ((score, FORWARD), (-score, 1.0 - FORWARD))
    return max(epsilon_lower_bound(turned, inside, run, delta, 1.0 - error * share) for turned, share in ways)
