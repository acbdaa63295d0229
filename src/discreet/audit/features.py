"""Cells that an output can fall into: what a distinguisher counts.

Every feature is made from the outputs of some runs and then maps any output to a small whole number. Bins see shifts and
scales; low bits and digits see what is hidden below the noise; kinds see types, keys and lengths that depend on the data;
atoms see values that only one world produces; granularity sees the floating-point grid that textbook noise leaves behind
(Mironov 2012); a projection sees directions that single numbers hide; and equations over two elements see the parity of
several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from discreet.audit.columns import MOST, Outputs
from discreet.audit.flatten import aside
from discreet.audit.floats import Hints, lowest_bit, on_lattice, reachable

Floats = NDArray[np.float64]
Cells = NDArray[np.int64]
Feature = Callable[[Outputs], Cells]
Read = Callable[[Floats, NDArray[np.uint64]], Cells]

_TAIL = np.array([0.001, 0.002, 0.005, 0.01, 0.02])
_LEVELS = np.concatenate([_TAIL, np.linspace(0.04, 0.96, 24), 1.0 - _TAIL[::-1]])
_ADDED = 256  # numbers of an output that are looked at together
_HINTED = 16  # numbers of an output that are tried against the hints
_ATOMS = 512


def features(outputs: Outputs, inside: NDArray[np.bool_], hints: Hints) -> Iterator[tuple[str, Feature]]:
    """Features that fit these outputs; `inside` is used for directions only."""
    yield "atoms", _atoms(outputs.whole, lambda others: others.whole)
    yield "pickled atoms", _atoms(outputs.pickles, lambda others: others.pickles)
    yield "structure", lambda others: others.structure
    for part, label in (("kinds", "kind"), ("texts", "text")):
        for name in outputs.names(part):
            yield f"{label} of {name}", _coded(outputs, part, name)
    places = columns(outputs)
    for number, (name, width, place) in enumerate(places):
        for label, read in _readings(*outputs.column(name, width, place), hints if number < _HINTED else Hints()):
            yield f"{label} of {name}" + (f"[{place}]" if width > 1 else ""), _of_column(name, width, place, read)
    if len(places) > 1 and inside.any() and not inside.all():
        yield from _joint(outputs, inside, places[:_ADDED])


def columns(outputs: Outputs) -> list[tuple[str, int, int]]:
    """Name, width and place of every column of numbers that is not the same throughout; the output's own numbers first."""
    places = []
    for name, width in outputs.widths.items():
        values, bits = outputs.block(name, width)
        varies = (bits != bits[:1]).any(axis=0) | (np.isnan(values) != np.isnan(values[:1])).any(axis=0)
        places += [(name, width, int(place)) for place in np.flatnonzero(varies)]
    return sorted(places, key=lambda place: aside(place[0]))[:MOST]


def _readings(values: Floats, bits: NDArray[np.uint64], hints: Hints) -> Iterator[tuple[str, Read]]:
    """The ways to read one column of numbers."""
    finite = values[np.isfinite(values)]
    edges = _edges(finite, _LEVELS)
    yield "bins", lambda v, b: np.where(np.isnan(v), len(edges) + 1, np.searchsorted(edges, v, side="right"))
    yield "values", _known(values)
    yield "lowest bit", lambda v, b: (b & np.uint64(1)).astype(np.int64)
    yield "low bits", lambda v, b: (b & np.uint64(7)).astype(np.int64)
    yield "last digit", lambda v, b: _digit(v, 0)
    yield "granularity", lambda v, b: lowest_bit(v, crossed=False)
    if not (finite == np.rint(finite)).all():
        yield "whole part's parity", lambda v, b: _digit(v, 0) % 2
        for power in (1, 2, 3):
            yield f"decimal {power}", lambda v, b, power=power: _digit(v, power)  # type: ignore[misc]
        yield "granularity by size", lambda v, b: lowest_bit(v, crossed=True)
        for centre in hints.centres:
            yield f"granularity around {centre:g}", lambda v, b, c=centre: reachable(v, c)  # type: ignore[misc]
            for scale in hints.scales:
                yield (
                    f"granularity of scale {scale:g} around {centre:g}",
                    lambda v, b, c=centre, s=scale: on_lattice(v, c, s),  # type: ignore[misc]
                )


