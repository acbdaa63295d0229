"""The trade-off as text: the same picture as the plot, for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log10

_DECADES, _ROWS, _COLUMNS = 4, 3, 11  # rows and columns per decade


def sketch(powers: Callable[[Sequence[float]], Sequence[float]]) -> str:
    """The ceiling (●) over the diagonal of blind guessing (·), both axes from 0.01 % to 100 % on a log scale.

    >>> print(sketch(lambda levels: [min(1.0, 20 * level) for level in levels]).splitlines()[0])
     100 % ┤                            ●●●●●●●●●●●●●●●●●
    """
    height, width = _DECADES * _ROWS, _DECADES * _COLUMNS
    grid = [[" "] * (width + 1) for _ in range(height + 1)]
    reached = powers([10 ** (column / _COLUMNS - _DECADES) for column in range(width + 1)])
    for column, power in enumerate(reached):
        grid[round(column / width * height)][column] = "·"
        grid[round((log10(max(power, 10.0**-_DECADES)) / _DECADES + 1) * height)][column] = "●"
    labels = {step * _ROWS: f"{100 * 10.0 ** (step - _DECADES):g} %" for step in range(_DECADES + 1)}
    lines = [f"{labels.get(row, ''):>6} ┤{''.join(grid[row])}".rstrip() for row in range(height, -1, -1)]
    rule = "┬".join(["─" * (_COLUMNS - 1)] * _DECADES)
    ticks = "".join(f"{labels[step * _ROWS]:<{_COLUMNS}}" for step in range(_DECADES + 1))
    return "\n".join([*lines, f"       └┬{rule}┬", f"        {ticks}".rstrip()])
