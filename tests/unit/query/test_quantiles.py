"""Quantiles over public bins: what is claimed, exactly on small domains; edges, intervals and refusals."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from discreet.accounting import curve
from discreet.core import NoisyMax, Pure, Repeat, Sequence
from discreet.errors import InvalidValue
from discreet.noise.source import seeded_for_tests
from discreet.query.brackets import edges, reach
from discreet.query.quantiles import Quantiles, _Ranks
from unit.noise.tools import flip_law


def loss(mechanism, target, one, other):
    """The privacy losses of all bins, from the law by definition."""
    laws = []
    for histogram in (one, other):
        scores, rate = mechanism._value_scores(_Ranks(np.array([histogram])), target)
        weights = np.exp((scores[0] - scores[0].max()) * float(rate))
        laws.append(weights / weights.sum())
    return np.log(laws[0] / laws[1])


@pytest.mark.parametrize("target", [0, 0.25, 0.5, 0.9, 1])
def test_the_loss_has_the_range_that_is_claimed_part_by_part(target):
    """All histograms of three bins with weights up to 3 against all others: range at most epsilon x distance / sensitivity."""
    mechanism = Quantiles((target,), epsilon=2, sensitivity=2, interval_share=0)
    q, worst = mechanism.targets[0], 0.0
    tables = list(product(range(4), repeat=3))
    for one, other in product(tables, tables):
        distance = sum(abs(a - b) for a, b in zip(one, other))
        if distance:
            worst = max(worst, float(np.ptp(loss(mechanism, q, one, other))) / distance)
    assert worst <= 1 + 1e-9
    assert worst > 0.45, "the claim is not far from reached"


@pytest.mark.parametrize("target", [0, 0.25, 0.5, 0.9, 1])
def test_one_target_by_permute_and_flip_loses_no_more_than_its_part(target):
    """The same pairs, by the law of permute-and-flip: the loss of every bin is at most epsilon x distance / sensitivity."""
    mechanism = Quantiles((target,), epsilon=2, sensitivity=2, interval_share=0)
    q, worst = mechanism.targets[0], 0.0
    tables = list(product(range(4), repeat=3))
    laws = {}
    for table in tables:
        scores, rate = mechanism._value_scores(_Ranks(np.array([table])), q)
        laws[table] = np.log(flip_law(scores[0], float(rate)))
    for one, other in product(tables, tables):
        distance = sum(abs(a - b) for a, b in zip(one, other))
        if distance:
            worst = max(worst, float(np.abs(laws[one] - laws[other]).max()) / distance)
    assert worst <= 1 + 1e-9
    assert worst > 0.45, "the claim is not far from reached"


def test_losses_of_groups_add_up_to_the_whole():
    """A unit spread over two groups: the losses of independent choices add, and so do their ranges."""
    mechanism = Quantiles((0.5,), epsilon=1, sensitivity=3, interval_share=0)
    first = loss(mechanism, Fraction(1, 2), (2, 0, 1), (0, 0, 1))
    second = loss(mechanism, Fraction(1, 2), (0, 4, 0), (0, 4, 1))
    assert np.ptp(np.add.outer(first, second)) <= 1 + 1e-12


def test_events_add_up_to_epsilon():
    mechanism = Quantiles((0.1, 0.5, 0.9), epsilon=1, sensitivity=5, interval_share=0.25)
    value, around = mechanism.events
    assert isinstance(value, Repeat)
    assert isinstance(around, Repeat)
    assert (value.times, around.times) == (3, 3)
    assert isinstance(around.event, Pure)
    assert curve(Sequence(mechanism.events)).epsilon(0) == pytest.approx(1)
    assert Quantiles((0.5,), 1, 1, interval_share=0).events == (NoisyMax(1.0),)
    assert curve(Sequence(Quantiles((0.5,), 1, 1).events)).epsilon(0) == pytest.approx(1)


def test_values_and_intervals_of_plenty_of_data():
    rng = np.random.default_rng(5)
    histograms = rng.integers(50, 100, (20, 256))
    below = np.cumsum(histograms, axis=1)
    targets = (0.9, 0.1, 0.5, 0.0, 1.0)
    found = Quantiles(targets, epsilon=4, sensitivity=1).run(histograms)
    assert found.value.shape == found.low.shape == found.high.shape == (20, 5)
    for i, q in enumerate(targets):
        truth = np.argmax(below >= q * below[:, -1:], axis=1)
        assert (abs(found.value[:, i] - truth) <= 4).all()
        assert (found.low[:, i] <= found.value[:, i]).all()
        assert (found.high[:, i] >= found.value[:, i]).all()
        assert (found.high[:, i] - found.low[:, i] < 60).all()
    assert (np.diff(found.value[:, [3, 1, 2, 0, 4]], axis=1) >= 0).all()


def test_minimum_and_maximum_do_not_fall_outside_the_data():
    histogram = np.zeros((200, 1024), int)
    histogram[:, 400:600] = 10
    found = Quantiles((0, 1), epsilon=1, sensitivity=1).run(histogram)
    assert np.mean((found.value >= 400) & (found.value < 600)) > 0.9
    assert np.mean(found.low[:, 0] <= 400) > 0.9
    assert np.mean(found.high[:, 1] >= 599) > 0.9


@pytest.mark.parametrize("people", [0, 1, 30, 3000])
@pytest.mark.parametrize("target", [0, 0.02, 0.5, 0.8, 1])
def test_intervals_hold_the_true_bin_however_few_people_there_are(people, target):
    """Coverage at least 95%: below 90% of 2,000 has probability under 1e-20."""
    rng = np.random.default_rng(people)
    histogram = np.bincount(np.minimum(rng.geometric(0.02, people), 299), minlength=300)
    with seeded_for_tests(b"cover"):
        found = Quantiles((target,), epsilon=1, sensitivity=1).run(np.tile(histogram, (2000, 1)))
    upto = np.cumsum(histogram)
    rank = target * people
    true = [j for j in range(300) if upto[j] - histogram[j] <= rank <= upto[j] and (histogram[j] or not people)]
    inside = (found.low[:, 0] <= min(true)) & (found.high[:, 0] >= max(true)) if people else found.low[:, 0] <= found.high[:, 0]
    assert inside.mean() > 0.9


@pytest.mark.parametrize("target", [0.1, 0.5, 0.9])
def test_intervals_are_about_twice_what_they_must_be(target):
    """1,000 values in as many bins: the interval against the spread of the values that come out, and how often it holds the
    true bin, of 1,000. Ends chosen like the value, 160 ranks off, made it twenty times as wide."""
    spread = np.sort(np.random.default_rng(4).normal(500, 90, 1000)).astype(int)
    histogram = np.bincount(np.clip(spread, 0, 1023), minlength=1024)
    with seeded_for_tests(b"width"):
        found = Quantiles((target,), epsilon=1, sensitivity=1).run(np.tile(histogram, (1000, 1)))
    true = np.argmax(np.cumsum(histogram) >= target * 1000)
    inside = (found.low[:, 0] <= true) & (true <= found.high[:, 0])
    assert inside.mean() > 0.92
    off = np.subtract(*np.quantile(found.value[:, 0], [0.975, 0.025])) + 1
    assert np.median(found.high - found.low + 1) <= 2 * off + 3, "cells of 2, 4, 8 … bins"


def test_cells_are_narrow_near_the_value_and_cover_all_bins():
    ends = edges(np.array([0, 7, 12, 99]), 100)
    assert (ends[:, 0] == 0).all()
    assert (ends[:, -1] == 100).all()
    assert (np.diff(ends, axis=1) >= 0).all()
    assert ends[2].tolist() == [0, 0, 0, 0, 5, 9, 11, 12, 13, 14, 16, 20, 28, 44, 76, 100]


@pytest.mark.parametrize("case", [(5, 16, 0.5, 16.0, 0.025), (1, 20, 0.1, 3.0, 0.025), (10, 11, 0.9, 40.0, 0.01),
                                  (20, 1, 0.5, 0.7, 0.05), (5, 5, 0.0, 2.0, 0.025), (5, 5, 1.0, 2.0, 0.01)])  # fmt: skip
def test_the_reach_of_weighted_sums_of_noise(case):
    """200,000 draws of the noise: passed by no more than beta; and by a third less, more often."""
    left, right, q, scale, beta = case
    draw = np.random.default_rng(1)
    stop = 1 - np.exp(-1 / scale)
    noise = [
        sum(draw.geometric(stop, 200_000) - draw.geometric(stop, 200_000) for _ in range(count)) for count in (left, right)
    ]
    together, most = (1 - q) * noise[0] - q * noise[1], reach(left, right, Fraction(q).limit_denominator(100), scale, beta)
    assert np.mean(together > most) < beta + 0.0016
    assert np.mean(together > 0.66 * most) > beta
    assert reach(left, right, Fraction(q).limit_denominator(100), scale, 1e-13) > 2 * most


def test_a_good_deal_more_accurate_than_a_plain_exponential_mechanism():
    """How far the median's bin is off, against scores -|below - above| / 2 computed bin by bin. Of 3,000 the standard error of
    either mean is below a fiftieth of it, and the means are a factor 1.6 apart."""
    from discreet.noise import exponential_rows

    rng = np.random.default_rng(2)
    histogram = np.bincount(np.clip(rng.normal(128, 30, 300).astype(int), 0, 255), minlength=256)
    rows = np.tile(histogram, (3000, 1))
    upto = np.cumsum(rows, axis=1)
    plain = -np.abs(2 * upto - rows - upto[:, -1:])
    with seeded_for_tests(b"accuracy"):
        found = Quantiles((0.5,), epsilon=0.5, sensitivity=1, interval_share=0).run(rows).value[:, 0]
        other = exponential_rows(plain, 0.5, 2)
    truth = np.flatnonzero(upto[0] >= 150)[0]
    assert np.abs(found - truth).mean() <= 0.8 * np.abs(other - truth).mean()


def test_heavy_bins_are_found_for_every_target_inside_them():
    histogram = np.zeros((50, 64), int)
    histogram[:, 0], histogram[:, 40:] = 6000, 160
    found = Quantiles((0.1, 0.3, 0.5, 0.9), epsilon=1, sensitivity=1).run(histogram)
    assert (found.value[:, :3] == 0).all()
    assert (found.value[:, 3] > 40).all()


def test_fixed_point_and_absurd_weights():
    histogram = np.array([[1, 2, 3, 2, 1]]) << 45
    assert Quantiles((0.5,), epsilon=10, sensitivity=2**38).run(histogram).value.tolist() == [[2]]
    found = Quantiles((0.25, 0, 1), epsilon=1, sensitivity=1).run(np.array([[2**63 - 1, -(2**63), 2**62]]))
    assert found.value.min() >= 0
    assert found.value.max() <= 2
    assert Quantiles((0.5,), 1, 1).run(np.zeros((0, 7), int)).value.shape == (0, 1)
    assert Quantiles((0.5,), 1, 1).run([[5]]) == ([[0]], [[0]], [[0]])


def test_errors_are_those_of_the_exponential_mechanism():
    mechanism = Quantiles((0.5, 0), epsilon=1, sensitivity=1)
    assert mechanism.rank_error(0, 1000) > mechanism.rank_error(0.5, 1000)
    found = Quantiles((0.5,), 1, 1, interval_share=0).run([[1, 2, 3]])
    assert (found.low.tolist(), found.high.tolist()) == ([[0]], [[2]])


@pytest.mark.parametrize(
    "case",
    [((), 1, 1), ((1.5,), 1, 1), ((-0.1,), 1, 1), ((float("nan"),), 1, 1), ((0.5,), 0, 1), ((0.5,), 1, 0), ((0.5,), 1, 1, 1),
     ((0.5,), 1, 1, -0.1), (0.5, 1, 1), ("0.5", 1, 1), ((0.5,), 1, 1, 0.2, 1)],
    ids=str,
)  # fmt: skip
def test_what_makes_no_sense_is_refused(case):
    with pytest.raises(InvalidValue):
        Quantiles(*case)


@pytest.mark.parametrize("histograms", [3, [1, 2], [[]], [[0.5]], None])
def test_histograms_must_be_rows_of_whole_numbers(histograms):
    with pytest.raises(InvalidValue, match="whole numbers"):
        Quantiles((0.5,), 1, 1).run(histograms)
