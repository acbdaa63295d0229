"""Encodings grouped by the private picture in them: weighted k-means on the sphere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
SEEDS, ROUNDS, LAST = 6, 20, 15


def starts(points: Floats, weight: Floats, count: int, near: int, rng: np.random.Generator) -> Floats:
    """Centres from strong points far from those chosen before, each averaged with its nearest."""
    alike = points @ points.T
    np.fill_diagonal(alike, 0)
    closest, centres = np.full(len(points), -1.0), []
    for _ in range(count):
        chance = np.exp(-20 * np.maximum(closest, 0)) * weight
        first = rng.choice(len(points), p=chance / chance.sum())
        centre = points[np.r_[first, np.argpartition(-alike[first], min(near, len(points) - 1))[:near]]].sum(axis=0)
        centres.append(centre / np.linalg.norm(centre))
        closest = np.maximum(closest, points @ centres[-1])
    return np.array(centres)


def moved(centres: Floats, points: Floats, weight: Floats, rounds: int) -> tuple[Floats, Ints]:
    """Lloyd's rounds: each centre becomes the weighted mean of its points; one without points stays."""
    nearest = (points @ centres.T).argmax(axis=1)
    for _ in range(rounds):
        share = np.zeros((len(centres), len(points)), np.float32)
        share[nearest, np.arange(len(points))] = weight
        sums = share @ points
        length = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(length > 0, sums / np.maximum(length, 1e-12), centres)
        nearest = (points @ centres.T).argmax(axis=1)
    return centres, nearest


def cohesion(points: Floats, weight: Floats, nearest: Ints, count: int) -> float:
    """The mean similarity of two points of a group, over groups by weight."""
    total = 0.0
    for group in range(count):
        part = nearest == group
        pulled, mass = weight[part], float(weight[part].sum())
        sums = (points[part] * pulled[:, None]).sum(axis=0)
        total += (float(sums @ sums) - float((pulled**2).sum())) / max(mass, 1e-9)
    return total


def by_weight(points: Floats, share: Floats, count: int, restarts: int, rng: np.random.Generator) -> Ints:
    """Slots of one class, `share` being how much of its encoding each is, in `count` groups: the best of several starts."""
    if count <= 1:
        return np.zeros(len(points), np.int64)
    strong = np.argsort(-share)[: max(min(12 * count, len(share) // 2), int(0.35 * len(share)), count)]
    chosen, weight = points[strong], share[strong] ** 2
    tries = []
    for _ in range(restarts):
        centres, nearest = moved(starts(chosen, weight, count, SEEDS, rng), chosen, weight, ROUNDS)
        tries.append((cohesion(chosen, weight, nearest, count), centres))
    best = max(tries, key=lambda one: one[0])[1]
    return moved(best, points, share**2, LAST)[1]


def without_labels(points: Floats, count: int, rng: np.random.Generator) -> Floats:
    """How near each encoding is to each of `count` private pictures, [encodings, count]: more groups first, then merged."""
    from scipy.cluster.hierarchy import fcluster, linkage

    alike = points @ points.T
    np.fill_diagonal(alike, 0)
    strength = np.maximum(np.sort(np.partition(alike, -8, axis=1)[:, -8:], axis=1).mean(axis=1), 0)
    strength /= strength.max()
    strong = np.argsort(-strength)[: max(int(0.6 * len(points)), 3 * count)]
    chosen, weight = points[strong], strength[strong] ** 2
    centres, nearest = moved(starts(chosen, weight, 3 * count, 4, rng), chosen, weight, 10)
    mass = np.bincount(nearest, weight, len(centres))
    centres, mass = centres[mass > 0], mass[mass > 0]
    tree, apart = linkage(centres, "average", metric="cosine"), 0.62
    merged = fcluster(tree, apart, "distance") - 1
    while merged.max() + 1 < min(count, len(centres)):
        apart -= 0.01
        merged = fcluster(tree, apart, "distance") - 1
    sums = np.zeros((merged.max() + 1, points.shape[1]), np.float32)
    np.add.at(sums, merged, centres * mass[:, None].astype(np.float32))
    heaviest = np.argsort(-np.bincount(merged, mass))[:count]
    centres = sums[heaviest] / np.linalg.norm(sums[heaviest], axis=1, keepdims=True)
    centres, _ = moved(centres, chosen, weight, 8)
    centres, _ = moved(centres, points, strength**2, 10)
    return np.asarray(points @ centres.T)
