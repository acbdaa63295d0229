"""Pictures from |A X| = Y, where A says which private pictures are in each encoding: signs are guessed as pictures grow.

For one pixel: y = |a·x + noise| over encodings, the public pictures being the noise. The mean of the sign given y and x is
tanh(y a·x / s²), so expectation-maximisation alternates it with least squares, for which one factorisation serves all pixels.
It needs a start: the squares y² are linear in the products of pairs of x, whose leading vector gives x up to one sign a pixel.
Neighbouring pixels are alike, so a spanning tree over their correlations sets these signs, and the public mean the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
SHARE_LEFT = 2 / np.pi  # a factor of the variance of the public part that was found to fit


@dataclass(frozen=True, eq=False)
class Problem:
    """`mixing` [encodings, pictures] (sparse), `seen` absolute values [encodings, pixels], `noise` variance per encoding.

    `offset` is what public pictures add on average, [encodings, pixels] as the outer product of `left` and `mean`.
    """

    mixing: Any
    seen: Floats
    noise: Floats
    left: Floats
    mean: Floats
    shape: tuple[int, int, int]
    spread: Floats

    @classmethod
    def of(cls, mixing: Any, seen: Floats, public: Floats, shape: tuple[int, int, int]) -> Problem:
        left = np.asarray(1 - mixing.sum(axis=1), np.float32).ravel()
        spread = public.var(axis=0)
        noise = np.maximum(SHARE_LEFT * left**2 * spread.mean(), 2e-3).astype(np.float32)
        return cls(mixing, seen, noise, left, public.mean(axis=0), shape, spread)

    def linear(self) -> Floats:
        """Least squares where signs were sent: plain mixup."""
        from scipy.linalg import cho_factor, cho_solve

        weighted = self.mixing.multiply(1 / self.noise[:, None]).tocsr()
        gram = (self.mixing.T @ weighted).toarray() + 4 * np.eye(self.mixing.shape[1])
        return np.clip(cho_solve(cho_factor(gram), weighted.T @ (self.seen - np.outer(self.left, self.mean))), -1, 1)

    def pictures(self, rng: np.random.Generator, start: Floats | None = None) -> Floats:
        """The private pictures, [pictures, pixels]."""
        step = _Step(self)
        if start is not None:
            return np.clip(step.run(start, 12, centred=False), -1, 1)
        found = step.run(self._start(rng), 25, centred=True)
        for turn in range(3):
            found = aligned(found, self.shape, rng)
            if turn < 2:
                found = step.run(blurred(found, self.shape), 12, centred=True)
        return np.clip(step.run(found * self._sign(found), 5, centred=False), -1, 1)

    def _start(self, rng: np.random.Generator) -> Floats:
        """Squares by least squares, then relative signs within each pixel by power iterations on the products of pairs."""
        import scipy.sparse as sparse

        count = self.mixing.shape[1]
        excess = self.seen**2 - self.noise[:, None]
        squared, trust = self.mixing.power(2), 1 / (self.noise + 0.05) ** 2
        weighted = squared.multiply(trust[:, None]).tocsr()
        gram = (squared.T @ weighted).toarray() + np.eye(count)
        size = np.clip(np.linalg.solve(gram, weighted.T @ excess + self.spread), 1e-3, 1).astype(np.float32)
        rest = (excess - squared @ size).astype(np.float32)
        pairs = np.flatnonzero(np.diff(self.mixing.indptr) == 2)
        ends = self.mixing.indices.reshape(-1)[self.mixing.indptr[pairs][:, None] + np.arange(2)]
        shares = self.mixing.data[self.mixing.indptr[pairs][:, None] + np.arange(2)]
        rest = rest[pairs] * (shares.prod(axis=1) * np.sqrt(trust[pairs]))[:, None]
        root = np.sqrt(size)
        found = (rng.normal(size=size.shape) * 0.1).astype(np.float32) + root
        rows, ones = np.arange(len(pairs)), np.ones(len(pairs), np.float32)
        one, two = (sparse.csr_matrix((ones, (ends[:, side], rows)), (count, len(pairs))) for side in (0, 1))
        for _ in range(25):
            pulled = one @ (rest * found[ends[:, 1]]) + two @ (rest * found[ends[:, 0]])
            found = np.tanh(pulled / (np.abs(pulled).mean(axis=0) + 1e-9)) * root
        return found

    def _sign(self, found: Floats) -> float:
        """The sign of all pictures at once: the one under which the encodings are likelier, given the public mean."""
        part = slice(None, None, 5)
        offset, noise, seen = np.outer(self.left, self.mean)[part], self.noise[part, None], self.seen[part]
        fits = []
        for sign in (1.0, -1.0):
            middle = self.mixing[part] @ (sign * found) + offset
            pull = np.abs(middle * seen / noise)
            fits.append(float((pull + np.log1p(np.exp(-2 * pull)) - middle**2 / (2 * noise)).sum()))
        return 1.0 if fits[0] >= fits[1] else -1.0


class _Step:
    """One round of expectation-maximisation; pictures have variance 1/4 before anything is seen."""

    def __init__(self, problem: Problem) -> None:
        from scipy.linalg import cho_factor

        self.problem = problem
        self.weighted = problem.mixing.multiply(1 / problem.noise[:, None]).tocsr().astype(np.float32)
        gram = (problem.mixing.T @ self.weighted).toarray() + 4 * np.eye(problem.mixing.shape[1])
        self.factor = cho_factor(gram.astype(np.float32))
        self.pushed = problem.seen / problem.noise[:, None]

    def run(self, found: Floats, rounds: int, *, centred: bool) -> Floats:
        from scipy.linalg import cho_solve

        problem, back = self.problem, self.weighted.T.tocsr()
        offset = None if centred else np.outer(problem.left, problem.mean).astype(np.float32)
        for _ in range(rounds):
            middle = problem.mixing @ found
            if offset is not None:
                middle += offset
            middle *= self.pushed
            np.tanh(middle, out=middle)
            middle *= problem.seen
            if offset is not None:
                middle -= offset
            found = cho_solve(self.factor, back @ middle, check_finite=False)
        return np.asarray(found, np.float32)


def neighbours(shape: tuple[int, int, int]) -> NDArray[np.int64]:
    """Pairs of pixels beside each other, down, diagonally, and of channels at one place."""
    height, width, channels = shape
    at = np.arange(height * width * channels).reshape(shape)
    pairs = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:]), (at[:-1, :-1], at[1:, 1:]), (at[1:, :-1], at[:-1, 1:])]
    pairs += [(at[..., one], at[..., two]) for one in range(channels) for two in range(one + 1, channels)]
    return np.concatenate([np.stack([one.ravel(), two.ravel()], axis=1) for one, two in pairs])


def aligned(found: Floats, shape: tuple[int, int, int], rng: np.random.Generator) -> Floats:
    """One sign a pixel, so that neighbouring pixels agree over the pictures: a spanning tree, then majorities."""
    import scipy.sparse as sparse
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    pixels, edge = found.shape[1], neighbours(shape)
    flat = found / (np.linalg.norm(found, axis=0, keepdims=True) + 1e-6)
    alike = (flat[:, edge[:, 0]] * flat[:, edge[:, 1]]).sum(axis=0)
    tree = minimum_spanning_tree(sparse.csr_matrix((1.0001 - np.abs(alike), (edge[:, 0], edge[:, 1])), (pixels, pixels)))
    order, before = breadth_first_order(tree + tree.T, 0, directed=False)
    table = sparse.csr_matrix((alike, (edge[:, 0], edge[:, 1])), (pixels, pixels))
    table = (table + table.T).tocsr()
    agrees = np.asarray(table[order[1:], before[order[1:]]]).ravel() >= 0
    sign = np.ones(pixels)
    for pixel, same in zip(order[1:], agrees):
        sign[pixel] = sign[before[pixel]] * (1 if same else -1)
    for _ in range(20):
        against = sign * (table @ sign) < 0
        if not against.any():
            break
        sign[against & (rng.random(pixels) < 0.5)] *= -1
    return (found * sign.astype(np.float32)).astype(np.float32)


def blurred(found: Floats, shape: tuple[int, int, int]) -> Floats:
    from scipy.ndimage import convolve1d

    pictures = found.reshape(-1, *shape)
    for axis in (1, 2):
        pictures = convolve1d(pictures, np.array([0.25, 0.5, 0.25], np.float32), axis=axis, mode="nearest")
    return np.asarray(pictures.reshape(found.shape), np.float32)
