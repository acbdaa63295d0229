"""Columns of a table as inputs of a network, encoded by public knowledge about them alone.

A number is clamped to its public range and scaled to [-1, 1]; a category becomes a one at its place in a public list. No mean,
no spread and no list of values is ever taken from the data: each would be a release of its own.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from discreet import schema
from discreet.columns import Column, columns, missing
from discreet.core import Release, check
from discreet.errors import InvalidDocument, InvalidValue

__all__ = ["Encoding", "TableClassifier", "load", "network"]

log = logging.getLogger("discreet.learn")

CONFIG = "config.toml"  # beside the model: what its rows are read by
COLUMNS = "columns.toml"  # of models written before: the file of columns that the configuration named


@dataclass(frozen=True)
class Encoding:
    """What is known of the columns: a pair of numbers is a range, a list of other things the values there can be; of numbers
    {"categories": […]} says that they are values.

    >>> known = Encoding({"age": [0, 100], "sex": ["f", "m"]}, target="ill", classes=["no", "yes"])
    >>> x, y, kept = known.read({"age": [25, 300], "sex": ["m", "x"], "ill": ["yes", "no"]})
    >>> x.tolist(), y.tolist()
    ([[-0.5, 0.0, 1.0], [1.0, 0.0, 0.0]], [1, 0])
    """

    columns: Mapping[str, Sequence[Any] | Mapping[str, Sequence[Any]]]
    target: str
    classes: Sequence[Any]

    def __post_init__(self) -> None:
        if not self.columns:
            raise InvalidValue("columns names no column to learn from; give at least one, such as age = [0, 120].")
        for name, fact in self.columns.items():
            known = fact["categories"] if isinstance(fact, Mapping) and set(fact) == {"categories"} else fact
            if isinstance(known, str) or not isinstance(known, Sequence) or len(known) < 2:
                raise InvalidValue(
                    f"columns.{name} is a range, such as [0, 120], or a list of two values or more; got {check.shown(known)}."
                )
            if is_range(fact) and not float(known[0]) < float(known[1]):
                raise InvalidValue(f"The range of {name} must rise; got {check.shown(known)}.")
        if self.target in self.columns:
            raise InvalidValue(f"{self.target} is the target and cannot be learned from.")
        listed = isinstance(self.classes, Sequence) and not isinstance(self.classes, str)
        if not listed or len(self.classes) < 2 or len(set(map(str, self.classes))) != len(self.classes):
            raise InvalidValue(
                f"classes must list at least two different values of {self.target}; got {check.shown(self.classes)}."
            )

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return sum(1 if is_range(known) else len(values_of(known)) for known in self.columns.values())

    def read(self, table: Any) -> tuple[Tensor, Tensor, NDArray[np.int64]]:
        """Inputs, classes, and which rows they are: those whose target is none of the classes are left out, each by itself."""
        label = _places(columns(table, [self.target], empty=True)[self.target], self.classes)
        selected = np.flatnonzero(label >= 0)
        if selected.size < label.size:
            log.warning("column %s: rows with a value that is none of the classes are left out", self.target)
        if not selected.size:
            raise InvalidValue(f"No row has a {self.target} among the classes {check.shown(list(self.classes))}.")
        return self.inputs(table)[torch.from_numpy(selected)], torch.from_numpy(label[selected]), selected

    def inputs(self, table: Any) -> Tensor:
        """The network's inputs for the rows of a table, which need not have the target."""
        cells = columns(table, list(self.columns), empty=True)
        parts = [_scaled(cells[name], known) if is_range(known) else _one_hot(name, cells[name], values_of(known))
                 for name, known in self.columns.items()]  # fmt: skip
        return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))


class TableClassifier:
    """A network with the encoding of its table: what `discreet train` wrote, ready to predict."""

    def __init__(self, encoding: Encoding, release: Release[nn.Module]) -> None:
        self.encoding, self.release = encoding, release

    @property
    def target(self) -> str:
        return self.encoding.target

    @property
    def classes(self) -> list[Any]:
        return list(self.encoding.classes)

    def predict_proba(self, table: Any) -> NDArray[np.float64]:
        """The probability of each class for each row, [rows, classes], in the order of `classes`."""
        model = self.release.value.eval()
        with torch.no_grad():
            shares: NDArray[np.float64] = model(self.encoding.inputs(table)).double().softmax(1).numpy()
        return shares

    def predict(self, table: Any) -> list[Any]:
        """The likeliest class of each row. This is post-processing: it costs nothing, however often it is asked."""
        return [self.classes[place] for place in self.predict_proba(table).argmax(1)]


