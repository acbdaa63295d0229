"""The data-dependent bound of PATE: an estimate for the owner, and its release through noise of its own.

Where teachers agree, a label reveals less than the data-independent bound says. How much less depends on the votes, which are
private: so is the number. It holds for labels alone, not for noisy counts. docs/theory/pate.md has the theorem and the proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import curve
from discreet.accounting.renyi import ORDERS, epsilon_from_renyi
from discreet.core import Approximate, Claim, Game, Release, Unit, check
from discreet.errors import InvalidValue
from discreet.learn.pate.voting import CHECKING, PUBLIC, TEACHER, ConfidentGNMax, GNMax, LNMax
from discreet.ledger import LedgerLike
from discreet.ledger.seam import release
from discreet.noise import discrete_laplace

Floats = NDArray[np.float64]

STEPS = 1 << 20  # of the grid of a released estimate, in the data-independent bound


def by_margin(sigma: float, classes: int, teachers: int, order: float) -> Floats:
    """A bound on the Rényi divergence of one label, for every margin 0..teachers of the most voted class. It never rises.

    Theorem 6 of Papernot et al. 2018 with q = (classes - 1) exp(-margin^2 / 4 sigma^2), the chance that another class wins: a
    difference of two discrete Gaussians is sub-Gaussian with variance 2 sigma^2 (Canonne, Kamath & Steinke 2020).
    """
    plain = order / sigma**2
    margin = np.arange(teachers + 1, dtype=np.float64)
    log_q = math.log(max(classes - 1, 1)) - margin**2 / (4 * sigma**2)
    bounds = np.array([min(plain, _theorem(float(value), sigma, order)) for value in log_q])
    return np.asarray(np.minimum.accumulate(bounds))


def _theorem(log_q: float, sigma: float, order: float) -> float:
    """The bound for this chance; infinity where the theorem does not apply."""
    if log_q >= 0:
        return math.inf
    second = sigma * math.sqrt(-log_q)
    first = second + 1
    if second <= 1 or first < order:
        return math.inf
    divergence_1, divergence_2 = first / sigma**2, second / sigma**2
    allowed = (second - 1) * divergence_2 - second * math.log(first / (first - 1) * second / (second - 1))
    if log_q > allowed:
        return math.inf
    q = math.exp(log_q)
    inner = math.exp((log_q + divergence_2) * (second - 1) / second)
    if inner >= 1:
        return math.inf
    a = (order - 1) * (math.log1p(-q) - math.log1p(-inner)) + math.log1p(-q)
    b = (order - 1) * (divergence_1 - log_q / (first - 1)) + log_q
    return max(float(np.logaddexp(a, b)) / (order - 1), 0.0)


def data_dependent_epsilon(counts: Any, vote: GNMax, *, teachers: int, delta: float) -> float:
    """The least epsilon that these votes [answered queries, classes] prove for the labels. It is private: never release it.

    >>> from discreet.core import record
    >>> votes = np.tile([245, 5], (300, 1))
    >>> vote = GNMax(queries=300, unit=record(), noise=40.0)
    >>> bool(data_dependent_epsilon(votes, vote, teachers=250, delta=1e-5) < 2.2)
    True
    """
    margins = _margins(np.asarray(counts, np.int64), teachers)
    epsilons = [curve(vote.event()).epsilon(delta)]
    for order in ORDERS:
        bound = by_margin(vote.noise, np.shape(counts)[1], teachers, order)
        epsilons.append(epsilon_from_renyi(_tests(vote, order) + float(bound[margins].sum()), order, delta))
    return min(epsilons)


def _tests(vote: GNMax, order: float) -> float:
    """What the threshold tests cost; no data-dependent bound is used for them."""
    if isinstance(vote, LNMax):
        raise InvalidValue("The data-dependent bound here is for Gaussian votes: gnmax or confident.")
    return vote.queries * order / (2 * (CHECKING * vote.noise) ** 2) if isinstance(vote, ConfidentGNMax) else 0.0


def _margins(counts: NDArray[np.int64], teachers: int) -> NDArray[np.int64]:
    top = np.sort(counts, axis=1)
    return np.asarray(np.clip(top[:, -1] - top[:, -2], 0, teachers), np.int64)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The data-dependent Rényi bound of `answers` labels at one order, with noise scaled to its smooth sensitivity.

    One unit moves every margin by at most 2. With S the smooth sensitivity, discrete Laplace noise of scale 2 S / epsilon is
    (epsilon, delta)-DP (Nissim, Raskhodnikova & Smith 2007).
    """

    answers: int
    classes: int
    sigma: float
    teachers: int
    order: float
    unit: Unit
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check.positive("epsilon", self.epsilon)
        check.open_fraction("delta", self.delta)
        if not self.order > 1:
            raise InvalidValue(f"order must be above 1; got {self.order:g}.")

    def claims(self) -> tuple[Claim, ...]:
        event = Approximate(self.epsilon, self.delta)
        return (Claim(game=Game(self.unit, {"answers"}), event=event, assumptions=(TEACHER, PUBLIC)),)

    @property
    def step(self) -> float:
        """The grid: the data-independent bound of all answers in STEPS parts."""
        return self.answers * self.order / self.sigma**2 / STEPS

    def run(self, data: Any) -> int:
        """Steps of the grid, with noise; `data` are the counts [answers, classes]."""
        margins = _margins(np.asarray(data, np.int64), self.teachers)
        bound = by_margin(self.sigma, self.classes, self.teachers, self.order)
        scale = (self._smooth(bound, margins) / self.step + 1) * 2 / self.epsilon  # 1: each of two values is rounded
        return round(float(bound[margins].sum()) / self.step) + discrete_laplace(scale)

    def _smooth(self, bound: Floats, margins: NDArray[np.int64]) -> float:
        """max over d of e^(-beta d) x (the most that one unit moves the sum at d units from here)."""
        from scipy.ndimage import maximum_filter1d

        beta = math.log1p(self.epsilon / (2 * math.log(2 / self.delta))) * (1 - 1e-9)
        near = np.pad(bound, 2, mode="edge")
        jump = np.max([np.abs(near[2 + v : 2 + v + len(bound)] - bound) for v in (-2, -1, 1, 2)], axis=0)
        farthest = self.teachers // 2 + 1
        return max(
            math.exp(-beta * d) * float(maximum_filter1d(jump, 4 * d + 1, mode="nearest")[margins].sum())
            for d in range(farthest + 1)
        )


def release_estimate(
    counts: Any, vote: GNMax, *, teachers: int, order: float, epsilon: float, delta: float, vote_delta: float,
    ledger: LedgerLike | None = None, source: str = "training data",
) -> Release[float]:  # fmt: skip
    """A noisy data-dependent epsilon of the labels at `vote_delta`, by the Rényi bound of one public order.

    It is itself a release, which costs (epsilon, delta), and it is no claim: noise may have put it below the bound.
    """
    counts = np.asarray(counts, np.int64)
    estimate = Estimate(len(counts), counts.shape[1], vote.noise, teachers, order, vote.unit, epsilon, delta)
    tests, most = _tests(vote, order), len(counts) * order / vote.noise**2
    facts = {"title": f"Data-dependent epsilon of votes from {source}"}
    released = release(estimate, counts, source=source, ledger=ledger, asked=(epsilon, delta), facts=facts)
    return released.map(lambda steps: epsilon_from_renyi(tests + min(max(steps * estimate.step, 0.0), most), order, vote_delta))
