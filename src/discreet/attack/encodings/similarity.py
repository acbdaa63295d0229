"""Which encodings share a private picture: differences of neighbouring pixels of |x|, whitened on encodings of one's own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def outlines(pictures: Floats, signed: bool) -> Floats:
    """Differences of neighbours, across and down; where signs are hidden, the square root of their absolute values."""
    steps = (pictures[:, :, 1:] - pictures[:, :, :-1], pictures[:, 1:] - pictures[:, :-1])
    seen = steps if signed else [np.abs(step) for step in steps]
    flat = np.concatenate([step.mean(axis=3).reshape(len(pictures), -1) for step in seen], axis=1)
    return flat if signed else np.asarray(np.sqrt(flat), np.float32)


def whitened(reference: Floats, found: Floats, ridge: float = 0.3) -> Floats:
    """`found` in the coordinates in which `reference`, which shares no private picture, is round; each of length one."""
    middle, spread = reference.mean(axis=0), reference.std(axis=0) + 1e-6
    flat = (reference - middle) / spread
    sizes, axes = np.linalg.eigh(flat.T @ flat / len(flat))
    turned = ((found - middle) / spread) @ axes / np.sqrt(np.maximum(sizes, 0) + ridge * sizes.mean())
    return np.asarray(turned / (np.linalg.norm(turned, axis=1, keepdims=True) + 1e-12), np.float32)
