"""The sparse vector technique: pay for the answers above a threshold, not for the many below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

from discreet.core import Claim, Pure, Unit, check
from discreet.errors import InvalidValue
from discreet.noise import exact
from discreet.noise.additive import answers, fix
from discreet.noise.grid import Grid
from discreet.noise.samplers import Number, float_above, rational
from discreet.noise.source import open_source


def sparse_vector(
    queries: Iterable[Any], threshold: Number, epsilon: Number, sensitivity: Number, granularity: Number, most: int
) -> Iterator[bool]:
    """For each query's true answer, whether it is above the threshold, with noise; ends after `most` answers of True.

    Algorithm 1 of Lyu, Su & Li (2017), whose `most` = 1 case is AboveThreshold of Dwork & Roth (2014): the threshold is
    noised once, every query afresh, and no number is released. All of it together is epsilon-DP, however many queries
    are False, each of which may be chosen after seeing the answers so far: `queries` may be a generator. The published
    variants that re-use, shrink or leave out one of these noises, or release a noisy number with the same noise, are
    not private.

    >>> list(sparse_vector([0, 1, 900, 0], threshold=450, epsilon=1, sensitivity=1, granularity=1, most=1))
    [False, False, True]
    """
    most = check.whole("most", most)
    grid, share = Grid(granularity), split(rational("epsilon", epsilon), most)
    step = grid.sensitivity(rational("sensitivity", sensitivity))
    bar = grid.step(rational("threshold", threshold, least=-(1 << 2000)))
    try:
        answers = iter(queries)
    except TypeError:
        raise InvalidValue(f"queries must be a list or generator of numbers; got {type(queries).__name__}.") from None
    return _compare(answers, grid, bar, step / share[0], 2 * most * step / share[1], most)


def _compare(
    queries: Iterator[Any], grid: Grid, bar: int, threshold_scale: Fraction, query_scale: Fraction, most: int
) -> Iterator[bool]:
    source = open_source()
    noisy_bar = bar + exact.laplace(threshold_scale, source)
    for answer in queries:
        if isinstance(answer, bool) or not isinstance(answer, Real):
            raise InvalidValue(f"Each query's answer must be a number; got {type(answer).__name__}.")
        above = grid.step(answer) + exact.laplace(query_scale, source) >= noisy_bar
        yield above
        most -= above
        if not most:
            return


@dataclass(frozen=True, slots=True)
class AboveThreshold:
    """The sparse vector technique on a list of true answers: a list of bool, ending with the `most`-th True.

    >>> from discreet.core import record
    >>> alarm = AboveThreshold(threshold=450, epsilon=1, sensitivity=1, granularity=1, most=1, unit=record())
    >>> alarm.run([0, 1, 900, 0])
    [False, False, True]
    >>> alarm.claims()[0].event
    Pure(epsilon=1.0)
    """

    threshold: Fraction
    epsilon: Fraction
    sensitivity: Fraction
    granularity: Fraction
    most: int
    unit: Unit

    def __init__(
        self, threshold: Number, epsilon: Number, sensitivity: Number, granularity: Number, most: int, unit: Unit
    ) -> None:
        fix(self, threshold=rational("threshold", threshold, least=-(1 << 2000)), epsilon=rational("epsilon", epsilon))
        fix(self, sensitivity=rational("sensitivity", sensitivity), granularity=Grid(granularity).granularity)
        fix(self, most=check.whole("most", most), unit=unit)
        self.claims()

    def claims(self) -> tuple[Claim, ...]:
        event = Pure(float_above("epsilon", self.epsilon))
        return answers(self.unit, event, f"one unit moves each query's answer by at most {float(self.sensitivity):g}")

    def run(self, data: Iterable[Any]) -> list[bool]:
        return list(sparse_vector(data, self.threshold, self.epsilon, self.sensitivity, self.granularity, self.most))


def split(epsilon: Fraction, most: int) -> tuple[Fraction, Fraction]:
    """Epsilon for the threshold and for the queries, as 1 : (2 most)^(2/3); any split is private, this one least noisy.

    >>> [float(share) for share in split(Fraction(5), 4)]
    [1.0, 4.0]
    """
    weight = Fraction(round((2.0 * min(most, 1 << 60)) ** (2 / 3) * 1024), 1024)
    return epsilon / (1 + weight), epsilon * weight / (1 + weight)
