"""Rows and labels from users' files: parquet, CSV, or arrays in an .npz."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from discreet.errors import InvalidValue, MissingExtra
from discreet.models import predict
from discreet.models.tables import read_table

INDEX = re.compile(r"__index_level_\d+__")  # what pandas writes of its index: no column of anyone's
WHOLE = 2.0**24  # up to here 32-bit floats keep whole numbers apart


def read_rows(
    path: str, target: str, by: Sequence[str] = (), *, needed: bool = True, fitted: Sequence[str] | None = None
) -> tuple[Any, Any, list[str] | None, dict[str, Any]]:  # fmt: skip
    """Inputs, labels and the names of the columns, from parquet, CSV, or an .npz with X and y (which names no columns).

    Last come the columns named in `by`, as they are, and where they are `needed`; those with text are then not inputs. With
    `fitted`, the names that a model asks for (none: all there are), inputs are a data frame where they are not all numbers.
    """
    if path.endswith(".npz"):
        if by and needed:
            raise InvalidValue(f"{path!r} names no columns, so there is no {by[0]!r} to group by; give parquet or CSV.")
        return (*_arrays(existing(path, "a file of rows")), None, {})
    from discreet.columns import numeric

    table = read_table(path)
    if target not in table:
        raise InvalidValue(f"{path!r} has no column {target!r}; say which holds the labels with --target-column.")
    lacking = [name for name in by if name not in table]
    if lacking and needed:
        raise InvalidValue(f"{path!r} has no column {lacking[0]!r} to group by; it has {', '.join(list(table)[:20])}.")
    columns = [name for name in table if name != target and not INDEX.fullmatch(name)]
    names = [name for name in columns if name not in by or numeric(table[name]) or name in (fitted or ())]
    texts = [name for name in names if not numeric(table[name])]
    if texts and fitted is not None:
        return _frame(table, names), table[target], names, {name: table[name] for name in by if name in table}
    if texts or not names:
        problem = _no_numbers(path, texts[0], table[texts[0]]) if texts else f"{path!r} has no column but the labels."
        raise InvalidValue(f"A model is asked about numbers; {problem}")
    return (
        _narrow(np.stack([table[name] for name in names], 1)),
        table[target],
        names,
        {name: table[name] for name in by if name in table},
    )


def _frame(table: dict[str, Any], names: list[str]) -> Any:
    try:
        import pandas  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise MissingExtra("pandas", "sklearn", "A table with text or categories") from None
    return pandas.DataFrame({name: table[name] for name in names})


def _no_numbers(path: str, name: str, values: Any) -> str:
    """Why a column is not numeric: it has empty cells, or text."""
    cells = values.tolist()
    empty = sum(cell is None for cell in cells)
    try:
        [float(cell) for cell in cells if cell is not None]
    except (TypeError, ValueError):
        return (
            f"column {name!r} of {path!r} holds text. Give it as numbers, a scikit-learn pipeline that was fitted on columns "
            "by name and takes text, or name it in --group-by: then the model is not given it."
        )
    return (
        f"column {name!r} of {path!r} has {empty} empty cells. Fill them in as the model's own preparation does, or leave "
        "those rows out."
    )


def _narrow(X: Any) -> Any:
    """Convert to 32-bit floats, unless that would merge different numbers (times, amounts, counts)."""
    with np.errstate(over="ignore"):
        return X.astype(np.float64 if (np.abs(X) >= WHOLE).any() else np.float32)


def _arrays(file: Path) -> tuple[Any, Any]:
    arrays = read_arrays(file, ("X", "y"))
    return _narrow(arrays["X"]), arrays["y"]


def read_arrays(path: str | Path, names: tuple[str, ...], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """The named arrays of an .npz file; those of `optional` where it holds them."""
    file, wanted = existing(str(path), "an .npz file"), ", ".join(f"{name}=…" for name in names)
    try:
        with np.load(file, allow_pickle=False) as arrays:
            lacking = [name for name in names if name not in arrays]
            if lacking:
                every = f"arrays {' and '.join(names)}" if len(names) > 1 else f"an array {names[0]}"
                raise InvalidValue(f"{str(file)!r} must hold {every}; it lacks {' and '.join(lacking)}.")
            return {name: arrays[name] for name in (*names, *optional) if name in arrays}
    except (ValueError, OSError, EOFError, AttributeError, TypeError) as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue(f"{str(file)!r} cannot be read as .npz; write it with numpy.savez(file, {wanted}).") from None


def in_order(names: list[str] | None, X: Any, wanted: list[str] | None, role: str, whose: str = "members do not") -> Any:
    """Columns in the order of another file, or of those that the model was fitted on; refused where others are."""
    if names is None or wanted is None or names == wanted:
        return X
    lacking, extra = [name for name in wanted if name not in names], [name for name in names if name not in wanted]
    if lacking or extra:
        reasons = [f"lack {name!r}" for name in lacking[:1]] + [f"have {name!r}, which {whose}" for name in extra[:1]]
        raise InvalidValue(f"The {role} {' and '.join(reasons)} ({len(lacking)} columns lacking, {len(extra)} too many).")
    return X[wanted] if hasattr(X, "columns") else X[:, [names.index(name) for name in wanted]]


def class_numbers(y: Any, model: Any, role: str) -> Any:
    """Labels as places among the model's classes, where it names them; else whole numbers from 0 are needed."""
    y = np.asarray(y)
    classes = getattr(model, "classes_", None)
    if classes is not None:
        return predict.class_numbers(y, classes, role)
    if y.dtype.kind == "f" and np.array_equal(y, np.rint(y)):
        y = y.astype(np.int64)
    if y.dtype.kind not in "iu":
        raise InvalidValue(
            f"Labels of the {role} must be whole numbers from 0, as the model counts its classes; they are {_kind(y)}. Write "
            "the number of each row's class there; what a regression predicts is no class, and is not attacked here."
        )
    return y


def number_classes(y: Any) -> Any:
    """Labels of any kind as numbers of classes from 0, in order; refused where they are no classes."""
    y = np.asarray(y)
    lacking = y.dtype.kind == "O" and any(label is None for label in y.tolist())
    if lacking or (y.dtype.kind == "f" and not np.array_equal(y, np.rint(y))):
        raise InvalidValue(
            f"Labels of the data must be classes: whole numbers or names; they are {_kind(y)}. What a regression predicts is "
            "no class, and is not audited here."
        )
    return np.unique(y.astype(str) if y.dtype.kind == "O" else y, return_inverse=True)[1].astype(np.int64)


def _kind(y: Any) -> str:
    cells = y.tolist()
    empty = sum(cell is None or cell != cell for cell in cells)
    if empty:
        return f"empty in {empty} of {len(cells)} rows"
    return "numbers with fractions, or infinite" if np.asarray(y).dtype.kind == "f" else "text"


def existing(path: str, wanted: str) -> Path:
    """The file, if there is one."""
    file = Path(path)
    if not file.is_file():
        raise InvalidValue(f"There is no file {path!r}; give {wanted}.")
    return file