def _edges(values: Floats, levels: Floats) -> Floats:
    """Quantiles, each once; none of them is made up between two values, which could overflow."""
    return np.unique(np.quantile(values, levels, method="higher")) if len(values) else np.zeros(1)


def _of_column(name: str, width: int, place: int, read: Read) -> Feature:
    return lambda outputs: np.asarray(read(*outputs.column(name, width, place)), dtype=np.int64)


def _coded(outputs: Outputs, part: str, name: str) -> Feature:
    return _atoms(outputs.codes(part, name), lambda others: others.codes(part, name))


def _digit(values: Floats, power: int) -> Cells:
    """A digit of the decimal number, the last before the point at power 0; 10 where there is no number."""
    with np.errstate(all="ignore"):
        digit = np.floor(np.abs(values) * 10.0**power * (1.0 + 1e-15)) % 10
    return np.where(np.isfinite(digit), digit, 10).astype(np.int64)


def _known(values: Floats) -> Read:
    """Each value seen at least twice is a cell; all others share one."""
    often, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_ATOMS]
    kept = np.sort(often[order][counts[order] > 1])

    def read(v: Floats, b: NDArray[np.uint64]) -> Cells:
        if not len(kept):
            return np.zeros(len(v), dtype=np.int64)
        place = np.minimum(np.searchsorted(kept, v), len(kept) - 1)
        return np.where(kept[place] == v, place + 1, 0).astype(np.int64)

    return read


def _atoms(codes: Cells, read: Callable[[Outputs], Cells]) -> Feature:
    """The same for texts, kinds and whole outputs."""
    seen, counts = np.unique(codes, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_ATOMS]
    kept = np.sort(seen[order][counts[order] > 1])

    def cells(outputs: Outputs) -> Cells:
        found = read(outputs)
        if not len(kept):
            return np.zeros(len(found), dtype=np.int64)
        place = np.minimum(np.searchsorted(kept, found), len(kept) - 1)
        return np.where(kept[place] == found, place + 1, 0).astype(np.int64)

    return cells


def _joint(
    outputs: Outputs, inside: NDArray[np.bool_], places: Sequence[tuple[str, int, int]]
) -> Iterator[tuple[str, Feature]]:  # fmt: skip
    """Features of many numbers at once."""

    def table(others: Outputs) -> Floats:
        return np.stack([others.column(*place)[0] for place in places], axis=1)

    yield from _parities(outputs, inside, places)
    seen = table(outputs)
    for label, read in (
        ("projection", _projection(seen, inside)),
        ("all numbers together", _together(seen, inside)),
        ("spread", lambda rows: _bounded(rows).std(axis=1)),
    ):
        edges = _edges(read(seen), _LEVELS)
        yield label, lambda others, read=read, edges=edges: np.searchsorted(edges, read(table(others)), side="right")  # type: ignore[misc]


def _parities(
    outputs: Outputs, inside: NDArray[np.bool_], places: Sequence[tuple[str, int, int]]
) -> Iterator[tuple[str, Feature]]:  # fmt: skip
    """The parity of some of the numbers, where one tells the worlds apart in every run: linear equations over two elements."""
    reads: dict[str, Read] = {
        "whole parts": lambda v, b: _digit(v, 0) & 1,
        "lowest bits": lambda v, b: (b & np.uint64(1)).astype(np.int64),
    }
    for label, read in reads.items():

        def table(others: Outputs, read: Read = read) -> Cells:
            return np.stack([read(*others.column(*place)) for place in places], axis=1)

        chosen = subset(table(outputs), inside)
        if chosen is not None:
            yield f"parity of {label}", lambda others, table=table, chosen=chosen: table(others)[:, chosen].sum(axis=1) & 1  # type: ignore[misc]


