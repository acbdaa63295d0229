"""What the noise tests share: exact laws, decision trees walked to the end, and a lower bound on epsilon from counts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from scipy import stats

from discreet.noise import exact
from discreet.noise.source import Source, replaced_for_tests


class Unscripted(Exception):
    """The script is over and one more draw is wanted: its outcomes and their probabilities."""

    def __init__(self, outcomes: list[tuple[Any, float]]) -> None:
        self.outcomes = outcomes


class Restarted(Exception):
    """A round of rejection failed, and the next one starts from the same state."""


class Script(Source):
    """Plays given outcomes instead of random ones, then says what the next draw would be.

    With `rounds`, the first uniform integer past that many ends the walk: where a sampler rejects and starts again from
    the same state, its law is that of one round given that it succeeds.
    """

    repeatable = True

    def __init__(self, outcomes: tuple[Any, ...] = (), rounds: int | None = None) -> None:
        super().__init__()
        self.outcomes = list(outcomes)
        self.rounds = math.inf if rounds is None else rounds

    def next(self, choices: list[tuple[Any, float]]) -> Any:
        if len(choices) == 1:
            return choices[0][0]
        if not self.outcomes:
            raise Unscripted(choices)
        return self.outcomes.pop(0)

    def below(self, bound: int) -> int:
        self.rounds -= 1
        if self.rounds < 0:
            raise Restarted
        return self.next([(i, 1 / bound) for i in range(bound)])

    def bits(self, count: int) -> int:
        return self.next([(i, 0.5**count) for i in range(1 << count)])

    def coin(self, probability: float) -> bool:
        return self.next([(heads, p) for heads, p in ((True, probability), (False, 1 - probability)) if p > 0])


@contextmanager
def scripted_coins() -> Iterator[None]:
    """Bernoulli(exp(-x)), whose own tree is tested by itself, becomes one draw of the script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_bernoulli_exp_of_fraction", lambda above, below, source: source.coin(math.exp(-above / below)))
        patch.setattr(exact, "bernoulli_exp", lambda exponent, source: source.coin(math.exp(-exponent)))
        yield


def walk(
    run: Callable[[], Any], smallest: float = 1e-9, longest: int = 10**6, rounds: int | None = None
) -> tuple[dict[Any, float], float]:
    """The probability of every outcome of `run`, by walking its whole decision tree; and how much was cut off.

    Branches less likely than `smallest` or with more than `longest` draws are cut off; a failed round is left out.
    """
    masses: dict[Any, float] = defaultdict(float)
    left = 0.0
    todo: list[tuple[tuple[Any, ...], float]] = [((), 1.0)]
    while todo:
        path, probability = todo.pop()
        try:
            with replaced_for_tests(Script(path, rounds)):
                outcome = run()
        except Restarted:
            continue
        except Unscripted as branch:
            if probability < smallest or len(path) >= longest:
                left += probability
            else:
                todo += [((*path, value), probability * p) for value, p in branch.outcomes]
        else:
            masses[outcome] += probability
    return dict(masses), left


def flip_law(scores: Any, rate: float) -> np.ndarray:
    """The law of permute-and-flip by definition: i shows heads, and no other before it in the random order. With coins p_j, the
    integral over the place t of i in [0, 1] of p_i times the product over the others of 1 - t p_j, a polynomial."""
    coins = np.exp(rate * (np.asarray(scores, float) - np.max(scores)))
    place, weight = np.polynomial.legendre.leggauss(len(coins))
    missed = 1 - np.outer(coins, (place + 1) / 2)
    each = [np.prod(np.delete(missed, i, axis=0), axis=0) @ weight / 2 for i in range(len(coins))]
    return np.asarray(coins * each)


def laplace_pmf(scale: float, x: Any) -> Any:
    return np.exp(-np.abs(x) / scale) * np.tanh(0.5 / scale)


def gaussian_pmf(sigma: float, x: Any) -> Any:
    support = np.arange(-math.ceil(40 * sigma) - 1, math.ceil(40 * sigma) + 2, dtype=float)
    return np.exp(-np.square(np.asarray(x, float)) / (2 * sigma**2)) / np.exp(-np.square(support) / (2 * sigma**2)).sum()


def binned_chi2(values: np.ndarray, pmf: Callable[[Any, Any], Any], spread: float, bins: int = 24) -> float:
    """The p-value of a chi-squared test of whole numbers against a law, in bins of nearly equal probability."""
    reach = math.ceil(40 * spread) + 2
    x = np.arange(-reach, reach + 1)
    below = np.cumsum(pmf(spread, x))
    cuts = np.unique(np.searchsorted(below, np.arange(1, bins) / bins))
    label = np.searchsorted(cuts, np.arange(x.size), side="right")
    expected = np.bincount(label, weights=pmf(spread, x)) * values.size
    return chi2(np.bincount(label[np.clip(values + reach, 0, x.size - 1)], minlength=expected.size), expected)


def chi2(seen: Any, expected: Any) -> float:
    """The p-value of seen counts; cells expected fewer than ten times are put together."""
    seen, expected = np.asarray(seen, float), np.asarray(expected, float)
    small = expected < 10
    if small.any():
        seen = np.append(seen[~small], seen[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
        if expected[-1] == 0:
            assert seen[-1] == 0, "an outcome that cannot happen was seen"
            seen, expected = seen[:-1], expected[:-1]
    return float(stats.chi2.sf(((seen - expected) ** 2 / expected).sum(), len(seen) - 1))


def epsilon_at_least(one: int, other: int, runs: int, alpha: float = 1e-7, delta: float = 0.0) -> float:
    """A lower bound on epsilon from how often an event, fixed beforehand, was seen in `runs` runs of each world.

    Clopper & Pearson on both rates, alpha / 8 for each of two ends, two directions and the event's complement.
    """
    best = 0.0
    for a, b in ((one, other), (other, one), (runs - one, runs - other), (runs - other, runs - one)):
        low = stats.beta.ppf(alpha / 8, a, runs - a + 1) if a else 0.0
        high = stats.beta.ppf(1 - alpha / 8, b + 1, runs - b) if b < runs else 1.0
        if low > delta:
            best = max(best, math.log((low - delta) / high))
    return best
