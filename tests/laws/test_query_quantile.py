"""Scores of quantiles move by no more than their share of one unit, whatever the histograms and however it is spread."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from discreet.query.quantiles import Quantiles, _Ranks

TARGETS = st.sampled_from([0.0, 0.001, 0.01, 0.05, 0.1, 0.25, 1 / 3, 0.5, 0.75, 0.9, 0.97, 0.9999, 1.0])
SIZES = st.sampled_from([3, 40, 2**20, 2**47, 2**60, 2**62])


@st.composite
def neighbours(draw):
    bins = draw(st.integers(1, 6))
    size = draw(SIZES)
    one = draw(st.lists(st.integers(0, size), min_size=bins, max_size=bins))
    move = draw(st.lists(st.integers(-size, size), min_size=bins, max_size=bins))
    other = [min(max(0, a + d), 2**62) for a, d in zip(one, move)]
    return one, other, sum(abs(a - b) for a, b in zip(one, other))


def depth(low, rank, high, j, bins, parts):
    """How deep a rank is inside [low, high], in parts; the first bin goes down without end, and the last up."""
    ends = [rank - low] * (j > 0) + [high - rank] * (j < bins - 1)
    return parts * min(ends) if ends else 2**61


@given(neighbours(), TARGETS, st.integers(1, 2**45), st.integers(-(2**50), 2**50))
def test_scores_move_by_at_most_the_part_of_the_unit_that_moved(pair, target, sensitivity, offset):
    one, other, moved = pair
    mechanism = Quantiles((target,), epsilon=1, sensitivity=sensitivity)
    q = mechanism.targets[0]
    tables = [_Ranks(np.array([histogram], np.int64)) for histogram in (one, other)]
    end = mechanism._end_epsilon / (2 * sensitivity)
    for epsilon, found in (
        (mechanism._epsilon, [mechanism._value_scores(table, q) for table in tables]),
        (mechanism._end_epsilon, [table.scores(q, offset, end) for table in tables]),
    ):
        (first, rate), (second, same) = found
        assert rate == same
        most = max(abs(a - b) for a, b in zip(first[0].tolist(), second[0].tolist()))
        assert most * rate <= epsilon * Fraction(moved, sensitivity) / 2
        assert max(abs(s) for s in first[0].tolist()) <= 2**61


@given(neighbours(), TARGETS)
def test_scores_are_the_depth_in_rank_by_definition(pair, target):
    histogram = [min(weight, 2**30) for weight in pair[0]]
    q = Quantiles((target,), 1, 1).targets[0]
    scores, _ = _Ranks(np.array([histogram], np.int64)).scores(q, 0, Fraction(1))
    rank = q * sum(histogram)
    for j, score in enumerate(scores[0].tolist()):
        low, high = sum(histogram[:j]), sum(histogram[: j + 1])
        assert score == depth(low, rank, high, j, len(histogram), q.denominator)


@given(neighbours(), st.sampled_from([0.0, 0.01, 0.04]), st.integers(0, 2**31))
def test_near_an_end_the_rank_asked_for_stays_away_from_it(pair, target, away):
    histogram = [min(weight, 2**30) for weight in pair[0]]
    q = Quantiles((target,), 1, 1).targets[0]
    total = sum(histogram)
    rank = max(q * total, min(Fraction(away), Fraction(total, 2)))
    scores, _ = _Ranks(np.array([histogram], np.int64)).edge_scores(q, away, Fraction(1))
    mirrored, _ = _Ranks(np.array([histogram[::-1]], np.int64)).edge_scores(1 - q, away, Fraction(1))
    for j, score in enumerate(scores[0].tolist()):
        low, high = sum(histogram[:j]), sum(histogram[: j + 1])
        assert score == depth(low, rank, high, j, len(histogram), 2 * q.denominator)
    assert mirrored[0].tolist()[::-1] == scores[0].tolist()
