"""One noise for several numbers: its law, its tails in exact digits, what is claimed, edges and refusals."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest

from discreet import connect, record, user
from discreet.core import Pure
from discreet.errors import InvalidValue
from discreet.noise.source import open_source, seeded_for_tests
from discreet.query.joint import MOST_NUMBERS, Joint, above, above_bounds, box, common_steps, least
from discreet.query.threshold import Threshold
from unit.noise.tools import chi2

ALPHA = 1e-7  # how often a right sampler would fail one check
SCALES = [Fraction(1, 3), Fraction(2), Fraction(9)]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_law_of_the_vectors(size):
    """Every vector near zero against exp(-max |z_i| / scale), and all others together."""
    scale, reach, runs = Fraction(3, 2), 2, 200_000
    with seeded_for_tests(b"box"):
        drawn = box(scale, size, runs, open_source())
    near = list(product(range(-reach, reach + 1), repeat=size))
    k = np.arange(400)
    points = (2 * k + 1.0) ** size - np.abs(2 * k - 1.0) ** size * (k > 0)  # whose largest number is k

    def law(rate):
        weights, total = [np.exp(-max(map(abs, z)) * rate) for z in near], points @ np.exp(-k * rate)
        return np.array([*weights, total - sum(weights)]) / total * runs

    code = {z: i for i, z in enumerate(near)}
    seen = np.bincount([code.get(tuple(z), len(near)) for z in drawn.tolist()], minlength=len(near) + 1)
    assert chi2(seen, law(1 / float(scale))) > ALPHA
    assert chi2(seen, law(1.05 / float(scale))) < ALPHA, "a scale off by a twentieth is seen"


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("scale", [Fraction(2), Fraction(40), Fraction(10**9, 7)])
def test_law_of_the_largest_number(scale, size):
    """Pr[max |z_i| <= k] in 20 cells of about the same probability; a scale off by a fiftieth is seen."""
    runs = 100_000
    with seeded_for_tests(b"largest"):
        drawn = np.abs(box(scale, size, runs, open_source())).max(axis=1)

    def beyond(k, s):  # of the gamma law of wide noise; of narrow noise term by term
        if s > 1000:
            return float(mpmath.gammainc(size, (k + 0.5) / s, regularized=True))
        j = np.arange(3000)
        weights = ((2 * j + 1.0) ** size - np.abs(2 * j - 1.0) ** size * (j > 0)) * np.exp(-j / s)
        return weights[k + 1 :].sum() / weights.sum()

    def chance(s):
        tails = np.array([1.0, *(beyond(int(cut), s) for cut in cuts), 0.0])
        return chi2(np.histogram(drawn, [-1, *(cuts + 0.5), 2**62])[0], -np.diff(tails) * runs)

    cuts = np.unique(np.quantile(drawn, np.arange(1, 20) / 20).astype(np.int64))
    assert chance(float(scale)) > ALPHA
    if scale > 2:
        assert chance(1.02 * float(scale)) < ALPHA


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_tails_are_those_of_the_law(scale, size):
    with mpmath.workdps(50):
        q = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator)
        ks = range(int(scale) * 60 * size + 60 * size)
        whole = mpmath.fsum((2 * k + 1) ** size * q**k for k in ks)
        for t in (0, 1, int(4 * scale), int(20 * scale)):
            tail = mpmath.fsum((k - t) * (2 * k + 1) ** (size - 1) * q**k for k in ks if k > t) / whole
            assert float(above(t, float(scale), size)) == pytest.approx(float(tail), rel=1e-9)
            lo, hi = above_bounds(t, scale, size, 64)
            assert lo <= tail * 2**64 <= hi
            assert hi - lo <= 4


@pytest.mark.parametrize("size", [2, 4, MOST_NUMBERS])
def test_tails_of_wide_noise_are_those_of_the_gamma_law(size):
    scale = float(2**41)
    for x in (0.1, 2.0, 9.0, 25.0):
        exact = (mpmath.gammainc(size + 1, x, regularized=True) - x / size * mpmath.gammainc(size, x, regularized=True)) / 2
        assert float(above(int(x * scale), scale, size)) == pytest.approx(float(exact), rel=1e-6)
        lo, hi = above_bounds(int(x * scale), Fraction(2**41), size, 128)
        assert lo / 2**128 == pytest.approx(float(exact), rel=1e-6)
        assert hi - lo <= 4


def test_error_is_the_least_that_holds():
    for size, confidence in product((1, 2, 6), (0.5, 0.95, 0.999)):
        noise = Joint((1,) * size, Fraction(1, 5))
        t, scale = noise.error(confidence), float(noise.scale)
        assert 2 * above(t, scale, size) <= 1 - confidence < 2 * above(t - 1, scale, size)


def test_numbers_of_other_sizes_come_in_common_steps():
    assert common_steps((4, 4, 4)) == ((1, 1, 1), 4)
    times, most = common_steps((3, 7))
    assert all(t * s <= most for t, s in zip(times, (3, 7)))
    assert min(t * s for t, s in zip(times, (3, 7))) > 0.99 * most
    noise = Joint((100, 10_000), epsilon=2)
    assert noise.times == (100, 1)
    assert noise.event == Pure(2.0)
    with seeded_for_tests(b"steps"):
        found = noise.run([[10**25] * 50, [-5] * 50])
    assert found.shape == (2, 50)
    assert all(abs(int(value) - 10**27) < 5_000 * 50 for value in found[0])
    assert all(abs(int(value) + 5) < 5_000 * 50 for value in found[1])
    narrow = Joint((1,) * MOST_NUMBERS, 100)
    assert narrow.scale >= 1000, "narrow noise is drawn in finer steps: few of its boxes would be kept"
    assert narrow.run([[0] * 100] * MOST_NUMBERS).shape == (MOST_NUMBERS, 100)
    assert Joint((1, 1), 1).run([[], []]).shape[0] == 2


def test_least_finds_the_first_that_is_enough():
    for wanted in (*range(40), 2**50 + 17):
        assert least(lambda n, wanted=wanted: n >= wanted) == wanted
    assert least(lambda n: n >= 5, 9) == 9


@pytest.mark.parametrize(
    "case", [((), 1), ((0,), 1), ((1.5,), 1), ((1,), 0), ((1,) * (MOST_NUMBERS + 1), 1), ((2**60, 1), 1), (3, 1)], ids=str
)
def test_what_makes_no_sense_is_refused(case):
    with pytest.raises(InvalidValue):
        Joint(*case)


# ---- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("each", [1, 2])
@pytest.mark.parametrize("numbers", [2, 3])
def test_the_bound_of_shared_noise_is_the_least_that_keeps_to_delta(numbers, each):
    groups = Threshold(1, 0.01, 3, each, numbers)

    def spent(bound):
        tail = [float(above(bound - w, float(groups.scale), numbers)) for w in range(each + 1)]
        many, rest = divmod(3, each)
        return (many * (tail[each] - tail[0]) + tail[rest] - tail[0]) / (1 - 2 * tail[0])

    assert spent(groups.bound) <= 0.01 < spent(groups.bound - 1)


def test_the_whole_law_of_a_shown_vector_keeps_to_the_claim():
    """Counts and sums of one group, 0 to 2 people with values -1, 0 or 1: hockey-stick divergences at epsilon, both ways."""
    groups = Threshold(1, 0.05, 1, 1, 2)
    reach = 39
    axis = np.arange(-40, 41)
    law = np.exp(-np.maximum(np.abs(axis)[:, None], np.abs(axis)[None, :]) / float(groups.scale))
    law[np.abs(axis) > groups.bound] = 0
    law /= law.sum()

    def output(count, total):
        found = {}
        for i, j in product(range(-reach, reach + 1), repeat=2):
            y = (count + i, total + j) if count + i > groups.bound else None
            found[y] = found.get(y, 0.0) + law[i + 40, j + 40]
        return found

    worst = 0.0
    for value in (-1, 0, 1):
        for count, total in ((0, 0), (1, 1), (groups.bound, 2)):
            one, other = output(count, total), output(count + 1, total + value)
            for a, b in ((one, other), (other, one)):
                worst = max(worst, sum(max(0.0, p - np.e * b.get(y, 0.0)) for y, p in a.items()))
    assert 0.005 < worst <= 0.05
    assert sum(output(0, 0).values()) > 0.999
    assert {y for y, p in output(0, 0).items() if p} == {None}


def test_counts_with_others_are_not_run_alone():
    with pytest.raises(InvalidValue, match="run_together"):
        Threshold(1, 0.01, 1, 1, 2).run([1, 2])
    kept, noisy = Threshold(1, 1e-6, 1, 1, 2).run_together([[0, 10**30], [5, 5]])
    assert kept.tolist() == [False, True]
    assert noisy[:, 0].tolist() == [0, 0]
    low, high = Threshold(1, 1e-6, 1, 1, 2).limits(noisy[0][1:], 0.95)
    assert 10**30 - 100 < low[0] <= high[0] < 10**30 + 100


# ---- in a query --------------------------------------------------------------------------------------------------------


def priced(asked, **more):
    import pyarrow as pa

    table = pa.table({"id": [1, 2, 3], "g": ["A", "B", "A"], "v": [1.0, 2.0, 3.0]})
    schema = {"t": {"v": {"bounds": [0, 10], "required": True}, **more.pop("columns", {})}}
    with connect({"t": table}, unit=more.pop("unit", record()), schema=schema) as db:
        return db._price(f"SELECT {asked} FROM t", 1.0, None, None, None, more.pop("weights", None), more.pop("bias", False))


def test_sums_of_the_same_rows_share_a_noise_and_its_epsilon():
    found = priced("COUNT(*) AS n, SUM(v) AS s, AVG(v) AS m")
    assert len(found.joint) == 2
    assert found.events() == (Pure(1.0),)
    assert sum(found.epsilons) == 1
    alone = priced("COUNT(*) AS n")
    assert alone.joint == ()
    assert found.error(0, 0.95) < 1.5 * alone.error(0, 0.95), "two for less than the price of one and a half"


def test_a_column_that_must_be_far_more_exact_gets_its_own_noise():
    found = priced("COUNT(*) AS n, AVG(v) AS m", weights={"n": 50.0})
    assert found.joint == ()
    assert found.epsilons[0] > 0.8


def test_shares_of_what_was_cut_do_not_blur_the_columns():
    plain = priced("COUNT(*) AS n, AVG(v) AS m", unit=user("id", rows=2))
    told = priced("COUNT(*) AS n, AVG(v) AS m", unit=user("id", rows=2), bias=True)
    assert told.error(0, 0.95) < 1.7 * plain.error(0, 0.95)
