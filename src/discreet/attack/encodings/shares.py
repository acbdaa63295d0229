"""Which two pictures an encoding holds and in what shares, once pictures are roughly known: the likeliest of several pairs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from discreet.attack.encodings.solve import SHARE_LEFT, Problem

Floats = NDArray[np.float32]
CANDIDATES, PIXELS, ROUNDS = 6, 1024, 6
LARGEST, TOGETHER, LEAST = 0.65, 0.95, 0.03


def likeliest(
    problem: Problem, found: Floats, candidates: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], Floats]:
    """For each encoding, the pair among its `candidates` [encodings, few] under which it is likeliest, and both shares.

    A sample of pixels decides. Given a pair, shares come from expectation-maximisation over the signs, as the pictures do.
    """
    at = rng.choice(found.shape[1], min(PIXELS, found.shape[1]), replace=False)
    known, seen, mean = found[:, at], problem.seen[:, at], problem.mean[at]
    spread, gram = float(problem.spread.mean()), known @ known.T
    best = np.full(len(seen), -np.inf, np.float32)
    pair, shares = np.zeros((len(seen), 2), np.int64), np.zeros((len(seen), 2), np.float32)
    for one, two in combinations(range(candidates.shape[1]), 2):
        ends = candidates[:, [one, two]]
        share, fit = _fitted(known, gram, seen, mean, spread, ends)
        better = fit > best
        best[better], pair[better], shares[better] = fit[better], ends[better], share[better]
    return pair, np.where(shares < LEAST, 0, shares)


def _fitted(
    known: Floats, gram: Floats, seen: Floats, mean: Floats, spread: float, ends: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    left, right = known[ends[:, 0]], known[ends[:, 1]]
    ridge = 1e-2 * float(np.trace(gram)) / len(gram)
    one, two, both = gram[ends[:, 0], ends[:, 0]] + ridge, gram[ends[:, 1], ends[:, 1]] + ridge, gram[ends[:, 0], ends[:, 1]]
    size = one * two - both**2
    share = np.full((len(ends), 2), 0.25, np.float32)
    for last in range(ROUNDS + 1):
        rest = 1 - share.sum(axis=1, keepdims=True)
        noise = np.maximum(SHARE_LEFT * spread * rest**2, 2e-3)
        middle = share[:, :1] * left + share[:, 1:] * right + rest * mean
        if last == ROUNDS:
            break
        signed = np.tanh(seen * middle / noise) * seen - rest * mean
        pull, other = np.einsum("np,np->n", left, signed), np.einsum("np,np->n", right, signed)
        share = np.stack([(two * pull - both * other) / size, (one * other - both * pull) / size], axis=1)
        share = np.clip(share, 0, LARGEST)
        share /= np.maximum(1, share.sum(axis=1, keepdims=True) / TOGETHER)
    pull = np.abs(seen * middle / noise)
    fit = pull + np.log1p(np.exp(-2 * pull)) - (middle**2 + seen**2) / (2 * noise) - np.log(noise) / 2
    return share, np.asarray(fit.sum(axis=1), np.float32)
