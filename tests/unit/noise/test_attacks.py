"""Published attacks: each breaks a textbook sampler (in naive.py) and gets no further than the claim with ours.

Each compares how often one fixed event happens in two neighbouring worlds; `epsilon_at_least` holds with confidence
1 - 1e-7, which is also each test's false-alarm rate.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from discreet.core import record
from discreet.noise import BoundedSum, GridGaussian, GridLaplace
from discreet.noise.source import seeded_for_tests
from unit.noise import naive
from unit.noise.tools import epsilon_at_least

RUNS = 8000
CLAIMED = 1.0


def refuted(event, world0, world1):
    """The lower bound on epsilon that an event gives."""
    return epsilon_at_least(int(event(world0).sum()), int(event(world1).sum()), RUNS)


def ours(value, granularity=2.0**-10):
    """The same release through the grid, many times: each number by itself has epsilon 1 for a sensitivity of 1."""
    mechanism = GridLaplace(scale=1.0, sensitivity=1.0, granularity=granularity, size=RUNS, unit=record())
    with seeded_for_tests(b"attacked %a" % value):
        return mechanism.run(np.full(RUNS, value))


# Mironov 2012: the noise that floats can take has holes, and the holes are elsewhere for another true value.


def reachable_laplace(outputs, value):
    """Whether value + naive noise can be this very float: try the uniform floats around the inverse."""
    z = outputs - value
    k = np.round(np.exp(-np.abs(z)) / naive.STEP)[:, None] + np.arange(-8, 9)
    noise = naive.laplace_of(np.clip(k, 1, 2.0**53) * naive.STEP, np.sign(z)[:, None], 1.0)
    return (value + noise == outputs[:, None]).any(axis=1)


def test_mironov_porous_floats():
    only_zero = lambda y: reachable_laplace(y, 0.0) & ~reachable_laplace(y, 1.0)  # noqa: E731
    world0, world1 = (naive.naive_laplace(value, 1.0, RUNS) for value in (0.0, 1.0))
    assert reachable_laplace(world0, 0.0).mean() > 0.99, "the inverse should find what the sampler did"
    assert refuted(only_zero, world0, world1) > 3 * CLAIMED
    assert refuted(only_zero, ours(0.0), ours(1.0)) <= CLAIMED


def test_every_output_of_ours_is_possible_in_every_world():
    for value in (0.0, 1.0, 1 / 3, math.pi, 1e-300):
        steps = ours(value) * 2.0**10
        assert np.array_equal(steps, np.round(steps)), "off the public grid"


# Haney et al. 2022: the precision of the output tells the magnitude of what was added.


def finer_than_half(y):
    return (np.abs(y) < 0.5) & (np.floor(y * 2.0**53) != y * 2.0**53)


def test_haney_precision():
    world0, world1 = (naive.naive_laplace(value, 1.0, RUNS) for value in (0.0, 1.0))
    assert refuted(finer_than_half, world0, world1) > 3 * CLAIMED
    assert refuted(finer_than_half, ours(0.0), ours(1.0)) <= CLAIMED


def lowest_bit(y):
    """The place of the last binary digit that is not 0."""
    whole, exponent = np.frexp(y)
    digits = (whole * 2.0**53).astype(np.int64)
    return exponent - 53 + np.log2((digits & -digits).astype(float))


def test_haney_granularity_of_ours_is_public():
    with_tiny = np.concatenate([ours(value) for value in (0.0, 2.0**-40, 1 / 3)])
    assert lowest_bit(with_tiny[with_tiny != 0]).min() == -10
    for granularity in (2.0**-20, 2.0**-4):
        found = ours(1 / 3, granularity)
        assert lowest_bit(found[found != 0]).min() >= math.log2(granularity)


# Casacuberta et al. 2022: a sum of floats moves by more than its formula says.


def reordered():
    """The same rows twice, in [0, 1]: small ones are lost in float32 when they come after the large ones."""
    large, small = np.ones(1024), np.full(1 << 17, 0.99 * 2.0**-14)
    return np.concatenate([small, large]), np.concatenate([large, small])


def test_casacuberta_reordered_sum():
    first, second = reordered()
    world0, world1 = naive.naive_sum(first, 1.0, RUNS), naive.naive_sum(second, 1.0, RUNS)
    assert refuted(lambda y: y > 1028, world0, world1) > 3 * CLAIMED
    for granularity in (2.0**-14, 2.0**-20, 1e-6):
        mechanism = BoundedSum(0, 1, granularity, "laplace", 1.0, record())
        assert mechanism.total(first) == mechanism.total(second)


def test_casacuberta_rounding_at_a_power_of_two():
    """One row more lifts the float32 sum past 1024, where every later row rounds to twice itself."""
    later = np.full(1 << 14, 1.01 * 2.0**-14)
    without, with_it = np.concatenate([np.ones(1023), later]), np.concatenate([np.ones(1024), later])
    world0, world1 = naive.naive_sum(without, 0.25, RUNS), naive.naive_sum(with_it, 0.25, RUNS)  # claims epsilon 4
    assert refuted(lambda y: y > 1025, world0, world1) > 4
    for granularity in (2.0**-14, 2.0**-20, 1e-6):
        mechanism = BoundedSum(0, 1, granularity, "laplace", 1.0, record())
        assert mechanism.total(with_it) - mechanism.total(without) <= mechanism.sensitivity()


def test_one_nan_moves_one_contribution():
    mechanism = BoundedSum(-1, 2, 0.5, "laplace", 1.0, record())
    rows = [0.5, 1.5, -1.0]
    for bad in (math.nan, math.inf, -math.inf, 1e300):
        assert abs(mechanism.total([*rows, bad]) - mechanism.total(rows)) <= mechanism.sensitivity()


# Jin et al. 2022: Box-Muller pairs can be inverted; only some pairs of floats are images of uniform floats.


def reachable_gaussian(pair, value):
    """Whether (value + x, value + y) can be these very floats for uniform floats near the inverse."""
    x, y = pair[0] - value, pair[1] - value
    around = np.arange(-4, 5)
    u = np.round(np.exp(-(x * x + y * y) / 2) / naive.STEP)[:, None] + around
    v = np.round((np.arctan2(y, x) / (2 * np.pi) % 1.0) / naive.STEP)[:, None] + around
    a, b = naive.box_muller_of(np.clip(u, 1, 2.0**53)[:, :, None] * naive.STEP, v[:, None, :] * naive.STEP)
    return ((value + a == pair[0][:, None, None]) & (value + b == pair[1][:, None, None])).any(axis=(1, 2))


def gaussian_pair(value):
    mechanism = GridGaussian(sigma=1.0, sensitivity=1.0, granularity=2.0**-10, size=2 * RUNS, unit=record())
    with seeded_for_tests(b"pairs %a" % value):
        found = mechanism.run(np.full(2 * RUNS, value))
    return found[:RUNS], found[RUNS:]


def test_jin_inverted_gaussian():
    only_zero = lambda pair: reachable_gaussian(pair, 0.0) & ~reachable_gaussian(pair, 1.0)  # noqa: E731
    world0, world1 = (naive.naive_gaussian(value, 1.0, RUNS) for value in (0.0, 1.0))
    assert reachable_gaussian(world0, 0.0).mean() > 0.5, "the inverse should mostly find what the sampler did"
    assert refuted(only_zero, world0, world1) > 3 * CLAIMED
    assert refuted(only_zero, gaussian_pair(0.0), gaussian_pair(1.0)) <= CLAIMED


@pytest.mark.parametrize("value", [0.0, 1.0, 1 / 3])
def test_gaussian_outputs_of_ours_lie_on_one_public_grid(value):
    steps = np.concatenate(gaussian_pair(value)) * 2.0**10
    assert np.array_equal(steps, np.round(steps))
