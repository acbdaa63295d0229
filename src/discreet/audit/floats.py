"""Traces of floating-point noise in the lowest bits (Mironov 2012): the grid gives away what the noise was added to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.audit.flatten import aside, flatten
from discreet.core import Event

Floats = NDArray[np.float64]
Cells = NDArray[np.int64]

_COARSE = np.array([-np.inf, -1.0, -0.5, 0.0, 0.5, 1.0, np.inf])
_CENTRES, _SCALES = 8, 4


@dataclass(frozen=True, slots=True)
class Hints:
    """What noise may have been added to, and of which scale: read from the two data sets and from the claim.

    Any numbers would be valid, since a feature is learned on some runs and judged on others; these may be the right ones.
    """

    centres: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()

    @staticmethod
    def of(data: Iterable[Any], events: Iterable[Event]) -> Hints:
        """The numbers of each data set, their sums and their counts; and the scales of the events, in units of the distances.

        >>> from discreet.core import Laplace
        >>> Hints.of([[1.0], []], [Laplace(100.0)])
        Hints(centres=(0.0, 1.0), scales=(100.0,))
        """
        near: list[float] = []
        for each in data:
            for numbers in (block for name, block in flatten(each).numbers.items() if not aside(name)):
                with np.errstate(all="ignore"):
                    near += [float(numbers.sum()), float(len(numbers)), *numbers[:_CENTRES].tolist()]
        centres = tuple(sorted({each for each in near if np.isfinite(each)}, key=abs)[:_CENTRES])
        gaps = sorted({abs(a - b) for a in centres for b in centres if a != b} | {1.0})
        scales = dict.fromkeys(size * gap for event in events for size in _sizes(event) for gap in gaps)
        return Hints(centres, tuple(islice((each for each in scales if 0 < each < np.inf), _SCALES)))


def lowest_bit(values: Floats, *, crossed: bool) -> Cells:
    """The place of the lowest set bit: the power of two that a float is an odd multiple of; by its size where `crossed`."""
    finite = np.where(np.isfinite(values), values, 0.0)
    mantissa, exponent = np.frexp(finite)
    whole = np.ldexp(np.abs(mantissa), 53).astype(np.int64)
    lowest = np.log2(np.maximum(whole & -whole, 1)).astype(np.int64)
    place = np.where(finite == 0, 200, np.clip(exponent - 53 + lowest, -199, 199))
    sizes = np.searchsorted(_COARSE, finite) if crossed else 0
    return np.asarray((place + 200) * 8 + sizes, dtype=np.int64)


def reachable(values: Floats, centre: float) -> Cells:
    """Is there a float that, added to `centre`, rounds to this value? Near a power of two the answer is no for some.

    >>> reachable(np.array([0.5, 2.0**-60]), 1.0).tolist()
    [1, 0]
    """
    with np.errstate(all="ignore"):
        noise = values - centre
        near = (noise, np.nextafter(noise, -np.inf), np.nextafter(noise, np.inf))
        hit: Cells = np.any([each + centre == values for each in near], axis=0).astype(np.int64)
    return hit


def on_lattice(values: Floats, centre: float, scale: float) -> Cells:
    """Is this value `centre` plus or minus `scale` times the logarithm of a multiple of 2^-52?

    Textbook Laplace noise is such a logarithm, of a uniform number of 52 or 53 bits. It reaches so few values that another
    centre rarely explains one.

    >>> noise = 100.0 * np.log((1 + np.arange(1000)) / 1024)
    >>> bool(on_lattice(1.0 + noise, 1.0, 100.0).mean() > 2 * on_lattice(1.0 + noise, 0.0, 100.0).mean())
    True
    """
    finite = np.where(np.isfinite(values), values, centre)
    with np.errstate(all="ignore"):
        steps = np.rint(np.ldexp(np.exp(-np.abs(finite - centre) / scale), 52))
        logs = [scale * np.log(np.ldexp(np.maximum(steps + off, 1.0), -52)) for off in (-2, -1, 0, 1, 2)]
        hits = [(centre + log == values) | (centre - log == values) for log in logs]
    hit: Cells = np.any(hits, axis=0).astype(np.int64)
    return hit


def _sizes(event: Any) -> list[float]:
    """The noise multipliers of an event and of those within it."""
    found = [float(event.noise_multiplier)] if hasattr(event, "noise_multiplier") else []
    for name in ("event", "events"):
        inner = getattr(event, name, ())
        for each in inner if isinstance(inner, tuple) else (inner,):
            found += _sizes(each)
    return found
