"""Releasing group keys: the bound is the least that keeps to delta, and the whole output law keeps to the claim."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest

from discreet.core import Approximate
from discreet.errors import InvalidValue
from discreet.noise.source import seeded_for_tests
from discreet.query.threshold import Threshold


def pmf(groups: Threshold) -> dict[int, mpmath.mpf]:
    """The truncated law, by definition, to 40 digits."""
    with mpmath.workdps(40):
        rate = mpmath.mpf(groups.scale.denominator) / groups.scale.numerator
        weights = {z: mpmath.exp(-abs(z) * rate) for z in range(-groups.bound, groups.bound + 1)}
        total = mpmath.fsum(weights.values())
        return {z: w / total for z, w in weights.items()}


def spent(groups: Threshold, bound: int) -> mpmath.mpf:
    """The most that the groups of one unit may fail with, by definition: as many as possible take `each`."""
    with mpmath.workdps(40):
        rate = mpmath.mpf(groups.scale.denominator) / groups.scale.numerator
        total = mpmath.fsum(mpmath.exp(-abs(z) * rate) for z in range(-bound, bound + 1))
        tail = lambda w: mpmath.fsum(mpmath.exp(-abs(z) * rate) for z in range(bound - w + 1, bound + 1)) / total  # noqa: E731
        many, rest = divmod(groups.sensitivity, groups.each)
        return many * tail(groups.each) + tail(rest)


CASES = [
    (1, 1e-6, 1, None), (1, 1e-6, 10, 1), (0.5, 0.05, 3, 2), (8, 0.1, 3, 2), (Fraction(1, 3), 0.3, 2, 1), (0.1, 1e-3, 7, 3),
    (30, 1e-12, 1, 1), (2, 0.4, 5, 5),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_bound_is_the_least_that_keeps_to_delta(case):
    groups = Threshold(*case)
    assert spent(groups, groups.bound) <= mpmath.mpf(groups.delta)
    assert groups.bound == groups.each or spent(groups, groups.bound - 1) > mpmath.mpf(groups.delta)
    assert isinstance(groups.event, Approximate)
    assert groups.event.delta == groups.delta
    assert groups.epsilon <= Fraction(groups.event.epsilon) <= groups.epsilon * (1 + Fraction(1, 2**52))
    assert groups.scale == groups.sensitivity / groups.epsilon


def output_law(groups: Threshold, law: np.ndarray, count: int) -> dict[int | None, float]:
    found: dict[int | None, float] = {None: 0.0}
    for z, p in zip(range(-groups.bound, groups.bound + 1), law):
        y = count + z if count + z > groups.bound else None
        found[y] = found.get(y, 0.0) + p
    return found


def hockey_stick(groups, law, one, other):
    """sum over all outputs of max(0, Pr[one] - e^epsilon Pr[other]); outputs are one number or nothing per group."""
    tables = []
    for a, b in zip(one, other):
        p, r = output_law(groups, law, a), output_law(groups, law, b)
        outputs = list(p | r)
        tables.append((np.array([p.get(y, 0.0) for y in outputs]), np.array([r.get(y, 0.0) for y in outputs])))
    first = second = np.ones(1)
    for p, r in tables:
        first, second = np.outer(first, p).ravel(), np.outer(second, r).ravel()
    return np.maximum(0, first - math.exp(groups.epsilon) * second).sum()


@pytest.mark.parametrize("each", [1, 2, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(1, 0.05), (0.5, 0.2)])
def test_the_whole_output_law_keeps_to_the_claim_in_both_directions(each, epsilon, delta):
    """Two and three groups, every way to spread one unit over them, rises and falls mixed; near empty and near 2 bound."""
    groups = Threshold(epsilon, delta, sensitivity=3, each=each)
    law = np.array([float(p) for p in pmf(groups).values()])
    worst = 0.0
    for k in (2, 3):
        moves = [w for w in product(range(-each, each + 1), repeat=k) if 0 < sum(map(abs, w)) <= 3]
        starts = {(each,) * k, (2 * groups.bound,) * k, (each, groups.bound, 2 * groups.bound)[-k:]}
        for start, move in product(starts, moves):
            other = [c + w for c, w in zip(start, move)]
            worst = max(worst, hockey_stick(groups, law, start, other), hockey_stick(groups, law, other, start))
        for move in (m for m in moves if min(m) >= 0):  # groups that only this unit is in
            worst = max(worst, hockey_stick(groups, law, move, [0] * k), hockey_stick(groups, law, [0] * k, move))
    assert worst <= delta * (1 + 1e-12)
    assert worst > 0.2 * delta, "the claim is not far from reached"


def test_the_loss_of_a_part_is_its_part():
    """Metric privacy: a unit that moves one count by w < sensitivity loses epsilon w / sensitivity on what both can show."""
    groups = Threshold(1, 0.01, sensitivity=4)
    law = [float(p) for p in pmf(groups).values()]
    for w in range(1, 5):
        one, other = output_law(groups, law, 50 + w), output_law(groups, law, 50)
        common = [y for y in one if one[y] and other.get(y)]
        assert max(abs(math.log(one[y] / other[y])) for y in common) <= w / 4 + 1e-12


def test_nobody_is_never_shown_and_what_is_not_shown_is_zero():
    groups = Threshold(0.5, 0.2, sensitivity=3, each=1)
    kept, noisy = groups.run(np.zeros(50_000, int))
    assert not kept.any()
    kept, noisy = groups.run(np.full(50_000, groups.bound))
    assert (noisy[~kept] == 0).all()
    assert (noisy[kept] > groups.bound).all()
    assert abs(noisy[kept] - groups.bound).max() <= groups.bound
    assert 0.3 < kept.mean() < 0.7


@pytest.mark.parametrize("case", CASES, ids=str)
def test_released_and_interval_are_those_of_the_law(case):
    groups = Threshold(*case)
    law = pmf(groups)
    for count in {0, 1, groups.each, groups.bound, groups.bound + 1, 2 * groups.bound, 2 * groups.bound + 1}:
        exact = float(mpmath.fsum(p for z, p in law.items() if count + z > groups.bound))
        assert exact <= groups.released(count) <= exact * (1 + 1e-9) + 1e-300
    for confidence in (0.5, 0.95, 1 - 1e-9):
        inside = lambda t: float(mpmath.fsum(p for z, p in law.items() if abs(z) <= t))  # noqa: E731
        t = groups.interval(confidence)
        assert inside(t) >= confidence - 1e-15
        assert t == 0 or inside(t - 1) < confidence + 1e-15


@pytest.mark.parametrize("case", [(0.5, 0.05, 3, 2), (1, 1e-6, 1, None), (2, 0.4, 5, 5)], ids=str)
def test_limits_hold_for_every_count_given_that_it_is_shown(case):
    groups, confidence = Threshold(*case), 0.9
    law = {z: float(p) for z, p in pmf(groups).items()}
    for count in range(1, 3 * groups.bound, max(1, groups.bound // 7)):
        shown = [(count + z, p) for z, p in law.items() if count + z > groups.bound]
        low, high = groups.limits([y for y, _ in shown], confidence)
        inside = sum(p for (_, p), a, b in zip(shown, low, high) if a <= count <= b)
        assert inside >= confidence * sum(p for _, p in shown) - 1e-9
    low, _ = groups.limits([groups.bound + 1], confidence)
    assert low[0] == 1, "just above the bound, anyone may be it"


def test_fixed_point_scales():
    """Weights of 2^45 parts; noise past the fast sampler's width is drawn one by one and still fits int64."""
    for epsilon in (0.1, 0.01):
        groups = Threshold(epsilon, 1e-9, sensitivity=2**45, each=2**42)
        kept, noisy = groups.run([0, 2**45, 2**61, 2**62])
        assert kept.tolist()[::2] == [False, True]
        assert noisy.dtype == np.int64
        assert abs(int(noisy[2]) - 2**61) <= groups.bound
        assert groups.released(2**42) * 8 <= 1e-9 * (1 + 1e-9)


def test_runs_repeat_under_a_test_seed_only():
    groups = Threshold(1, 1e-6, 1)
    with seeded_for_tests(b"groups"):
        first = groups.run([20] * 100)[1]
    with seeded_for_tests(b"groups"):
        assert (groups.run([20] * 100)[1] == first).all()


@pytest.mark.parametrize(
    "case",
    [(0, 1e-6, 1), (1, 0, 1), (1, 0.5, 1), (0.01, 0.1, 1), (1, 1e-6, 0), (1, 1e-6, 1.5), (1, 1e-6, 1, 0), ("1", 1e-6, 1),
     (1e-300, 1e-308, 1)],
    ids=str,
)  # fmt: skip
def test_what_makes_no_sense_is_refused(case):
    with pytest.raises(InvalidValue):
        Threshold(*case)


@pytest.mark.parametrize("counts", [3, [1.5], [[1]], None, "x"])
def test_counts_must_be_whole_numbers(counts):
    with pytest.raises(InvalidValue, match="whole numbers"):
        Threshold(1, 1e-6, 1).run(counts)
