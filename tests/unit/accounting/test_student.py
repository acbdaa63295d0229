"""Noise of Student's t: profiles against integrals, the constant for any vector, and a group that is no longer word."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as student_t

from discreet.accounting import concentrated, curve, renyi, student
from discreet.accounting.plan import plan
from discreet.core import Gaussian, Group, Poisson, PoissonReplace, Repeat, StudentT, event_from_json
from discreet.errors import InvalidDocument, InvalidValue

WORD = ((0.8, 0.36), (1, 3))


def one(degrees: float, shift: float) -> StudentT:
    return StudentT(1 / shift, degrees, (1.0,), (1,))


@pytest.mark.parametrize("degrees", [1.0, 3.0, 4.5, 30.0])
@pytest.mark.parametrize("shift", [0.01, 0.3, 2.0])
def test_the_profile_is_the_integral_of_what_is_left_over(degrees: float, shift: float) -> None:
    noise, x = student_t(degrees), np.sinh(np.linspace(-14, 14, 200_001))
    moved, still = noise.pdf(x - shift), noise.pdf(x)
    most = (degrees + 1) * math.asinh(shift / 2 / math.sqrt(degrees))
    for share in (0.0, 0.2, 0.7):
        slow = np.trapezoid(np.maximum(moved - math.exp(share * most) * still, 0.0), x)
        found = float(student.shifted(one(degrees, shift)).delta(np.array([share * most]))[0])
        assert found == pytest.approx(slow, rel=1e-5, abs=1e-8)
    assert curve(one(degrees, shift)).epsilon(0) == pytest.approx(most)


@settings(max_examples=40, deadline=None)
@given(degrees=st.floats(1, 30), shift=st.floats(1e-4, 20), more=st.floats(1.0001, 3), share=st.floats(0, 0.99))
def test_it_grows_with_the_shift(degrees: float, shift: float, more: float, share: float) -> None:
    at = np.array([share * (degrees + 1) * math.asinh(shift / 2 / math.sqrt(degrees))])
    near, far = (student.shifted(one(degrees, each)).delta(at) for each in (shift, shift * more))
    assert near <= far * (1 + 1e-12)


@pytest.mark.parametrize("degrees", [3.0, 10.0])
def test_a_word_is_the_sum_of_its_numbers(degrees: float) -> None:
    """Against losses that were drawn, ten standard errors wide."""
    random, scale, epsilon = np.random.default_rng(0), 0.5, 1.0
    sizes = np.repeat(*map(np.array, WORD))
    x = student_t(degrees).rvs((200_000, 4), random_state=random) + sizes / scale
    loss = (student_t(degrees).logpdf(x - sizes / scale) - student_t(degrees).logpdf(x)).sum(axis=1)
    left = np.maximum(-np.expm1(epsilon - loss), 0.0)
    found = curve(StudentT(scale, degrees, *WORD)).delta(epsilon)
    assert abs(found - left.mean()) < 10 * left.std() / math.sqrt(len(left))


@pytest.mark.parametrize(("degrees", "at_half"), [(1.0, 0.7979), (3.0, 0.9213), (4.0, 0.9400), (10.0, 0.9754), (30.0, 0.9917)])
def test_the_constant_for_any_vector(degrees: float, at_half: float) -> None:
    """It is that of the theory page, above every point tried, and above the root of the Fisher information."""
    found = student.dominance(degrees)
    assert found == pytest.approx(at_half, abs=6e-5)
    u = np.sqrt(degrees) * np.linspace(1e-6, 0.999, 777)
    noise = student_t(degrees)
    p = noise.cdf(degrees / u) - noise.cdf(u)
    assert found >= ((noise.pdf(u) - noise.pdf(degrees / u)) / norm.pdf(norm.ppf(p))).max()
    assert found > math.sqrt((degrees + 1) / (degrees + 3))


@pytest.mark.parametrize("word", [WORD, ((1.0,), (1,)), ((0.1,), (100,))])
def test_the_gaussian_pair_dominates_every_word(word: tuple[tuple[float, ...], tuple[int, ...]]) -> None:
    event = StudentT(0.7, 4.0, *word)
    ours, above = curve(event), curve(student.as_gaussian(event))
    for epsilon in (0.0, 0.5, 2.0, 5.0):
        assert ours.delta(epsilon) <= above.delta(epsilon) * (1 + 1e-9)


def test_many_small_numbers_cost_their_fisher_information() -> None:
    """And so what the code saves is the constant against its root; of the same deviation the Gaussian is always cheaper."""
    many = curve(StudentT(math.sqrt(5 / 7), 4.0, (0.01,), (10_000,)))
    assert many.epsilon(1e-5) == pytest.approx(curve(Gaussian(1.0)).epsilon(1e-5), rel=1e-3)
    deviation = math.sqrt(5 / 7) * math.sqrt(2)
    assert many.epsilon(1e-5) > curve(Gaussian(deviation)).epsilon(1e-5) * 1.1


def test_words_of_several_units_do_not_add_up_number_by_number() -> None:
    """Two words with their large numbers in two places: a group is not the word with twice the sizes."""
    scale, word, epsilon = 0.25, ((1.0, 0.0), (1, 1)), 6.5
    told = curve(StudentT(scale, 3.0, (1.0,), (2,))).delta(epsilon)
    assert curve(StudentT(scale, 3.0, (2.0,), (1,))).delta(epsilon) == 0 < told  # so this would be wrong
    assert curve(Group(StudentT(scale, 3.0, *word), 2)).delta(epsilon) > told
    ((seen, _),) = plan(Group(StudentT(scale, 3.0, *word), 2)).counts
    assert seen == Gaussian(student.as_gaussian(StudentT(scale, 3.0, *word)).noise_multiplier / 2)


def test_around_it_and_in_renyi_terms_it_is_never_above_the_gaussian_pair() -> None:
    event = StudentT(1.0, 4.0, *WORD)
    above = student.as_gaussian(event)
    for inside, outside in (
        (event, above), (Poisson(0.1, event), Poisson(0.1, above)), (PoissonReplace(0.1, event), PoissonReplace(0.1, above)),
        (Repeat(event, 9), Repeat(above, 9)),
    ):  # fmt: skip
        assert curve(inside).epsilon(1e-5) <= curve(outside).epsilon(1e-5) * (1 + 1e-9)
        assert renyi(inside, 8.0) == renyi(outside, 8.0)
    assert concentrated(event) == concentrated(above)
    x = np.linspace(-400, 400, 400_001)
    p, q = student_t(4).pdf(x - 1), student_t(4).pdf(x)
    slow = math.log(np.trapezoid(p**3 / q**2, x)) / 2
    assert renyi(StudentT(1.0, 4.0, (1.0,), (1,)), 3.0) >= slow


@pytest.mark.parametrize("event", [
    StudentT(1e-6, 1, (1e4,), (10**15,)), StudentT(1e6, 1, (1e-300,), (1,)), StudentT(1e308, 3, (1e-308,), (3,)),
    StudentT(1e-308, 3, (1e308,), (3,)), StudentT(1.0, 30, (60.0, 1e-300), (2, 10**9)), StudentT(1.0, 1, (1e-8,), (10**15,)),
])  # fmt: skip
def test_extremes_have_numbers_and_the_gaussian_pair_stays_above(event: StudentT) -> None:
    bound, above = curve(event).epsilon(1e-6), curve(student.as_gaussian(event)).epsilon(1e-6)
    assert 0 <= bound <= above * (1 + 1e-9)
    assert renyi(event, 4.0) > 0
    assert concentrated(event) >= 0


def test_documents_and_what_is_refused() -> None:
    event = StudentT(1.5, 4.0, *WORD)
    assert event_from_json(event.to_json()) == event
    assert curve(StudentT(1.5, 4.0, (0.8, 0.0), (1, 7))).delta(0.5) == curve(StudentT(1.5, 4.0, (0.8,), (1,))).delta(0.5)
    for wrong in (
        (0.0, 4, (1.0,), (1,)), (1.0, 0.5, (1.0,), (1,)), (1.0, 31, (1.0,), (1,)), (1.0, 4, (1.0,), ()),
        (1.0, 4, (-1.0,), (1,)), (1.0, 4, (1.0,), (0,)), (1.0, 4, (1.0,) * 65, (1,) * 65), (1.0, 4, 1.0, 1),
        (1.0, 4, (0.0,), (1,)),
    ):  # fmt: skip
        with pytest.raises(InvalidValue):
            StudentT(*wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidDocument):
        event_from_json({**event.to_json(), "sizes": [1.0]})
