"""Names of columns, which a model and the rows must share in one order: numbers alone do not tell which column is which."""

from __future__ import annotations

from typing import Any

from discreet.core import check
from discreet.errors import InvalidValue

LONGEST = 200


def column_names(names: Any, width: int | None = None) -> tuple[str, ...]:
    """The names, after checking that they are different words, one for each column."""
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and len(name) <= LONGEST for name in names):
        raise InvalidValue(f"names must be a list of words of at most {LONGEST} letters, one for each column.")
    if len(set(names)) < len(names) or (width is not None and len(names) != width):
        raise InvalidValue(f"names must be different, one for each of the columns; found {len(names)}.")
    return tuple(names)


def same_columns(model: tuple[str, ...] | None, rows: tuple[str, ...] | None) -> None:
    """Refuse rows whose columns are others than the model's, or in another order, where both have names."""
    if model is None or rows is None or model == rows:
        return
    if sorted(model) == sorted(rows):
        place = next(i for i, (one, other) in enumerate(zip(model, rows, strict=True)) if one != other)
        raise InvalidValue(
            f"The columns have another order than the model's: column {place + 1} is {check.shown(rows[place])} in the rows "
            f"and {check.shown(model[place])} in the model. Encrypt them in the model's order."
        )
    lacking, extra = [n for n in model if n not in rows], [n for n in rows if n not in model]
    told = [f"{what} {', '.join(map(check.shown, some[:5]))}" for what, some in (("lack", lacking), ("have", extra)) if some]
    raise InvalidValue(f"The columns are not the model's: the rows {' and '.join(told)}. Encrypt the model's columns.")
