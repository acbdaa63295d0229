"""Tables with text and categories: a scikit-learn pipeline gets its columns by name, attacks get rows of an array.

Attacks select rows of an array, combine them and train on them; a pipeline over a data frame needs columns with names and
types. So rows are stored in an array of objects, and the model and every shadow get them converted back to the frame. Attacks
that perturb numbers do not apply to text, and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import DiscreetError, InvalidValue, MissingExtra
from discreet.models.predict import is_module
from discreet.models.recipe import Recipe

Array = NDArray[Any]


@dataclass(frozen=True)
class Columns:
    """Names and types of the columns of a frame.

    >>> import pandas
    >>> frame = pandas.DataFrame({"age": [31, 78], "note": ["well", "ill"]})
    >>> columns = Columns.of([frame])
    >>> columns.table(columns.rows(frame)).dtypes.equals(frame.dtypes)
    True
    """

    names: tuple[str, ...]
    kinds: tuple[Any, ...]

    @classmethod
    def of(cls, frames: Sequence[Any]) -> Columns:
        """What frames of the same columns have in common."""
        names = tuple(frames[0].columns)
        return cls(names, tuple(_kind([frame[name].dtype for frame in frames]) for name in names))

    def rows(self, frame: Any) -> Array:
        """The rows of a frame: numbers where all columns are finite numbers, objects where not."""
        lacking = [name for name in self.names if name not in frame.columns]
        if lacking or len(frame.columns) != len(self.names):
            raise InvalidValue(
                f"All rows must have the columns {', '.join(map(str, self.names[:20]))}; "
                f"{f'some lack {lacking[0]!r}' if lacking else 'some have others'}."
            )
        frame = frame[list(self.names)]
        if all(isinstance(kind, np.dtype) and kind.kind in "biuf" for kind in self.kinds):
            numbers: Array = frame.to_numpy(np.float64)
            if np.isfinite(numbers).all():
                return numbers
        objects: Array = frame.astype(object).to_numpy()
        return objects

    def table(self, rows: Array) -> Any:
        """Convert rows back to a frame."""
        pandas = _pandas()
        frame = pandas.DataFrame(np.asarray(rows), columns=list(self.names))
        return frame.astype(dict(zip(self.names, self.kinds, strict=True)))


def _pandas() -> Any:
    try:
        import pandas  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise MissingExtra("pandas", "sklearn", "A table with text or categories") from None
    return pandas


def _kind(kinds: list[Any]) -> Any:
    """A type that holds the values of all frames."""
    pandas = _pandas()
    if all(isinstance(kind, pandas.CategoricalDtype) for kind in kinds):
        values = list(dict.fromkeys(value for kind in kinds for value in kind.categories))
        return pandas.CategoricalDtype(values, ordered=kinds[0].ordered and all(kind == kinds[0] for kind in kinds))
    if all(isinstance(kind, np.dtype) and kind.kind in "biuf" for kind in kinds):
        return np.result_type(*kinds)
    return kinds[0] if all(kind == kinds[0] for kind in kinds) else np.dtype(object)


class ByName:
    """A scikit-learn classifier that is given rows of an array as a frame."""

    def __init__(self, inner: Any, columns: Columns) -> None:
        self.inner, self.columns = inner, columns

    def fit(self, rows: Array, y: Array) -> ByName:
        self.inner.fit(self.columns.table(rows), y)
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        params: dict[str, Any] = self.inner.get_params(deep)
        return params

    def set_params(self, **params: Any) -> ByName:
        self.inner.set_params(**params)
        return self

    def __sklearn_clone__(self) -> ByName:
        from sklearn.base import clone

        return ByName(clone(self.inner), self.columns)

    def __getattr__(self, name: str) -> Any:
        if name in ("classes_", "feature_names_in_"):
            return getattr(self.__dict__["inner"], name)
        if name not in ("predict_proba", "decision_function"):
            raise AttributeError(name)
        return asked_by_name(getattr(self.__dict__["inner"], name), self.__dict__["columns"])


def asked_by_name(ask: Callable[[Any], Any], columns: Columns) -> Callable[[Array], Any]:
    """Turn a function of a frame into a function of rows."""

    def asked(rows: Array) -> Any:
        try:
            return ask(columns.table(rows))
        except DiscreetError:
            raise
        except Exception as error:
            raise InvalidValue(
                f"The model cannot be asked about the columns {', '.join(map(str, columns.names[:20]))} "
                f"({type(error).__name__}). Give it those that it was fitted on, prepared as they were then."
            ) from error

    return asked


def model_by_name(model: Any, columns: Columns) -> Any:
    """Turn a classifier, or a function of a frame, into one of rows; a torch module stays as it is."""
    if model is None or is_module(model) or isinstance(model, ByName):
        return model
    if hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        return ByName(model, columns)
    return asked_by_name(model, columns) if callable(model) else model


def recipe_by_name(recipe: Recipe | None, columns: Columns) -> Recipe | None:
    """A recipe whose estimator, trainer or function `fit(frame, y)` is given frames."""
    if recipe is None or recipe.kind == "torch":
        return recipe
    if recipe.kind == "estimator":
        return recipe if isinstance(recipe.build, ByName) else replace(recipe, build=ByName(recipe.build, columns))
    build, trains = recipe.build, recipe.kind == "trainer"

    def fit(rows: Array, y: Array) -> Any:
        table = columns.table(rows)
        return model_by_name(build.fit((table, y)) if trains else build(table, y), columns)

    return replace(recipe, build=fit, kind="fit")


def is_frame(rows: Any) -> bool:
    return any(kind.__name__ == "DataFrame" and kind.__module__.startswith("pandas") for kind in type(rows).__mro__)


def framed(target: Any, recipe: Recipe | None, *pairs: Any) -> tuple[Any, Recipe | None, list[Any]]:
    """Target, recipe and pairs (inputs, labels), where inputs are frames: the same of rows. Others are left as they are."""
    frames = [pair[0] for pair in pairs if isinstance(pair, (tuple, list)) and len(pair) == 2 and is_frame(pair[0])]
    if not frames or len(frames) != sum(pair is not None for pair in pairs):
        return target, recipe, list(pairs)
    columns = Columns.of(frames)
    rows = [pair if pair is None else (columns.rows(pair[0]), pair[1]) for pair in pairs]
    return model_by_name(target, columns), recipe_by_name(recipe, columns), rows
