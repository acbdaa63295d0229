"""Exact discrete noise from one source of randomness, and the mechanisms built on it.

No floating-point number decides a noise value; no seed reaches a real release.
"""

from discreet.noise.additive import GaussianNoise, LaplaceNoise
from discreet.noise.grid import Grid, GridGaussian, GridLaplace
from discreet.noise.response import RandomResponse, randomized_response
from discreet.noise.samplers import bernoulli, bernoulli_exp, discrete_gaussian, discrete_laplace, uniform
from discreet.noise.select import (
    ExponentialMechanism,
    PermuteAndFlip,
    ReportNoisyMax,
    exponential,
    exponential_rows,
    noisy_max,
    permute_and_flip,
)
from discreet.noise.source import refuse_seeded
from discreet.noise.sparse import AboveThreshold, sparse_vector
from discreet.noise.sums import BoundedSum
from discreet.noise.utility import (
    discrete_gaussian_error,
    discrete_laplace_error,
    exponential_error,
    exponential_success,
    gaussian_error,
    laplace_error,
    noisy_max_error,
    response_error,
    response_frequencies,
    sparse_vector_error,
)

__all__ = [
    "AboveThreshold",
    "BoundedSum",
    "ExponentialMechanism",
    "GaussianNoise",
    "Grid",
    "GridGaussian",
    "GridLaplace",
    "LaplaceNoise",
    "PermuteAndFlip",
    "RandomResponse",
    "ReportNoisyMax",
    "bernoulli",
    "bernoulli_exp",
    "discrete_gaussian",
    "discrete_gaussian_error",
    "discrete_laplace",
    "discrete_laplace_error",
    "exponential",
    "exponential_error",
    "exponential_rows",
    "exponential_success",
    "gaussian_error",
    "laplace_error",
    "noisy_max",
    "noisy_max_error",
    "permute_and_flip",
    "randomized_response",
    "refuse_seeded",
    "response_error",
    "response_frequencies",
    "sparse_vector",
    "sparse_vector_error",
    "uniform",
]
