"""Whatever is passed to a public function of noise, it works or says why in one of our own errors, and soon."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet import noise
from discreet.core import record
from discreet.errors import InvalidValue
from discreet.noise.source import Seeded
from strategies import strange

SLOW = settings(deadline=5000, suppress_health_check=[HealthCheck.too_slow], max_examples=150)
R = record()

# Every public callable with arguments that work; each is tried with each argument in turn made strange.
CALLS: dict[str, tuple[Any, ...]] = {
    "AboveThreshold": (10, 1.0, 1, 1, 2, R),
    "BoundedSum": (0, 1, 0.5, "laplace", 1, R),
    "ExponentialMechanism": (1.0, 1, R),
    "GaussianNoise": (1.0, 1, 2, R),
    "Grid": (0.5,),
    "GridGaussian": (1.0, 1.0, 0.5, 2, R),
    "GridLaplace": (1.0, 1.0, 0.5, 2, R),
    "LaplaceNoise": (1.0, 1, R),
    "PermuteAndFlip": (1.0, 1, R),
    "RandomResponse": (1.0, 2, record("replace")),
    "ReportNoisyMax": (1.0, 1, 1, R),
    "bernoulli": (0.5,),
    "bernoulli_exp": (0.5,),
    "discrete_gaussian": (1.0, 3),
    "discrete_gaussian_error": (1.0, 0.9),
    "discrete_laplace": (1.0, 3),
    "discrete_laplace_error": (1.0, 0.9),
    "exponential": ([1, 2], 1.0, 1),
    "exponential_rows": ([[1, 2], [3, 4]], 1.0, 1),
    "exponential_error": (4, 1.0, 1, 0.9, 1),
    "exponential_success": (1.0, 4, 1.0, 1, 1),
    "gaussian_error": (1.0, 0.9),
    "laplace_error": (1.0, 0.9),
    "noisy_max": ([1, 2], 1.0, 1, 1),
    "noisy_max_error": (4, 1.0, 1, 0.9),
    "permute_and_flip": ([1, 2], 1.0, 1),
    "randomized_response": (1, 3, 1.0),
    "response_error": (100, 2, 1.0, 0.9),
    "response_frequencies": ([3, 4], 2, 1.0),
    "sparse_vector": ([1, 2], 10, 1.0, 1, 1, 1),
    "sparse_vector_error": (10, 1.0, 1, 1, 0.9),
    "uniform": (10, 3),
}


def works_or_says_why(function: Any, *args: Any) -> None:
    try:
        result = function(*args)
        if isinstance(result, type(iter(zip()))) or hasattr(result, "__next__"):
            list(result)
    except InvalidValue as error:
        message = str(error)
        message.encode()
        assert 10 < len(message) < 400, message


def test_every_public_name_is_tried():
    assert {*CALLS, "refuse_seeded"} == set(noise.__all__)


@SLOW
@given(st.sampled_from(sorted(CALLS)), st.data())
def test_one_strange_argument(name: str, data: st.DataObject) -> None:
    args = list(CALLS[name])
    args[data.draw(st.integers(0, len(args) - 1))] = data.draw(strange)
    works_or_says_why(getattr(noise, name), *args)


@SLOW
@given(st.sampled_from(sorted(CALLS)), st.lists(strange, min_size=6, max_size=6))
def test_all_arguments_strange(name: str, args: list[Any]) -> None:
    works_or_says_why(getattr(noise, name), *args[: len(CALLS[name])])


DATA = st.one_of(strange, st.lists(strange, max_size=3), st.lists(st.floats(), min_size=2, max_size=2))


@SLOW
@given(st.sampled_from([name for name in CALLS if name[0].isupper() and name != "Grid"]), DATA)
def test_strange_data(name: str, data: Any) -> None:
    works_or_says_why(getattr(noise, name)(*CALLS[name]).run, data)


@SLOW
@given(DATA)
def test_strange_grids_and_seeds(data: Any) -> None:
    works_or_says_why(noise.Grid(0.5).steps, data)
    works_or_says_why(noise.Grid(Fraction(1, 3)).steps, data)
    works_or_says_why(Seeded, data)


# What must be refused wherever it decides privacy

BAD = [0, -1, -0.5, float("nan"), float("inf"), -float("inf"), None, "1", True, 1j, [1], 10**400, Fraction(0), Fraction(-1, 3)]
POSITIVE = {
    "discrete_laplace": [0], "discrete_gaussian": [0], "LaplaceNoise": [0, 1], "GaussianNoise": [0, 1, 2],
    "GridLaplace": [0, 1, 2, 3], "GridGaussian": [0, 1, 2, 3], "BoundedSum": [2, 4], "ExponentialMechanism": [0, 1],
    "PermuteAndFlip": [0, 1], "ReportNoisyMax": [0, 1, 2], "RandomResponse": [0, 1], "AboveThreshold": [1, 2, 3, 4],
    "exponential": [1, 2], "exponential_rows": [1, 2], "permute_and_flip": [1, 2], "noisy_max": [1, 2, 3],
    "randomized_response": [2],
    "sparse_vector": [2, 3, 4, 5], "laplace_error": [0], "gaussian_error": [0], "discrete_laplace_error": [0],
    "discrete_gaussian_error": [0], "uniform": [0],
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(POSITIVE))
@pytest.mark.parametrize("bad", BAD, ids=lambda value: repr(value)[:12])
def test_what_decides_privacy_must_be_a_positive_number(name: str, bad: Any) -> None:
    for place in POSITIVE[name]:
        if name == "uniform" and bad == 10**400:
            continue
        args = list(CALLS[name])
        args[place] = bad
        with pytest.raises(InvalidValue):
            getattr(noise, name)(*args)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_nothing_that_decides_privacy_has_a_default(name: str) -> None:
    import inspect

    for parameter in inspect.signature(getattr(noise, name)).parameters.values():
        assert parameter.default is inspect.Parameter.empty or parameter.name in ("size", "best", "widths"), parameter


@pytest.mark.parametrize("size", [-1, 2**40, (2**20, 2**20), 1.5, "3", (1, -1), (1, None), True, [[1]], (1,) * 40])
def test_absurd_sizes(size: Any) -> None:
    for call in (noise.discrete_laplace, noise.discrete_gaussian):
        with pytest.raises(InvalidValue):
            call(1.0, size)
    with pytest.raises(InvalidValue):
        noise.uniform(3, size)


@pytest.mark.parametrize("size", [0, (0,), (3, 0), 1, (1,), (), (2, 3), np.int64(4), [2, 2]])
def test_ordinary_sizes(size: Any) -> None:
    shape = np.empty(size).shape
    for call in (noise.discrete_laplace, noise.discrete_gaussian, noise.uniform):
        found = call(3, size)
        assert found.shape == shape
        assert found.dtype == np.int64


@SLOW
@given(st.one_of(st.floats(1e-320, 1e308), st.fractions(Fraction(1, 10**30), 10**30)))
def test_any_positive_scale_gives_a_whole_number(scale: Any) -> None:
    assert type(noise.discrete_laplace(scale)) is int
    assert type(noise.discrete_gaussian(scale)) is int


@settings(SLOW, max_examples=40)
@given(st.floats(1e-3, 2.0**50))
def test_any_scale_up_to_the_limit_gives_an_array(scale: float) -> None:
    assert noise.discrete_laplace(scale, 100).dtype == np.int64
    assert noise.discrete_gaussian(scale, 100).dtype == np.int64
