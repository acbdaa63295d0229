"""The error bounds against numbers worked by hand; tests/stats checks them by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from discreet import noise
from discreet.errors import InvalidValue
from unit.noise.tools import gaussian_pmf, laplace_pmf


@pytest.mark.parametrize("confidence", [0.01, 0.5, 0.95, 0.999999])
@pytest.mark.parametrize(
    ("error", "pmf"), [(noise.discrete_laplace_error, laplace_pmf), (noise.discrete_gaussian_error, gaussian_pmf)]
)
@pytest.mark.parametrize("spread", [0.05, 0.5, 1.0, 7 / 3, 100.0])
def test_discrete_errors_are_the_least(error, pmf, spread, confidence):
    t = error(spread, confidence)
    inside = lambda t: pmf(spread, np.arange(-t, t + 1)).sum()  # noqa: E731
    assert inside(t) >= confidence - 1e-12
    assert t == 0 or inside(t - 1) < confidence + 1e-12


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999999])
def test_wide_discrete_errors_approach_the_continuous(confidence):
    assert noise.discrete_laplace_error(1e6, confidence) == pytest.approx(noise.laplace_error(1e6, confidence), abs=2)
    assert noise.discrete_gaussian_error(1e6, confidence) == pytest.approx(noise.gaussian_error(1e6, confidence), abs=2)
    assert noise.discrete_gaussian_error(9999, confidence) == pytest.approx(noise.gaussian_error(9999, confidence), abs=2)


def test_within_one_scale_holds_for_63_percent_only():
    assert noise.laplace_error(1.0, 1 - 1 / math.e) == pytest.approx(1.0)


def test_hair_colour():
    assert noise.exponential_success(100, 4, 0.1, 1) == pytest.approx(1 - 4 * math.exp(-5))
    assert noise.exponential_success(100, 4, 0.1, 1) >= 0.973
    assert noise.exponential_success(500 - 399, 4, 0.1, 1) >= 0.973
    assert noise.exponential_error(4, 0.1, 1, 1 - 4 * math.exp(-5)) == pytest.approx(100)
    assert noise.exponential_error(4, 0.1, 1, 0.9, best=4) == pytest.approx(20 * math.log(10))


def test_the_lecture_unbiasing():
    for told in (0.25, 0.4, 0.6, 0.75):
        found = noise.response_frequencies([told * 1000, (1 - told) * 1000], 2, math.log(3))
        assert found[0] == pytest.approx(2 * told - 0.5)


def test_unbiasing_inverts_the_law_of_k_categories():
    k, epsilon, truth = 5, 0.7, np.array([0.5, 0.2, 0.2, 0.1, 0.0])
    p = math.exp(epsilon) / (math.exp(epsilon) + k - 1)
    told = truth * p + (1 - truth) * (1 - p) / (k - 1)
    assert np.allclose(noise.response_frequencies(told * 1e6, k, epsilon), truth)


@pytest.mark.parametrize("answers", [[1], [1, 2, 3], [-1, 2], [math.nan, 1], [0, 0], "ab", None, [[1, 2]], [math.inf, 1]])
def test_frequencies_refuse_what_is_no_count(answers):
    with pytest.raises(InvalidValue):
        noise.response_frequencies(answers, 2, 1.0)


def test_more_confidence_costs_more():
    for error in (
        lambda c: noise.laplace_error(3, c),
        lambda c: noise.gaussian_error(3, c),
        lambda c: noise.response_error(100, 3, 1, c),
        lambda c: noise.exponential_error(9, 1, 1, c),
        lambda c: noise.noisy_max_error(9, 1, 1, c),
        lambda c: noise.sparse_vector_error(9, 1, 1, 2, c),
    ):
        assert error(0.5) < error(0.9) < error(0.99)
