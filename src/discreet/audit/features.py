"""Cells that an output can fall into: what a distinguisher counts.

Every feature is made from the outputs of some runs and then maps any output to a small whole number. Bins see shifts and
scales; low bits and digits see what is hidden below the noise; kinds see types, keys and lengths that depend on the data;
atoms see values that only one world produces; granularity sees the floating-point grid that textbook noise leaves behind
(Mironov 2012); a projection sees directions that single numbers hide; and equations over two elements see the parity of
several. Sums modulo small numbers, equal parts and neighbours that depend on each other are looked for in all numbers at once.

What is fitted to the truth is fitted twice, to either half of the runs, and each half is judged by the other one's fit: fitted
to many numbers it would look best on its own runs whatever leaks.
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
Found = tuple[str, tuple[Feature, ...]]
Scale = Callable[[Floats], Floats]  # one number of each row
Fit = Callable[[Floats, NDArray[np.bool_]], Scale]

_TAIL = np.array([0.001, 0.002, 0.005, 0.01, 0.02])
_LEVELS = np.concatenate([_TAIL, np.linspace(0.04, 0.96, 24), 1.0 - _TAIL[::-1]])
_FEW = np.arange(1, 12) / 12  # what is fitted is worth more in few cells, unless runs are many or the leak is in a tail
_ADDED = 256  # numbers of an output that are looked at together
_HINTED = 16  # numbers of an output that are tried against the hints, and read digit by digit and bit by bit
_DECIMALS, _FRACTION = 12, 52  # digits behind the point, and bits of a float's fraction
_ATOMS = 512
_BITS = 1024  # bits of an output whose parity is looked for
_MODULI = (3, 4, 5, 7, 8, 9, 10, 11, 13, 16, 100, 256)


def features(outputs: Outputs, inside: NDArray[np.bool_], hints: Hints) -> Iterator[Found]:
    """Features that fit these outputs. Where `inside` was used to fit one there are two, fitted to the runs of even and of odd
    places, whose cells mean the same; `unbiased` reads every run by the one that did not see it.
    """
    for name, feature in _plain(outputs, hints):
        yield name, (feature,)
    places = columns(outputs)
    if len(places) > 1 and inside.any() and not inside.all():
        yield from _joint(outputs, inside, places[:_ADDED])


def unbiased(found: tuple[Feature, ...], outputs: Outputs) -> Cells:
    """The cells of the outputs that the features were made from, none of them by a fit to its own truth."""
    cells = [feature(outputs) for feature in found]
    return cells[0] if len(cells) == 1 else np.where(_even(len(outputs)), cells[1], cells[0])


def _even(runs: int) -> NDArray[np.bool_]:
    even: NDArray[np.bool_] = np.arange(runs) % 2 == 0
    return even


def _plain(outputs: Outputs, hints: Hints) -> Iterator[tuple[str, Feature]]:
    yield "atoms", _atoms(outputs.whole, lambda others: others.whole)
    yield "pickled atoms", _atoms(outputs.pickles, lambda others: others.pickles)
    yield "structure", lambda others: others.structure
    yield "equal texts", lambda others: others.equal_texts
    for part, label in (("kinds", "kind"), ("texts", "text")):
        for name in outputs.names(part):
            yield f"{label} of {name}", _coded(outputs, part, name)
    places = columns(outputs)
    for number, (name, width, place) in enumerate(places):
        near = number < _HINTED
        for label, read in _readings(*outputs.column(name, width, place), hints if near else Hints(), closely=near):
            yield f"{label} of {name}" + (f"[{place}]" if width > 1 else ""), _of_column(name, width, place, read)


def columns(outputs: Outputs) -> list[tuple[str, int, int]]:
    """Name, width and place of every column of numbers that is not the same throughout; the output's own numbers first."""
    places = []
    for name, width in outputs.widths.items():
        values, bits = outputs.block(name, width)
        varies = (bits != bits[:1]).any(axis=0) | (np.isnan(values) != np.isnan(values[:1])).any(axis=0)
        places += [(name, width, int(place)) for place in np.flatnonzero(varies)]
    return sorted(places, key=lambda place: aside(place[0]))[:MOST]


def _readings(values: Floats, bits: NDArray[np.uint64], hints: Hints, *, closely: bool) -> Iterator[tuple[str, Read]]:
    """The ways to read one column of numbers; `closely`, every digit and every bit of those that are not whole."""
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
        for power in range(1, _DECIMALS + 1) if closely else (1, 2, 3):
            yield f"decimal {power}", lambda v, b, power=power: _digit(v, power)  # type: ignore[misc]
        if closely:
            yield "decimals written", lambda v, b: _written(v)
            for bit in range(3, _FRACTION):
                yield f"bit {bit}", lambda v, b, bit=bit: (b >> np.uint64(bit) & np.uint64(1)).astype(np.int64)  # type: ignore[misc]
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


