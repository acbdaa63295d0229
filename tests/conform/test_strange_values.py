"""What one person's data holds never decides whether there is an answer: no mechanism raises on a strange value.

Every mechanism of the catalogue, and every local one, is run with each of its numbers replaced by what real columns hold:
missing, infinite, huge, tiny, not a number, not of its domain. Where a value counts as another by the documented rule, seeded
noise shows that the output is that of the other, so the claim is about the same law. Nothing here is left to chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from conform.catalogue import MECHANISMS, Case
from discreet import noise
from discreet.core import record
from discreet.noise.source import seeded_for_tests
from discreet.query import local

WHOLE: list[Any] = [0, -1, 7, 2**62, -(2**63), 2**64, 10**400, -(10**400), np.int8(-3), np.uint64(2**64 - 1)]
REAL: list[Any] = [
    *WHOLE, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 0.1, Fraction(1, 3), np.float32("nan"), np.float16(7),
]  # fmt: skip
ANY: list[Any] = [*REAL, None, "", "secret", b"x", True, np.bool_(True), 1j, Decimal("NaN"), Decimal("1e999"), [], {}, object()]
# What the numbers of a mechanism are: counts that a program made, numbers that it computed, or rows as people gave them
KINDS = {
    noise.LaplaceNoise: WHOLE, noise.GaussianNoise: WHOLE, noise.GridLaplace: REAL, noise.GridGaussian: REAL,
    noise.ExponentialMechanism: REAL, noise.PermuteAndFlip: REAL, noise.ReportNoisyMax: REAL, noise.AboveThreshold: REAL,
    noise.BoundedSum: ANY, noise.RandomResponse: ANY,
}  # fmt: skip
LOCAL = [
    *(
        make(1.0, 4)
        for make in (
            local.KaryResponse, local.SymmetricUnary, local.OptimalUnary, local.LocalHashing, local.HadamardResponse
        )
    ),
    *(make(1.0, ["other", "yes", "no"]) for make in (local.KaryResponse, local.OptimalUnary)),
    *(make(1.0, -2.0, 5.0) for make in (local.OneBitMean, local.PiecewiseMean)), local.Coin(),
]  # fmt: skip


def strange(data: Any, values: list[Any]) -> Iterator[Any]:
    """The data with one of its numbers, or each of them, replaced."""
    for value in values:
        if not isinstance(data, list):
            yield value
            continue
        if isinstance(value, list) and len(data) == 1:
            continue  # an array of another shape, and nothing about one value
        if not isinstance(value, list):
            yield [value] * len(data)
        for place in range(len(data)):
            yield [*data[:place], value, *data[place + 1 :]]


def test_every_mechanism_has_a_kind() -> None:
    assert {type(case.mechanism) for case in MECHANISMS} == set(KINDS)


@pytest.mark.parametrize("case", MECHANISMS, ids=lambda case: case.name)
def test_no_value_stops_a_mechanism(case: Case) -> None:
    normal = np.shape(case.mechanism.run(case.pairs[0][0]))
    tried = 0
    for data in strange(case.pairs[0][0], KINDS[type(case.mechanism)]):
        told = case.mechanism.run(data)
        assert np.shape(told) == normal or isinstance(case.mechanism, noise.AboveThreshold)
        tried += 1
    assert tried >= 10


@pytest.mark.parametrize("mechanism", LOCAL, ids=lambda mechanism: type(mechanism).__name__)
def test_no_value_stops_a_report(mechanism: Any) -> None:
    for value in ANY:
        assert len(mechanism.encode([value, 1])) == 2
        if not isinstance(value, (list, dict)):
            assert len(mechanism.encode(value)) == 1


def same(mechanism: Any, data: Any, other: Any) -> bool:
    """Whether both give the same output from the same noise."""
    outputs = []
    for given in (data, other):
        with seeded_for_tests(b"strange"):
            outputs.append(np.asarray(mechanism.run(given)).tolist())
    return bool(outputs[0] == outputs[1])


OUTSIDE = [-1, 4, 10**400, 0.5, math.nan, math.inf, None, "secret", b"x", 1j, [], {}, Decimal(1)]


@pytest.mark.parametrize("value", OUTSIDE, ids=repr)
def test_what_is_no_category_is_told_by_the_law_of_the_first(value: Any) -> None:
    """A function of one person's answer, before the response: the law is one of the k that the claim is about."""
    poll = noise.RandomResponse(1, 4, record("replace"))
    crowd = [value, 3] * 200
    assert same(poll, crowd, [0, 3] * 200)
    assert not same(poll, crowd, [1, 3] * 200)
    for oracle in (local.KaryResponse(1.0, 4), local.OptimalUnary(1.0, 4)):
        assert same(oracle, crowd, [0, 3] * 200)


@pytest.mark.parametrize("value", [math.nan, None, "secret", b"x", 1j, [], {}, Decimal("NaN")], ids=repr)
def test_a_row_that_is_no_number_counts_as_the_one_nearest_to_zero(value: Any) -> None:
    total = noise.BoundedSum(2, 10, 1, "laplace", 10, record())
    assert same(total, [3.0, value, 9.0], [3.0, 2.0, 9.0])
    mean = local.OneBitMean(1.0, 2.0, 10.0)
    assert same(mean, [3.0, value] * 100, [3.0, 2.0] * 100)