def subset(bits: Cells, inside: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """The columns whose parity is that of `inside`, or its opposite, in all rows; None where there are none.

    >>> bits = np.random.default_rng(1).integers(0, 2, (100, 5))
    >>> subset(bits, (bits[:, 1] ^ bits[:, 4]) == 0).tolist()
    [False, True, False, False, True]
    """
    width = bits.shape[1]
    rows = min(len(bits), width + 64)  # a system that so many more rows satisfy by chance has odds of 2^-64
    powers = [1 << column for column in range(width)]
    pivots: dict[int, int] = {}
    for row, truth in zip(bits[:rows].tolist(), inside[:rows].tolist()):
        equation = sum(power for power, bit in zip(powers, row) if bit) | 1 << width | int(truth) << (width + 1)
        while unknown := equation & ((2 << width) - 1):
            lowest = unknown & -unknown
            if lowest not in pivots:
                pivots[lowest] = equation
                break
            equation ^= pivots[lowest]
        if not unknown and equation:
            return None
    chosen = 0
    for lowest in sorted(pivots, reverse=True):  # unknowns without an equation are left out
        equation = pivots[lowest]
        others = equation & ((2 << width) - 1) & ~lowest & chosen
        if (others.bit_count() + (equation >> (width + 1))) & 1:
            chosen |= lowest
    found = np.array([bool(chosen & power) for power in powers])
    parity = (bits[:, found].sum(axis=1) & 1) ^ (chosen >> width & 1)
    return found if found.any() and bool((parity == inside).all()) else None


def _projection(table: Floats, inside: NDArray[np.bool_]) -> Callable[[Floats], Floats]:
    """Fisher's linear discriminant on standardised numbers, with a touch of ridge."""
    bounded = _bounded(table)
    middle, size = bounded.mean(axis=0), bounded.std(axis=0)
    size = np.where(size > 0, size, 1.0)
    clean = (bounded - middle) / size
    means = np.where(inside[:, None], clean[inside].mean(axis=0), clean[~inside].mean(axis=0))
    spread = (clean - means).T @ (clean - means) / len(clean)
    gap = clean[inside].mean(axis=0) - clean[~inside].mean(axis=0)
    weights = np.linalg.lstsq(spread + 1e-9 * np.eye(len(spread)), gap, rcond=None)[0]
    return lambda rows: ((_bounded(rows) - middle) / size) @ weights


def _bounded(rows: Floats) -> Floats:
    return np.clip(np.nan_to_num(rows, posinf=0.0, neginf=0.0), -1e100, 1e100)


def _together(table: Floats, inside: NDArray[np.bool_]) -> Callable[[Floats], Floats]:
    """The sum over the numbers of each one's own log-likelihood ratio: the best there is where their noise is independent."""
    clean = np.nan_to_num(table)
    edges = [_edges(column, np.linspace(0.06, 0.94, 15)) for column in clean.T]
    ratios = []
    for column, cuts in zip(clean.T, edges):
        cells = np.searchsorted(cuts, column, side="right")
        yes = np.bincount(cells[inside], minlength=len(cuts) + 1) + 2.0
        no = np.bincount(cells[~inside], minlength=len(cuts) + 1) + 2.0
        ratios.append(np.log(yes / yes.sum()) - np.log(no / no.sum()))

    def read(rows: Floats) -> Floats:
        columns = np.nan_to_num(rows).T
        terms = [ratio[np.searchsorted(cuts, column, side="right")] for column, cuts, ratio in zip(columns, edges, ratios)]
        return np.asarray(np.sum(terms, axis=0), dtype=np.float64)

    return read
