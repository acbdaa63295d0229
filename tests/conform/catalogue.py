"""Every mechanism of the project, each with neighbouring data on which it leaks as much as it may."""

from __future__ import annotations

from typing import Any, NamedTuple

from discreet import noise
from discreet.core import record, user

ROW, SWAP = record(), record("replace")


class Case(NamedTuple):
    name: str
    mechanism: Any
    pairs: list[tuple[Any, Any]]


MECHANISMS = [
    Case("laplace", noise.LaplaceNoise(scale=1, sensitivity=1, unit=ROW), [(1, 0)]),
    Case(
        "laplace of three",
        noise.LaplaceNoise(scale=3, sensitivity=3, unit=ROW),
        [([1, 1, 1], [0, 0, 0]), ([3, 0, 0], [0, 0, 0])],
    ),
    Case("gaussian", noise.GaussianNoise(sigma=2, sensitivity=1, size=1, unit=ROW), [(1, 0)]),
    Case("gaussian of three", noise.GaussianNoise(sigma=2, sensitivity=1, size=3, unit=ROW), [([1, 1, 1], [0, 0, 0])]),
    Case("grid laplace", noise.GridLaplace(scale=1, sensitivity=1, granularity=0.3, size=1, unit=ROW), [(1.149, 0.149)]),
    Case("grid gaussian", noise.GridGaussian(sigma=1, sensitivity=1, granularity=0.3, size=1, unit=ROW), [(1.149, 0.149)]),
    Case("sum, laplace", noise.BoundedSum(0, 10, 1, "laplace", 10, ROW), [([3.0, 10.0], [3.0])]),
    Case("sum, gaussian", noise.BoundedSum(-1, 1, 0.5, "gaussian", 4, SWAP), [([0.5, 1.0], [0.5, -1.0])]),
    Case("sum by user", noise.BoundedSum(0, 1, 1, "laplace", 4, user("id", rows=4)), [([0.0, 1.0, 1.0, 1.0, 1.0], [0.0])]),
    Case("two answers", noise.RandomResponse(epsilon=1, categories=2, unit=SWAP), [([1, 0], [0, 0])]),
    Case("four answers", noise.RandomResponse(epsilon=1, categories=4, unit=SWAP), [([3], [1])]),
    Case("exponential", noise.ExponentialMechanism(epsilon=1, sensitivity=1, unit=ROW), [([1, 0, 0, 0], [0, 1, 1, 1])]),
    Case("permute and flip", noise.PermuteAndFlip(epsilon=1, sensitivity=1, unit=ROW), [([1, 0], [0, 1])]),
    Case("noisy max", noise.ReportNoisyMax(epsilon=1, sensitivity=1, granularity=1, unit=ROW), [([1, 0, 0], [0, 1, 1])]),
    Case(
        "sparse vector",
        noise.AboveThreshold(threshold=0, epsilon=1, sensitivity=1, granularity=1, most=1, unit=ROW),
        [([1, 1, 1, 0], [0, 0, 0, 1]), ([0, 0, 0, 0, 1], [1, 1, 1, 1, 0])],
    ),
    Case(
        "sparse vector, two",
        noise.AboveThreshold(threshold=0, epsilon=2, sensitivity=1, granularity=1, most=2, unit=ROW),
        [([0, 0, 1, 1], [1, 1, 0, 0])],
    ),
]
