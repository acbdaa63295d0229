"""The closed forms of the lectures, each with the conditions under which it is true.

They are here to be compared with: `curve` and `calibrate` give the tight value of the same thing. Where a lecture's
formula is imprecise, the right one is here and the docstring says so. All of them are rounded up, at any argument.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from discreet.accounting.rounding import float_up, quotient_up, total_up
from discreet.core import check
from discreet.errors import InvalidValue

UP = 1 + 2e-15  # above the rounding of a few functions


def laplace_scale(sensitivity: float, epsilon: float) -> float:
    """The scale of Laplace noise for epsilon-DP: l1 sensitivity / epsilon. Exact.

    >>> laplace_scale(25.0, epsilon=0.5)
    50.0
    """
    return quotient_up(check.positive("sensitivity", sensitivity), check.positive("epsilon", epsilon))


def gaussian_sigma_classic(sensitivity: float, epsilon: float, delta: float) -> float:
    """sqrt(2 ln(1.25/delta)) x l2 sensitivity / epsilon (Dwork & Roth 2014, Theorem A.1). Valid for epsilon <= 1 only.

    One lecture prints ln(1.25)/delta under the root; the logarithm is of the quotient. Another leaves out the
    condition: at epsilon = 10, delta = 1e-5 this noise only gives delta = 2.3e-5.

    >>> round(gaussian_sigma_classic(1.0, epsilon=0.5, delta=1e-5), 3)
    9.69
    """
    sensitivity, epsilon = check.positive("sensitivity", sensitivity), check.positive("epsilon", epsilon)
    delta = check.open_fraction("delta", delta)
    if epsilon > 1:
        raise InvalidValue(
            f"The classic Gaussian formula is proven for epsilon up to 1 only; got {epsilon:g}. "
            "Use gaussian_sigma(sensitivity, epsilon, delta), which is exact for every epsilon."
        )
    return math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / epsilon * UP


def gaussian_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """The least sigma of Gaussian noise for (epsilon, delta)-DP: the analytic Gaussian mechanism (Balle & Wang 2018).

    >>> round(gaussian_sigma(1.0, epsilon=0.5, delta=1e-5), 3)
    7.032
    """
    from discreet.accounting.profile import gaussian_delta

    sensitivity, epsilon = check.positive("sensitivity", sensitivity), check.nonnegative("epsilon", epsilon)
    delta = check.open_fraction("delta", delta)

    def enough(sigma: float) -> bool:
        return float(gaussian_delta(quotient_up(1.0, sigma), np.array([epsilon]))[0]) <= delta

    high = 1.0
    while not enough(high):
        high *= 2
    low = high
    while enough(low):
        low /= 2
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return float_up(Fraction(high) * Fraction(sensitivity))
        low, high = (low, middle) if enough(middle) else (middle, high)


def group_epsilon(epsilon: float, size: int) -> float:
    """k units together are protected with k x epsilon. Exact for pure epsilon-DP.

    >>> group_epsilon(0.25, 5)
    1.25
    """
    return total_up([(check.nonnegative("epsilon", epsilon), check.whole("size", size))])


def group_delta(epsilon: float, delta: float, size: int) -> float:
    """The delta that goes with k x epsilon: delta (e^{k epsilon} - 1) / (e^epsilon - 1), not k x delta."""
    epsilon, delta = check.nonnegative("epsilon", epsilon), check.small_fraction("delta", delta)
    size = check.whole("size", size)
    if epsilon == 0 or delta == 0:
        return min(total_up([(delta, size)]), 1.0)
    log = (size - 1) * epsilon + math.log(-math.expm1(-size * epsilon)) - math.log(-math.expm1(-epsilon)) + math.log(delta)
    return min(math.exp(min(log + 1e-15 * (size * epsilon + abs(math.log(delta)) + 50), 1.0)), 1.0)


def epsilon_of_alpha(alpha: float) -> float:
    """alpha-privacy, Pr[r | S] <= (1 + alpha) Pr[r | S'], is epsilon-DP with e^epsilon = 1 + alpha.

    Randomised response with 3/4 and 1/4 is 2-private in this sense: epsilon = ln 3.

    >>> round(epsilon_of_alpha(2.0), 4)
    1.0986
    """
    return math.log1p(check.nonnegative("alpha", alpha)) * UP


def sampled_epsilon(epsilon: float, rate: float) -> float:
    """epsilon-DP on a sample taken at this rate: ln(1 + rate (e^epsilon - 1)); delta becomes rate x delta.

    A lecture writes "rate x epsilon", which is the first-order term for small epsilon and too small in truth.

    >>> round(sampled_epsilon(1.0, 0.01), 5)
    0.01704
    """
    from discreet.accounting.profile import _outside

    rate = check.fraction("rate", rate)
    epsilon = check.nonnegative("epsilon", epsilon)
    return _outside(epsilon, rate) if rate else 0.0


def sgd_sigma(lipschitz: float, steps: int, rows: int, epsilon: float, delta: float) -> float:
    """The noise of Bassily, Smith, Thakurta 2014 for SGD on one random row a step: epsilon <= 1, relation replace.

    sigma = 16 l sqrt(T ln(2/delta) ln(2.5 T / (delta n))) / (n epsilon). `calibrate` finds how much less is enough.
    """
    lipschitz, epsilon = check.positive("lipschitz", lipschitz), check.positive("epsilon", epsilon)
    steps, rows = check.whole("steps", steps), check.whole("rows", rows)
    delta = check.open_fraction("delta", delta)
    if epsilon > 1:
        raise InvalidValue(f"The formula of Bassily et al. is proven for epsilon up to 1 only; got {epsilon:g}. Use calibrate.")
    inner = math.log(2 / delta) * max(math.log(2.5 * steps / (delta * rows)), 0.0)
    return 16 * lipschitz * math.sqrt(steps * inner) / (rows * epsilon) * UP


def broken_probability(epsilon: float, delta: float, candidates: float) -> float:
    """The most probable it is that a mechanism lets a data point be named that could be any of N by guessing.

    e^epsilon / N + delta. A lecture has epsilon / N, which fails already at epsilon = 0, where guessing still
    succeeds with probability 1/N.

    >>> round(broken_probability(1.0, 1e-6, candidates=1e6), 8)
    3.72e-06
    """
    epsilon, delta = check.nonnegative("epsilon", epsilon), check.small_fraction("delta", delta)
    candidates = check.real("candidates", candidates)
    if candidates < 1:
        raise InvalidValue(f"candidates must be at least 1; got {candidates:g}.")
    log = epsilon - math.log(candidates)
    return min((math.exp(min(log + 1e-15 * (epsilon + 1 + abs(log)), 1.0)) + delta) * UP, 1.0)


def basic_composition(budgets: list[tuple[float, float]]) -> tuple[float, float]:
    """Epsilons and deltas add up; true however the steps are chosen.

    >>> basic_composition([(0.25, 1e-6), (0.5, 0.0)])
    (0.75, 1e-06)
    """
    if not budgets:
        raise InvalidValue("budgets must hold at least one (epsilon, delta); got none.")
    for epsilon, delta in budgets:
        check.nonnegative("epsilon", epsilon)
        check.small_fraction("delta", delta)
    return total_up((epsilon, 1) for epsilon, _ in budgets), min(total_up((delta, 1) for _, delta in budgets), 1.0)


def advanced_composition(epsilon: float, delta: float, times: int, slack: float) -> tuple[float, float]:
    """Dwork, Rothblum, Vadhan 2010: epsilon sqrt(2 k ln(1/slack)) + k epsilon (e^epsilon - 1), at k delta + slack.

    >>> round(advanced_composition(0.1, 0.0, 100, slack=1e-5)[0], 2)
    5.85
    """
    epsilon, delta = check.nonnegative("epsilon", epsilon), check.small_fraction("delta", delta)
    times, slack = check.whole("times", times), check.open_fraction("slack", slack)
    growth = math.expm1(min(epsilon, 700))
    total = epsilon * math.sqrt(2 * times * math.log(1 / slack)) + times * epsilon * growth
    return total * UP, min((times * delta + slack) * UP, 1.0)
