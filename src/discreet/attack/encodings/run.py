"""The break of InstaHide: private pictures from their encodings (Carlini et al. 2020), and what they were worth."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.attack.encodings.clusters import by_weight, without_labels
from discreet.attack.encodings.shares import CANDIDATES, likeliest
from discreet.attack.encodings.similarity import outlines, whitened
from discreet.attack.encodings.solve import Problem
from discreet.attack.pictures import ssim
from discreet.core import check
from discreet.errors import InvalidValue

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Progress = Callable[[str, int, int], None]
NEAREST = 20  # public pictures of the baseline
REFINED = 1  # rounds of shares from pictures, without labels
SIGNS_SENT = 0.1  # the correlation of neighbouring signs above which they were not drawn by coins


@dataclass(frozen=True, eq=False)
class Decoded:
    """`pictures` [private, height, width, channels], and which of them, in what shares, each encoding was found to hold.

    `labels` are their classes where labels were sent; `signs` says whether the signs had been flipped.
    """

    pictures: Floats
    labels: Ints | None
    mixing: Any
    signs: bool
    seconds: float
    mirror: bool = False

    def compared(self, originals: ArrayLike, public: ArrayLike) -> Compared:
        """Set beside the originals, one recovered picture for each; the baseline takes the public picture most like each.

        Where pictures were mirrored by coins nobody can tell which way round they are: either counts, of public ones too.
        """
        from scipy.optimize import linear_sum_assignment

        truth, others = _pictures("originals", originals), _pictures("public", public)
        ways = [self.pictures, self.pictures[:, :, ::-1]] if self.mirror else [self.pictures]
        cost = np.stack([_alike(truth, way) for way in ways])
        rows, places = linear_sum_assignment(-cost.max(axis=0))
        order = np.empty(len(truth), np.int64)
        order[rows] = places
        turned = cost[:, np.arange(len(truth)), order].argmax(axis=0)
        found = np.stack([ways[way][place] for way, place in zip(turned, order)])
        known = np.concatenate([others, others[:, :, ::-1]]) if self.mirror else others
        alike = ssim((truth + 1) / 2, (found + 1) / 2)
        nearest = np.argsort(-_alike(truth, known), axis=1)[:, :NEAREST].T
        blind = np.max([ssim((truth + 1) / 2, (known[each] + 1) / 2) for each in nearest], axis=0)
        own = _alike(found, truth).argmax(axis=1) == np.arange(len(truth))
        return Compared(found, alike, own & (alike > blind), blind)


@dataclass(frozen=True, eq=False)
class Compared:
    """`right` where a recovered picture is nearer to its original than to any other, and more like it than public pictures are.

    `baseline` is the largest SSIM of the 20 public pictures nearest to each original: chosen knowing it, so no guess is better.

    Recovered pictures have no names: each original is given one such that all are as like as can be. So half of a hundred
    pictures of noise are nearest to their original; none is more like it than a public picture.
    """

    pictures: Floats
    ssim: NDArray[np.float64]
    right: NDArray[np.bool_]
    baseline: NDArray[np.float64]

    @property
    def found(self) -> int:
        return int(self.right.sum())

    def __str__(self) -> str:
        return (
            f"{self.found} of {len(self.right)} pictures found, mean SSIM {self.ssim.mean():.3f}; "
            f"the nearest public picture reaches {self.baseline.mean():.3f}"
        )


@dataclass(frozen=True)
class EncodingsAttack:
    """Recover `private` pictures from encodings that each hold two of them and `others` public ones.

    The attacker sees the encodings, their labels if these are sent, and public pictures of its own. `largest` is the largest
    share of one picture, which is public, as is whether private pictures were mirrored by coins (`mirror`): then their mirror
    images are sought beside them, in the encodings and their mirror images. `restarts` of the clustering; `seed` of all draws.
    """

    private: int
    others: int = 2
    largest: float = 0.65
    mirror: bool = False
    restarts: int = 12
    seed: int = 0
    name: str = "un-mixing of encodings"
    view: frozenset[str] = frozenset({"encodings"})

    def __post_init__(self) -> None:
        check.whole("private", self.private, least=3)
        check.whole("others", self.others, least=0)
        check.whole("restarts", self.restarts)

    def decode(
        self, encodings: ArrayLike, public: ArrayLike, *, labels: ArrayLike | None = None, progress: Progress | None = None
    ) -> Decoded:
        """The private pictures. `labels` [encodings, classes] hold the share of each class; without, it is estimated."""
        started = time.process_time()
        found = self._doubled(encodings, public, labels, progress) if self.mirror else self._decoded(
            encodings, public, labels, progress)  # fmt: skip
        return replace(found, seconds=time.process_time() - started)

    def _doubled(self, encodings: ArrayLike, public: ArrayLike, labels: ArrayLike | None, progress: Progress | None) -> Decoded:
        """Every encoding twice, as it is and mirrored: together they hold each picture both ways, none of them mirrored."""
        seen = _pictures("encodings", encodings)
        both = None if labels is None else np.concatenate([_labels(labels, len(seen))] * 2)
        twice = replace(self, private=2 * self.private, mirror=False)
        found = twice._decoded(np.concatenate([seen, seen[:, :, ::-1]]), public, both, progress)
        one, two = _pairs(_alike(found.pictures, found.pictures[:, :, ::-1]))
        return replace(
            found, pictures=np.asarray((found.pictures[one] + found.pictures[two][:, :, ::-1]) / 2, np.float32), mirror=True,
            labels=None if found.labels is None else found.labels[one],
        )  # fmt: skip

    def _decoded(self, encodings: ArrayLike, public: ArrayLike, labels: ArrayLike | None, progress: Progress | None) -> Decoded:
        said = progress or (lambda what, done, total: None)
        seen, known = _pictures("encodings", encodings), _pictures("public", public)
        if seen.shape[1:] != known.shape[1:]:
            raise InvalidValue(
                f"Encodings have the shape {seen.shape[1:]}, public pictures {known.shape[1:]}; they must agree."
            )
        if len(seen) < 2 * self.private or len(known) < 100:
            raise InvalidValue(
                f"{len(seen)} encodings of {self.private} private pictures and {len(known)} public pictures: the attack needs "
                f"at least {2 * self.private} and 100."
            )
        rng = np.random.default_rng(self.seed)
        flipped = not _signs_sent(seen)
        said("similarity", 0, 3)
        sight = _Sight(self, known, flipped, rng)
        points = sight.points(seen)
        said("groups", 1, 3)
        classes = None
        if labels is None:
            mixing = self._estimated(points, sight, seen, known, rng)
        else:
            rows, mixing, classes = self._told(points, _labels(labels, len(seen)), rng)
            seen = seen[rows]
        said("pictures", 2, 3)
        flat = known.reshape(len(known), -1)
        problem = Problem.of(
            mixing, np.abs(seen).reshape(len(seen), -1) if flipped else seen.reshape(len(seen), -1), flat, seen.shape[1:]
        )
        found = problem.pictures(rng) if flipped else problem.linear()
        for _ in range(REFINED if labels is None and flipped else 0):
            mixing = _refined(problem, found, rng)
            problem = Problem.of(mixing, problem.seen, flat, seen.shape[1:])
            found = problem.pictures(rng, found)
        said("pictures", 3, 3)
        return Decoded(found.reshape(-1, *seen.shape[1:]).astype(np.float32), classes, mixing, flipped, 0.0)

    def _told(self, points: Floats, labels: Floats, rng: np.random.Generator) -> tuple[Ints, Any, Ints]:
        """The mixing where labels tell classes and shares: slots are grouped class by class. Encodings of one are left out."""
        import scipy.sparse as sparse

        two = (labels > 0).sum(axis=1) == 2
        rows = np.flatnonzero(two)
        if len(rows) < self.private:
            raise InvalidValue(
                f"{len(rows)} of {len(labels)} labels name two classes. Labels must hold the share of each of two classes; "
                "leave them out otherwise."
            )
        places = np.nonzero(labels[rows])[1].reshape(-1, 2)
        shares = np.take_along_axis(labels[rows], places, axis=1)
        held = np.bincount(np.nonzero(labels)[1], np.where(two, 1, 2)[np.nonzero(labels)[0]], labels.shape[1])
        counts = _rounded(held / held.sum() * self.private, self.private)
        group = np.full(places.shape, -1, np.int64)
        for kind in np.flatnonzero(counts):
            row, side = np.nonzero(places == kind)
            inside = by_weight(points[rows[row]], shares[row, side], int(counts[kind]), self.restarts, rng)
            group[row, side] = inside + counts[:kind].sum()
        kept = (group >= 0).all(axis=1)
        index = np.repeat(np.arange(int(kept.sum())), 2)
        mixing = sparse.csr_matrix(
            (shares[kept].ravel(), (index, group[kept].ravel())), (int(kept.sum()), self.private), dtype=np.float32
        )
        return rows[kept], mixing, np.repeat(np.arange(len(counts)), counts)

    def _estimated(self, points: Floats, sight: _Sight, seen: Floats, known: Floats, rng: np.random.Generator) -> Any:
        """The mixing without labels: groups, and shares by their nearness, as learned on encodings of public pictures."""
        near = without_labels(points, self.private, rng)
        rehearsal, row, share = sight.rehearsal(len(seen), self.private)
        practised = without_labels(rehearsal, self.private, rng)
        fit = _shares_by_nearness(practised, row, share, self.private)
        return _mixing(near, lambda pair: _features(pair) @ fit)


class _Sight:
    """Encodings of public pictures by the same recipe, in whose coordinates those under attack are compared."""

    def __init__(self, attack: EncodingsAttack, known: Floats, flipped: bool, rng: np.random.Generator) -> None:
        self.attack, self.known, self.flipped, self.rng = attack, known, flipped, rng
        width = sum(size for size in (known.shape[1] * (known.shape[2] - 1), (known.shape[1] - 1) * known.shape[2]))
        count = max(5000, 2 * width)
        mixed = self._mixed(rng.integers(0, len(known), (count, 2)), self.shares(count))
        self.reference = outlines(mixed, not flipped)

    def shares(self, count: int) -> Floats:
        """Shares as published: absolute normal draws scaled to sum to one, none above `largest`."""
        parts = 2 + self.attack.others
        drawn = np.zeros((0, parts))
        while len(drawn) < count:
            more = np.abs(self.rng.normal(size=(2 * count, parts)))
            more /= more.sum(axis=1, keepdims=True)
            drawn = np.concatenate([drawn, more[more.max(axis=1) <= self.attack.largest]])
        return drawn[:count].astype(np.float32)

    def _mixed(self, pair: Ints, shares: Floats) -> Floats:
        rest = self.rng.integers(0, len(self.known), (len(pair), self.attack.others))
        which = np.concatenate([pair, rest], axis=1)
        total = np.zeros((len(pair), *self.known.shape[1:]), np.float32)
        for place in range(which.shape[1]):
            total += shares[:, place, None, None, None] * self.known[which[:, place]]
        return np.abs(total) if self.flipped else total

    def points(self, seen: Floats) -> Floats:
        return whitened(self.reference, outlines(np.abs(seen) if self.flipped else seen, not self.flipped))

    def rehearsal(self, count: int, private: int) -> tuple[Floats, Ints, Floats]:
        """Encodings of public pictures in the place of the private ones: their points, and the truth about them."""
        own = self.rng.choice(len(self.known), private, replace=len(self.known) < private)
        first = np.arange(count) % private
        row = np.stack([first, (first + 1 + self.rng.integers(0, private - 1, count)) % private], axis=1)
        shares = self.shares(count)
        return self.points(self._mixed(own[row], shares)), row, shares[:, :2]


def _signs_sent(seen: Floats) -> bool:
    """Neighbouring pixels of a picture have the same sign more often than not; under coins they do not."""
    signs = np.sign(seen[:500])
    return float((signs[:, :, 1:] * signs[:, :, :-1]).mean()) > SIGNS_SENT


def _features(pair: Floats) -> Floats:
    one, two = pair[:, 0], pair[:, 1]
    return np.stack([np.ones(len(pair)), one, two, one**2, two**2, one * two], axis=1)


def _shares_by_nearness(near: Floats, row: Ints, share: Floats, private: int) -> Floats:
    """Shares of the two nearest groups as a quadratic of nearness, by least squares on a rehearsal."""
    from scipy.optimize import linear_sum_assignment

    strongest = row[np.arange(len(row)), share.argmax(axis=1)]
    votes = np.zeros((near.shape[1], private))
    np.add.at(votes, (near.argmax(axis=1), strongest), 1)
    groups, owners = linear_sum_assignment(-votes)
    owner = np.full(near.shape[1], -1)
    owner[groups] = owners
    top = np.argsort(-near, axis=1)[:, :2]
    truth = sum(np.where(owner[top] == row[:, [side]], share[:, [side]], 0) for side in (0, 1))
    return np.asarray(np.linalg.lstsq(_features(np.take_along_axis(near, top, axis=1)), truth, rcond=None)[0], np.float32)


def _mixing(score: Floats, shares: Callable[[Floats], Floats], least: float = 0.05) -> Any:
    """Two pictures an encoding, those of the largest scores, with shares that leave room for the public ones."""
    import scipy.sparse as sparse

    top = np.argsort(-score, axis=1)[:, :2]
    share = np.clip(shares(np.take_along_axis(score, top, axis=1)), 0, 0.6)
    share = share / np.maximum(1, share.sum(axis=1, keepdims=True) / 0.95)
    share[share < least] = 0
    rows = np.repeat(np.arange(len(score)), 2)
    out = sparse.csr_matrix((share.ravel(), (rows, top.ravel())), score.shape, dtype=np.float32)
    out.eliminate_zeros()
    return out


def _refined(problem: Problem, found: Floats, rng: np.random.Generator) -> Any:
    """The mixing from the pictures found. Candidates are read off the encoding by differences, its signs being guessed."""
    import scipy.sparse as sparse

    middle = problem.mixing @ found
    signed = np.tanh(problem.seen * middle / problem.noise[:, None]) * problem.seen
    steps = _differences(found, problem.shape)
    gram = steps @ steps.T
    gram += 0.02 * np.trace(gram) / len(gram) * np.eye(len(gram), dtype=np.float32)
    parts = [_differences(signed[at : at + 500], problem.shape) @ steps.T for at in range(0, len(signed), 500)]
    score = np.linalg.solve(gram, np.concatenate(parts).T).T
    pair, share = likeliest(problem, found, np.argsort(-score, axis=1)[:, :CANDIDATES], rng)
    rows = np.repeat(np.arange(len(pair)), 2)
    out = sparse.csr_matrix((share.ravel(), (rows, pair.ravel())), score.shape, dtype=np.float32)
    out.eliminate_zeros()
    return out


def _differences(flat: Floats, shape: tuple[int, int, int]) -> Floats:
    pictures = flat.reshape(-1, *shape)
    steps = (pictures[:, :, 1:] - pictures[:, :, :-1], pictures[:, 1:] - pictures[:, :-1])
    return np.concatenate([step.reshape(len(pictures), -1) for step in steps], axis=1)


def _rounded(shares: NDArray[np.float64], total: int) -> Ints:
    """Whole numbers near `shares` that sum to `total`: the largest remainders go up."""
    down = np.floor(shares).astype(np.int64)
    up = np.argsort(-(shares - down))[: total - int(down.sum())]
    down[up] += 1
    return down


def _pairs(alike: NDArray[np.float32]) -> tuple[Ints, Ints]:
    """Two by two, the most alike first."""
    score, one, two = alike + alike.T, [], []
    np.fill_diagonal(score, -np.inf)
    for _ in range(len(score) // 2):
        first, second = np.unravel_index(score.argmax(), score.shape)
        one.append(first)
        two.append(second)
        score[[first, second]] = score[:, [first, second]] = -np.inf
    return np.array(one), np.array(two)


def _alike(one: Floats, two: Floats) -> NDArray[np.float32]:
    """Correlations of pictures, [one, two]."""
    flat = [part.reshape(len(part), -1) - part.reshape(len(part), -1).mean(axis=1, keepdims=True) for part in (one, two)]
    left, right = (part / (np.linalg.norm(part, axis=1, keepdims=True) + 1e-9) for part in flat)
    return np.asarray(left @ right.T)


def _pictures(name: str, values: ArrayLike) -> Floats:
    found = np.asarray(values, np.float32)
    if found.ndim != 4 or min(found.shape[1:3], default=0) < 8 or not np.isfinite(found).all() or np.abs(found).max() > 1:
        raise InvalidValue(
            f"{name} must be finite pictures [count, height, width, channels] of 8 pixels or more a side, with values within "
            f"-1 and 1; got the shape {found.shape}."
        )
    return found


def _labels(values: ArrayLike, count: int) -> Floats:
    found = np.asarray(values, np.float32)
    if found.ndim != 2 or len(found) != count or not np.isfinite(found).all() or (found < 0).any():
        raise InvalidValue(f"labels must be shares [{count} encodings, classes], none below 0; got the shape {found.shape}.")
    return found