def _written(values: Floats) -> Cells:
    """How many digits stand behind the point in the shortest decimal that means the number; -1 where there is none."""
    told = [np.format_float_positional(each, trim="-") for each in values.tolist()]
    return np.array([len(each.partition(".")[2]) if np.isfinite(value) else -1 for each, value in zip(told, values.tolist())])


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
) -> Iterator[Found]:  # fmt: skip
    """Features of many numbers at once."""

    def table(others: Outputs) -> Floats:
        return np.stack([others.column(*place)[0] for place in places], axis=1)

    for label, feature in _parities(outputs, inside, places):
        yield label, (feature,)  # true in all runs, which no fit is by chance
    own = [place for place, (name, _, _) in enumerate(places) if not aside(name)]
    if own:
        for modulus in _MODULI:
            yield f"sum modulo {modulus}", (lambda others, m=modulus: _sum(table(others)[:, own], m),)  # type: ignore[misc]
        yield "equal numbers", (lambda others: _equal(table(others)[:, own]),)
    seen = table(outputs)
    middle, size = _bounded(seen).mean(axis=0), _bounded(seen).std(axis=0)
    size = np.where((size > 0) & np.isfinite(size), size, 1.0)
    ways: list[tuple[str, Scale]] = [
        ("spread", lambda rows: _bounded(rows).std(axis=1)),
        ("neighbours", lambda rows: _neighbours((_bounded(rows) - middle) / size)),
    ]
    for label, read in ways:
        yield label, (_cut(table, read, _edges(read(seen), _LEVELS)),)
    even = _even(len(outputs))
    if not all(0 < inside[half].sum() < half.sum() for half in (even, ~even)):
        return  # a half shows one world only
    for label, fit in (("projection", _projection), ("all numbers together", _together)):
        fits = [(fit(seen[half], inside[half]), half) for half in (even, ~even)]
        for level, levels in (("", _FEW), (", finely", _LEVELS)):
            first, second = (_cut(table, read, _between(read(seen)[~half], levels)) for read, half in fits)
            yield f"{label}{level}", (first, second)


def _cut(table: Callable[[Outputs], Floats], read: Scale, edges: Floats) -> Feature:
    return lambda others: np.searchsorted(edges, read(table(others)), side="right")


def _between(values: Floats, levels: Floats) -> Floats:
    """About these quantiles, halfway between two values, so that rounding moves no value over an edge; one for each level."""
    seen = np.unique(values)
    place = np.clip(np.searchsorted(seen, np.quantile(values, levels, method="higher")), 1, max(len(seen) - 1, 1))
    return seen[place - 1] / 2 + seen[np.minimum(place, len(seen) - 1)] / 2


def _sum(rows: Floats, modulus: int) -> Cells:
    """The sum of whole parts modulo a small number; of numbers that are none, nothing is added."""
    with np.errstate(all="ignore"):
        whole = np.where(np.abs(rows) < 2.0**53, np.floor(rows), 0.0)
    total: Cells = (np.nan_to_num(whole).astype(np.int64) % modulus).sum(axis=1) % modulus
    return total


def _equal(rows: Floats) -> Cells:
    """How many numbers are equal to another one."""
    ordered = np.sort(rows, axis=1)
    count: Cells = (ordered[:, 1:] == ordered[:, :-1]).sum(axis=1)
    return count


def _neighbours(rows: Floats) -> Floats:
    """How much each number says of the next."""
    mean: Floats = (rows[:, 1:] * rows[:, :-1]).mean(axis=1)
    return mean


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
    whole = _whole(outputs, places)
    varies = np.bitwise_or.reduce(whole ^ whole[:1], axis=0)
    known = [(place, bit) for place, each in enumerate(varies.tolist()) for bit in range(53) if each >> bit & 1]
    if len(known) <= min(_BITS, len(outputs) - 64):
        chosen = subset(np.stack([whole[:, place] >> bit & 1 for place, bit in known] or [whole[:, 0] & 0], axis=1), inside)
        if chosen is not None:
            kept = [each for each, used in zip(known, chosen) if used]
            yield "parity of bits", lambda others: _parity(_whole(others, places), kept)


def _whole(outputs: Outputs, places: Sequence[tuple[str, int, int]]) -> Cells:
    """The whole part of every number; of what is none, 0."""
    table = np.stack([outputs.column(*place)[0] for place in places], axis=1)
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.where(np.abs(table) < 2.0**53, np.floor(table), 0.0)).astype(np.int64)


def _parity(whole: Cells, bits: Sequence[tuple[int, int]]) -> Cells:
    """The parity of these bits of these numbers."""
    total = np.zeros(len(whole), dtype=np.int64)
    for place, bit in bits:
        total ^= whole[:, place] >> bit & 1
    return total


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
