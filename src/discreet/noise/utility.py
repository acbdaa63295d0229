"""How far off a noisy answer may be: the lectures' bounds, and exact ones where the distribution is at hand.

`confidence` is the probability with which the error stays within what is returned.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.noise.samplers import rational
from discreet.noise.sparse import split


def laplace_error(scale: float, confidence: float) -> float:
    """|Laplace noise| stays within scale ln(1 / (1 - confidence)); within one scale only 63% of the time.

    >>> round(laplace_error(1.0, 0.95), 3)
    2.996
    """
    return _within_floats(check.positive("scale", scale) * -math.log(_beta(confidence)))


def gaussian_error(sigma: float, confidence: float) -> float:
    """|Gaussian noise| stays within sigma times the normal quantile of (1 + confidence) / 2.

    >>> round(gaussian_error(1.0, 0.95), 3)
    1.96
    """
    return _within_floats(check.positive("sigma", sigma) * -NormalDist().inv_cdf(_beta(confidence) / 2))


def discrete_laplace_error(scale: float, confidence: float) -> int:
    """The least t with Pr[|x| <= t] >= confidence, from Pr[|x| > t] = 2 q^(t + 1) / (1 + q) where q = exp(-1 / scale).

    >>> discrete_laplace_error(1.0, 0.95)
    3
    """
    return _laplace_quantile(check.positive("scale", scale), _beta(confidence))


def discrete_gaussian_error(sigma: float, confidence: float) -> int:
    """A t with Pr[|x| <= t] >= confidence: the least one up to sigma = 10,000, beyond that the continuous bound plus one.

    The tail from m on is at most the continuous Gaussian's from m - 1 on: its sum is below the integral, its normaliser above.

    >>> discrete_gaussian_error(1.0, 0.95)
    2
    """
    sigma, beta = check.positive("sigma", sigma), _beta(confidence)
    bound = math.floor(gaussian_error(sigma, confidence)) + 1
    if sigma > 10_000:
        return bound
    x = np.arange(max(bound, math.ceil(40 * sigma)) + 1, dtype=np.float64)
    weight = np.exp(-x * x / (2 * sigma * sigma))
    weight[1:] *= 2
    beyond = np.cumsum(weight[::-1])[::-1] / weight.sum()  # Pr[|x| >= t], summed from the small end
    return int(np.argmax(np.append(beyond[1:], 0.0) <= beta))


def response_frequencies(answers: Any, categories: int, epsilon: float) -> NDArray[np.float64]:
    """Unbiased shares of each true category from the counts of randomised answers.

    A category is told with probability p by those it is true for, q by the others: share = (told - q) / (p - q). With two
    categories and odds of three to one this is the lecture's p = 2 p_hat - 1/2. Shares may fall outside [0, 1].

    >>> response_frequencies([60, 40], categories=2, epsilon=math.log(3)).round(9).tolist()
    [0.7, 0.3]
    """
    p, q, k = _response(categories, epsilon)
    try:
        counts = np.asarray(answers)
    except (ValueError, TypeError, OverflowError):
        counts = np.asarray(None)
    if counts.shape != (k,) or counts.dtype.kind not in "iuf" or not np.isfinite(counts).all() or (counts < 0).any():
        raise InvalidValue(f"answers must be {k} counts, one per category, none below 0.")
    if counts.sum() <= 0:
        raise InvalidValue("answers must count at least one answer; got none.")
    return np.asarray((counts / counts.sum() - q) / (p - q), dtype=np.float64)


def response_error(people: int, categories: int, epsilon: float, confidence: float) -> float:
    """Each estimated share is within this of the share among the people asked (Hoeffding's inequality).

    >>> round(response_error(people=10_000, categories=2, epsilon=math.log(3), confidence=0.95), 4)
    0.0272
    """
    p, q, _ = _response(categories, epsilon)
    return math.sqrt(math.log(2 / _beta(confidence)) / (2 * _count("people", people))) / (p - q)


def exponential_error(options: int, epsilon: float, sensitivity: float, confidence: float, best: int = 1) -> float:
    """The chosen score is within 2 sensitivity / epsilon ln(options / (1 - confidence) best) of the best (McSherry & Talwar).

    `best` is how many options share the best score. Permute-and-flip does at least as well.

    >>> round(exponential_error(options=4, epsilon=0.1, sensitivity=1, confidence=0.973), 1)
    100.0
    """
    ratio = _options(options, best)
    rate = _rate(epsilon, sensitivity)
    return _within_floats(max(0.0, (math.log(ratio) - math.log(_beta(confidence))) / rate))


def exponential_success(gap: float, options: int, epsilon: float, sensitivity: float, best: int = 1) -> float:
    """With at least this probability the chosen score is less than `gap` below the best.

    The lecture's hair colours: 500 dark, 399 brown, four options, epsilon 0.1; a score above 400 can only be dark.

    >>> round(exponential_success(gap=100, options=4, epsilon=0.1, sensitivity=1), 3)
    0.973
    """
    ratio = _options(options, best)
    rate = _rate(epsilon, sensitivity)
    return max(0.0, 1 - ratio * math.exp(-rate * check.nonnegative("gap", gap)))


def noisy_max_error(options: int, epsilon: float, sensitivity: int, confidence: float) -> int:
    """Report-noisy-max's score is within this many steps of the best: twice the largest of `options` noises, by a union bound.

    >>> noisy_max_error(options=4, epsilon=0.1, sensitivity=1, confidence=0.973)
    200
    """
    scale = 1 / _rate(epsilon, _count("sensitivity", sensitivity))
    return 2 * _laplace_quantile(scale, _beta(confidence) / _count("options", options))


def sparse_vector_error(queries: int, epsilon: float, sensitivity: int, most: int, confidence: float) -> int:
    """Every answer above the threshold by more than this is True and every one below it by more is False, in steps.

    The threshold's noise and `queries` noises, each within its bound but for half of what the confidence leaves.

    >>> sparse_vector_error(queries=100, epsilon=1, sensitivity=1, most=1, confidence=0.95)
    36
    """
    count, times = _count("queries", queries), _count("most", most)
    shares = [_rate(float(share), _count("sensitivity", sensitivity)) for share in split(rational("epsilon", epsilon), most)]
    beta = _beta(confidence) / 2
    threshold = _laplace_quantile(1 / (2 * shares[0]), beta)
    return threshold + _laplace_quantile(times / shares[1], beta / count)


def _laplace_quantile(scale: float, beta: float) -> int:
    q = math.exp(-1 / scale)
    return max(0, math.ceil(_within_floats(scale * (math.log(2 / (1 + q)) - math.log(beta)) - 1)))


def _beta(confidence: float) -> float:
    return 1 - check.open_fraction("confidence", confidence)


def _rate(epsilon: float, sensitivity: float) -> float:
    rate = check.positive("epsilon", epsilon) / (2 * check.positive("sensitivity", sensitivity))
    if rate == 0 or math.isinf(1 / rate):
        raise InvalidValue("epsilon / sensitivity is too small for a float; choose a larger epsilon or a coarser unit.")
    return rate


def _count(name: str, value: int) -> float:
    return check.real(name, check.whole(name, value))


def _within_floats(error: float) -> float:
    if not math.isfinite(error):
        raise InvalidValue("The error is larger than any float; choose less noise or a coarser unit.")
    return error


def _response(categories: int, epsilon: float) -> tuple[float, float, int]:
    k = check.whole("categories", categories, least=2)
    check.real("categories", k)
    other = math.exp(-check.positive("epsilon", epsilon))
    p = 1 / (1 + (k - 1) * other)
    if p <= p * other:
        raise InvalidValue("epsilon is too small to tell the truth from the other answers in float64; choose a larger one.")
    return p, p * other, k


def _options(options: int, best: int) -> float:
    many, shared = _count("options", options), _count("best", best)
    if shared > many:
        raise InvalidValue(f"best must be at most options; got {shared:g} of {many:g}.")
    return many / shared