def load(folder: str | os.PathLike[str]) -> TableClassifier:
    """The classifier in a folder that `discreet train` wrote.

    load("from-a-table").predict({"age": [31, 78], "sex": ["f", "m"]})
    """
    from discreet.learn.sgd.files import read

    place = Path(folder)
    try:
        settings = tomllib.loads((place / CONFIG).read_text("utf-8"))
        data = settings["data"]
        encoding = Encoding(columns=_stored_columns(place, data), target=data["target"], classes=data["classes"])
    except FileNotFoundError:
        raise InvalidValue(
            f"{place} has no {CONFIG}: it is no model that discreet train wrote. Others are read by discreet.learn.read."
        ) from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError, UnicodeDecodeError):
        raise InvalidDocument(f"{place / CONFIG} does not say columns, target and classes of a table, or is damaged.") from None
    model = network(encoding.width, settings.get("model", {}).get("hidden", []), len(encoding.classes))
    return TableClassifier(encoding, read(place, model))


def described(columns: Mapping[str, schema.Facts], *without: str | None) -> dict[str, Any]:
    """The columns of a schema as an encoding takes them, without those that are not learned from."""
    known = {name: schema.learned(name, facts, "training") for name, facts in columns.items() if name not in without}
    return {name: fact for name, fact in known.items() if fact is not None}


def _stored_columns(folder: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a stored model; older models stored them as lists, of numbers too."""
    stored = data["columns"]
    if isinstance(stored, str):
        return described(schema.read(folder / COLUMNS).one(Path(data["file"]).stem), data["target"], data.get("client"))
    full = {name: schema.column(name, facts, written=True) for name, facts in stored.items() if isinstance(facts, Mapping)}
    known = described(full)
    return {name: known.get(name, facts) for name, facts in stored.items() if name in known or name not in full}


def network(width: int, hidden: Sequence[int], classes: int) -> nn.Sequential:
    """Linear layers with tanh between: bounded activations lose the least under clipping (Papernot et al. 2021).

    >>> network(3, [4], 2)[0]
    Linear(in_features=3, out_features=4, bias=True)
    """
    sizes = [width, *(check.whole("hidden", size) for size in hidden), classes]
    layers: list[nn.Module] = []
    for less, more in pairwise(sizes):
        layers += [nn.Linear(less, more), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def values_of(known: Any) -> Sequence[Any]:
    """The values that a column of categories may have."""
    values: Sequence[Any] = known["categories"] if isinstance(known, Mapping) else known
    return values


def is_range(known: Any) -> bool:
    """Whether what is known of a column is a range: two numbers."""
    return (
        not isinstance(known, Mapping)
        and len(known) == 2
        and all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in known)
    )


def _scaled(column: Column, known: Any) -> NDArray[np.float64]:
    """Scale to [-1, 1]; missing values and non-numbers map to the middle."""
    low, high = float(known[0]), float(known[1])
    if column.dtype.kind in "biuf":
        values = column.astype(np.float64)
    else:
        values = np.array([np.nan if missing(cell) else _number(cell) for cell in column.tolist()])
    values = np.where(np.isnan(values), (low + high) / 2, values)
    return ((np.clip(values, low, high) - low) / (high - low) * 2 - 1)[:, None]


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _one_hot(name: str, column: Column, known: Sequence[Any]) -> NDArray[np.float64]:
    places = _places(column, known)
    if (places < 0).any():  # for the owner's log: that there are such rows is known from the table alone
        log.warning("column %s: some rows have a value that is none of those listed; it counts as none of them", name)
    return (places[:, None] == np.arange(len(known))).astype(np.float64)


def _places(column: Column, known: Sequence[Any]) -> NDArray[np.int64]:
    """The place of each value in the list, as text, or as a number where all that is listed are; -1 for what is not in it."""
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)
    places = {_text(value): place for place, value in enumerate(known)}
    return np.array([places.get(_text(value, numbers), -1) for value in column.tolist()], np.int64)


def _text(value: Any, as_number: bool = False) -> str:
    if as_number and isinstance(value, str):  # a cell of a text file, by itself
        value = _number(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)
