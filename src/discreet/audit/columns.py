"""Many flattened outputs side by side: each named part as a column over the runs."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.audit.flatten import Flat, flatten

MOST = 20_000  # columns of numbers over all runs
_NAMES = 2000  # texts or kinds that are looked at one by one, the most frequent

Column = tuple[NDArray[np.float64], NDArray[np.uint64]]


class Outputs:
    """Outputs of some runs, taken apart; blocks and columns are made when asked for and kept."""

    def __init__(self, flats: Sequence[Flat]) -> None:
        self.flats = list(flats)
        self._blocks: dict[tuple[str, int], Column] = {}

    @classmethod
    def of(cls, outputs: Sequence[Any]) -> Outputs:
        return cls([flatten(output) for output in outputs])

    def __len__(self) -> int:
        return len(self.flats)

    @cached_property
    def unseen(self) -> dict[str, str]:
        """Parts of any output that could not be looked at, and why."""
        parts = {name: why for flat in self.flats for name, why in flat.unseen.items()}
        for name, why in {name: why for flat in self.flats for name, (_, why) in flat.cut.items()}.items():
            if len({flat.cut.get(name, ("", ""))[0] for flat in self.flats}) > 1:
                parts[name] = why
        marks = self.whole.tolist()
        if len(set(zip(marks, (flat.pickled for flat in self.flats)))) > len(set(marks)):
            parts.setdefault("output", "outputs that look the same are pickled differently")
        if sum(self.widths.values()) > MOST:
            parts["output"] = f"more than {MOST} different numbers over all runs"
        return parts

    @cached_property
    def widths(self) -> dict[str, int]:
        """Each block of numbers that two or more outputs have, and its largest width."""
        seen: Counter[str] = Counter()
        widest: dict[str, int] = {}
        for flat in self.flats:
            for name, numbers in flat.numbers.items():
                seen[name] += 1
                widest[name] = max(widest.get(name, 0), len(numbers))
        return {name: width for name, width in widest.items() if seen[name] > 1}

    def block(self, name: str, width: int) -> Column:
        """The numbers of this name, a row for each output, and their bits; where there is none, NaN."""
        if (name, width) not in self._blocks:
            values = np.full((len(self), width), np.nan)
            bits = np.zeros((len(self), width), dtype=np.uint64)
            for row, flat in enumerate(self.flats):
                numbers = flat.numbers.get(name)
                if numbers is not None:
                    values[row, : len(numbers)] = numbers[:width]
                    bits[row, : len(numbers)] = flat.bits[name][:width]
            self._blocks[name, width] = values, bits
        return self._blocks[name, width]

    def column(self, name: str, width: int, place: int) -> Column:
        values, bits = self.block(name, width)
        return values[:, place], bits[:, place]

    def codes(self, part: str, name: str) -> NDArray[np.int64]:
        """The text or kind of this name as a whole number; 0 where there is none."""
        return np.array([code(getattr(flat, part).get(name)) for flat in self.flats], dtype=np.int64)

    def names(self, part: str) -> list[str]:
        """Names of texts or kinds that differ between outputs, each seen at least twice; the most frequent first."""
        seen: dict[str, Counter[str]] = {}
        for flat in self.flats:
            for name, value in getattr(flat, part).items():
                seen.setdefault(name, Counter())[value] += 1
        often = [
            (values.total(), name) for name, values in seen.items()
            if max(values.values()) > 1 and (len(values) > 1 or values.total() < len(self))
        ]  # fmt: skip
        return [name for _, name in sorted(often, key=lambda each: -each[0])[:_NAMES]]

    @cached_property
    def whole(self) -> NDArray[np.int64]:
        """Each output as one number, the same for the same output."""
        return np.array([_digest(flat) for flat in self.flats], dtype=np.int64)

    @cached_property
    def pickles(self) -> NDArray[np.int64]:
        """Each output as `pickle` writes it, as one number."""
        return np.array([code(flat.pickled) for flat in self.flats], dtype=np.int64)

    @cached_property
    def equal_texts(self) -> NDArray[np.int64]:
        """How many texts of an output are equal to another one there."""
        return np.array([len(flat.texts) - len(set(flat.texts.values())) for flat in self.flats], dtype=np.int64)

    @cached_property
    def structure(self) -> NDArray[np.int64]:
        """What is there and of which type, without any value."""
        return np.array([code(repr(sorted(flat.kinds.items()))) for flat in self.flats], dtype=np.int64)


def code(text: str | None) -> int:
    """A whole number for a text, the same in every process; 0 for none.

    >>> code(None), code("a") == code("a")
    (0, True)
    """
    return 0 if text is None else 1 + zlib.crc32(text.encode("utf-8", "surrogatepass"))


def _digest(flat: Flat) -> int:
    """63 bits, so that two of some thousands of outputs do not meet by chance."""
    mark = hashlib.blake2b(digest_size=8)
    mark.update(repr((sorted(flat.kinds.items()), sorted(flat.texts.items()))).encode("utf-8", "surrogatepass"))
    for name in sorted(flat.numbers):
        mark.update(flat.bits[name].tobytes())
        mark.update(flat.numbers[name].tobytes())
    mark.update(repr(sorted(flat.cut.items())).encode("utf-8", "surrogatepass"))
    return int.from_bytes(mark.digest()) >> 1
