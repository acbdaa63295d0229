"""Cells that an output can fall into: what a distinguisher counts.

Every feature is made from the outputs of some runs and then maps any output to a small whole number. Bins see shifts
and scales, atoms see values that only one world can produce, granularity sees the floating-point grid that textbook
noise leaves behind (Mironov 2012), and a projection sees directions that single numbers hide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Cells = NDArray[np.int64]
Feature = Callable[[Sequence[Any]], Cells]

_TAIL = np.array([0.001, 0.002, 0.005, 0.01, 0.02])
_LEVELS = np.concatenate([_TAIL, np.linspace(0.04, 0.96, 24), 1.0 - _TAIL[::-1]])
_COLUMNS = 16  # numbers of a vector that get features of their own
_ADDED = 256  # numbers of a vector that are looked at together
_ATOMS = 512
_COARSE = np.array([-np.inf, -1.0, -0.5, 0.0, 0.5, 1.0, np.inf])


def features(outputs: Sequence[Any], inside: NDArray[np.bool_]) -> dict[str, Feature]:
    """Features that fit these outputs; `inside` is used for the projection only."""
    found: dict[str, Feature] = {"atoms": _atoms(outputs), "shape": _shape}
    table = as_table(outputs)
    if table is None:
        return found
    for column in range(min(table.shape[1], _COLUMNS)):
        found[f"bins of number {column}"] = _bins(table, _column(column, table.shape[1]))
        found[f"granularity of number {column}"] = _granularity(_column(column, table.shape[1]), crossed=False)
        found[f"granularity by size of number {column}"] = _granularity(_column(column, table.shape[1]), crossed=True)
    if table.shape[1] > 1 and inside.any() and not inside.all():
        found["projection"] = _bins(table, _projection(table, inside))
        found["all numbers together"] = _bins(table, _together(table, inside))
        found["spread"] = _bins(table, lambda rows: np.nan_to_num(rows).std(axis=1))
    return found


def as_table(outputs: Sequence[Any]) -> NDArray[np.float64] | None:
    """The outputs as rows of numbers, or None where they are not all numbers in the same shape."""
    try:
        array = np.asarray(outputs)
    except ValueError:
        return None
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            return None
    if array.dtype.kind not in "fiub" or not len(array):
        return None
    return array.reshape(len(array), -1).astype(np.float64)


def _rows(outputs: Sequence[Any], width: int) -> NDArray[np.float64]:
    """The outputs as rows of this width; an output of another shape is a row of NaN."""
    table = as_table(outputs)
    if table is not None and table.shape[1] == width:
        return table
    rows = np.full((len(outputs), width), np.nan)
    for i, output in enumerate(outputs):
        row = as_table([output])
        if row is not None and row.shape[1] == width:
            rows[i] = row[0]
    return rows


def _column(index: int, width: int) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    def read(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return rows[:, index]

    read.__dict__["width"] = width
    return read


def _bins(table: NDArray[np.float64], read: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Feature:
    """Quantile bins of one number, finer in the tails; NaN is a bin of its own."""
    width = table.shape[1]
    numbers = read(table)
    finite = numbers[np.isfinite(numbers)]
    edges = np.unique(np.quantile(finite, _LEVELS)) if len(finite) else np.zeros(1)

    def cells(outputs: Sequence[Any]) -> Cells:
        values = read(_rows(outputs, width))
        return np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values, side="right")).astype(np.int64)

    return cells


def _granularity(read: Any, *, crossed: bool) -> Feature:
    """The place of the lowest set bit of a float: the power of two it is an odd multiple of."""

    def cells(outputs: Sequence[Any]) -> Cells:
        values = read(_rows(outputs, read.width))
        finite = np.where(np.isfinite(values), values, 0.0)
        mantissa, exponent = np.frexp(finite)
        whole = np.ldexp(np.abs(mantissa), 53).astype(np.int64)
        lowest = np.log2(np.maximum(whole & -whole, 1)).astype(np.int64)
        place = np.where(finite == 0, 200, np.clip(exponent - 53 + lowest, -199, 199))
        sizes = np.searchsorted(_COARSE, finite) if crossed else 0
        return np.asarray((place + 200) * 8 + sizes, dtype=np.int64)

    return cells


def _projection(table: NDArray[np.float64], inside: NDArray[np.bool_]) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Fisher's linear discriminant, with a touch of ridge."""
    clean = np.nan_to_num(table, posinf=0.0, neginf=0.0)
    gap = clean[inside].mean(axis=0) - clean[~inside].mean(axis=0)
    centred = np.where(inside[:, None], clean - clean[inside].mean(axis=0), clean - clean[~inside].mean(axis=0))
    spread = centred.T @ centred / len(clean)
    ridge = 1e-9 * (np.trace(spread) / len(spread) + 1e-300)
    weights = np.linalg.lstsq(spread + ridge * np.eye(len(spread)), gap, rcond=None)[0]
    return lambda rows: np.nan_to_num(rows, posinf=0.0, neginf=0.0) @ weights


def _together(table: NDArray[np.float64], inside: NDArray[np.bool_]) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """The sum over the numbers of each one's own log-likelihood ratio: the best there is where their noise is independent."""
    clean = np.nan_to_num(table[:, :_ADDED])
    edges = [np.unique(np.quantile(column, np.linspace(0.06, 0.94, 15))) for column in clean.T]
    ratios = []
    for column, cuts in zip(clean.T, edges):
        cells = np.searchsorted(cuts, column, side="right")
        yes = np.bincount(cells[inside], minlength=len(cuts) + 1) + 2.0
        no = np.bincount(cells[~inside], minlength=len(cuts) + 1) + 2.0
        ratios.append(np.log(yes / yes.sum()) - np.log(no / no.sum()))

    def read(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        columns = np.nan_to_num(rows[:, :_ADDED]).T
        terms = [ratio[np.searchsorted(cuts, column, side="right")] for column, cuts, ratio in zip(columns, edges, ratios)]
        return np.asarray(np.sum(terms, axis=0), dtype=np.float64)

    return read


def _atoms(outputs: Sequence[Any]) -> Feature:
    """Each value seen at least twice is a cell; all others share one."""
    counts: dict[str, int] = {}
    for output in outputs:
        name = _name(output)
        counts[name] = counts.get(name, 0) + 1
    often = sorted((name for name, seen in counts.items() if seen > 1), key=lambda name: -counts[name])[:_ATOMS]
    index = {name: i + 1 for i, name in enumerate(often)}
    return lambda found: np.array([index.get(_name(output), 0) for output in found], dtype=np.int64)


def _shape(outputs: Sequence[Any]) -> Cells:
    """What kind of thing came out, and how long it is: an output set that depends on the data shows here."""
    kinds = [hash_of(f"{type(output).__name__}:{len(output) if hasattr(output, '__len__') else -1}") for output in outputs]
    return np.array(kinds, dtype=np.int64)


def hash_of(text: str) -> int:
    """A small whole number for a string, the same in every process."""
    import zlib

    return zlib.crc32(text.encode()) & 0xFFFFF


def _name(output: Any) -> str:
    if isinstance(output, np.ndarray):
        return repr(output.tolist())
    if isinstance(output, (dict, set, frozenset)):
        return repr(sorted(output.items() if isinstance(output, dict) else output, key=repr))
    return repr(output)
