"""How a table's columns lie in the rows that a network sees: categories one-hot, numbers as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from discreet.errors import InvalidValue

ROOM = 0.05  # of its range, by which a number that was read may be off


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns in order; `categories` is None for numbers, whose range is `low` to `high`."""

    names: tuple[str, ...]
    categories: tuple[tuple[Any, ...] | None, ...]
    ranges: tuple[tuple[float, float] | None, ...]

    @classmethod
    def of(cls, schema: Any) -> Layout:
        """From a mapping of each column to a list of its categories or to a pair (low, high).

        >>> Layout.of({"sex": ["F", "M"], "age": (0, 1)}).width
        3
        """
        if not isinstance(schema, Mapping) or not schema:
            raise InvalidValue(
                'data must be "image" or a schema: a mapping from each column to its categories or to (low, high).'
            )
        categories: list[tuple[Any, ...] | None] = []
        ranges: list[tuple[float, float] | None] = []
        for name, kind in schema.items():
            if isinstance(kind, tuple) and len(kind) == 2 and all(isinstance(end, (int, float)) for end in kind):
                if not kind[0] < kind[1]:
                    raise InvalidValue(f"The range of {name} must be (low, high) with low below high; got {kind}.")
                categories.append(None)
                ranges.append((float(kind[0]), float(kind[1])))
            elif isinstance(kind, list) and len(kind) == 2 and all(type(end) in (int, float) for end in kind):
                raise InvalidValue(f"{name}: a list of two numbers could be a range or two categories. Write the range as a "
                                   f"tuple, ({kind[0]}, {kind[1]}), and categories as {{'categories': {kind}}}.")  # fmt: skip
            elif len(values := _categories(kind)) >= 2:
                categories.append(values)
                ranges.append(None)
            else:
                raise InvalidValue(f"{name} must be a list of at least two categories or a pair (low, high); got {kind!r}.")
        return cls(tuple(map(str, schema)), tuple(categories), tuple(ranges))

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return sum(1 if kind is None else len(kind) for kind in self.categories)

    def parts(self) -> list[slice]:
        """Where each column lies in a row."""
        places, start = [], 0
        for kind in self.categories:
            places.append(slice(start, start + (1 if kind is None else len(kind))))
            start = places[-1].stop
        return places

    def spans(self) -> Tensor:
        """How far each number of a row may lie apart in two rows."""
        kinds = zip(self.categories, self.ranges)
        return torch.tensor(
            [span for kind, ends in kinds for span in ([1.0] * len(kind) if kind else [ends[1] - ends[0]])]  # type: ignore[index]
        )

    def holds(self, rows: Tensor) -> Tensor:
        """Which rows are rows of this table: one category of each column at most, and numbers within their range.

        What is read as one row may be a mean of several, which is none.
        """
        fine = torch.ones(len(rows), dtype=torch.bool)
        for kind, limits, place in zip(self.categories, self.ranges, self.parts()):
            part = rows[:, place].double()
            low, high = limits or (0.0, 1.0)
            room = ROOM * (high - low)
            fine &= ((part >= low - room) & (part <= high + room)).all(1)
            if kind is not None:
                fine &= ((part - part.round()).abs() <= room).all(1) & (part.sum(1) <= 1 + room)
        return fine

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Rows of the public prior: each category as likely as the other, each number anywhere in its range."""
        pieces = []
        for kind, limits in zip(self.categories, self.ranges):
            if kind is None:
                assert limits is not None
                pieces.append(
                    limits[0] + (limits[1] - limits[0]) * torch.rand(count, 1, generator=generator, dtype=torch.float64)
                )
            else:
                drawn = torch.randint(len(kind), (count,), generator=generator)
                pieces.append(torch.nn.functional.one_hot(drawn, len(kind)).double())
        return torch.cat(pieces, 1)

    def decoded(self, rows: Tensor) -> dict[str, list[Any]]:
        """Columns of values: the largest of each group of categories, and each number."""
        columns: dict[str, list[Any]] = {}
        for name, kind, place in zip(self.names, self.categories, self.parts()):
            part = rows[:, place]
            columns[name] = part[:, 0].tolist() if kind is None else [kind[index] for index in part.argmax(1).tolist()]
        return columns


def _categories(kind: Any) -> tuple[Any, ...]:
    """The categories of a list, or of {"categories": […]}; none of anything else."""
    listed = kind["categories"] if isinstance(kind, Mapping) and set(kind) == {"categories"} else kind
    return tuple(listed) if isinstance(listed, list) else ()
