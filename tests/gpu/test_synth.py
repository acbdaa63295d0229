"""Estimation of synthetic tables on a device: the numbers of numpy."""

from __future__ import annotations

import itertools

import numpy as np
from tests.gpu.tools import DEVICE

from discreet.synth.dual import Problem
from discreet.synth.junction import JunctionTree
from discreet.synth.large import TensorProblem
from discreet.synth.measure import Measurement
from discreet.synth.oneshot import independent


def test_the_dual_on_a_device_is_that_by_numpy() -> None:
    random = np.random.default_rng(0)
    sizes, total = (12,) * 5, 1e4
    sets = list(itertools.combinations(range(5), 2))
    measured = [Measurement(it, random.dirichlet(np.ones(144)).reshape(12, 12) * total, 20.0) for it in sets]
    tree = JunctionTree.of(sizes, sets)
    start = independent(tree, [random.dirichlet(np.ones(12)) for _ in sizes])
    start[0][0] = -np.inf  # impossible cells
    plain, tensors = Problem(tree, start, measured, total), TensorProblem(tree, start, measured, total, DEVICE)
    for scale in (0.0, 1.0, 10.0):
        z = random.normal(size=plain.size) * scale
        one, other = plain.at(z, 200.0), tensors.at(z, 200.0)
        assert np.allclose(other[0], one[0], rtol=1e-10)
        assert np.allclose(other[1], one[1], rtol=1e-8, atol=1e-8)
        assert np.allclose(other[2], one[2], rtol=1e-10)
        for mine, theirs in zip(one[3], tensors.plain(other[3]), strict=True):
            assert np.allclose(theirs, mine, rtol=1e-9, atol=1e-15)
