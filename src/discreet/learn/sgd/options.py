"""The arguments of `train` beside the plan, grouped into frozen values."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet.accounting import student
from discreet.core import Event, StudentT, check
from discreet.core.event import MOST_DEGREES
from discreet.errors import InvalidValue
from discreet.learn.sgd.path import PATHS
from discreet.learn.sgd.postprocess import After

RESUME = ("exact", "pay")
Word = tuple[tuple[float, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Augment:
    """`change(inputs)` changes inputs at random, example by example. Each row is used `copies` times and counts once."""

    change: Callable[[Any], Any]
    copies: int = 1

    def __post_init__(self) -> None:
        if not callable(self.change):
            raise InvalidValue(f"augment must be a function of a batch of inputs; got {type(self.change).__name__}.")
        check.whole("copies", self.copies)

    @classmethod
    def of(cls, value: Augment | Callable[[Any], Any] | None) -> Augment | None:
        return value if value is None or isinstance(value, Augment) else cls(value)


@dataclass(frozen=True)
class StudentNoise:
    """Noise of Student's t with so many degrees of freedom, on each number, instead of Gaussian noise.

    `noise_multiplier` is then its scale over the clip norm. With `clipping=Encoded(…)` its cost is that of the words of the
    code; otherwise that of a Gaussian mechanism that dominates it for every vector of this length, which is more.
    """

    degrees: int

    def __post_init__(self) -> None:
        check.whole("degrees", self.degrees, least=3, most=int(MOST_DEGREES))

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise, over its scale."""
        return math.sqrt(self.degrees / (self.degrees - 2))

    def event(self, noise_multiplier: float, word: Word | None) -> Event:
        """The event of one step for its participants; `word` holds the sizes of a code word's numbers and their counts."""
        degrees = float(self.degrees)
        if word is None:
            return student.as_gaussian(StudentT(noise_multiplier, degrees, (1.0,), (1,)))
        return StudentT(noise_multiplier, degrees, *word)


@dataclass(frozen=True)
class Checkpoint:
    """A file that a run writes every so many steps, and from which it resumes if it exists.

    Steps after the last checkpoint are taken again and must come out the same. Where they do not, `resume="exact"` stops the
    run; `resume="pay"` takes them with fresh noise, which is paid for.
    """

    path: str | os.PathLike[str]
    every: int = 100
    resume: str = "exact"

    def __post_init__(self) -> None:
        if not Path(self.path).absolute().parent.is_dir():
            raise InvalidValue(
                f"checkpoint is to be written to {self.path}, whose folder does not exist. Make the folder first."
            )
        check.whole("every", self.every)
        check.word("resume", self.resume, RESUME)

    @classmethod
    def of(cls, value: Checkpoint | str | os.PathLike[str] | None) -> Checkpoint | None:
        return value if value is None or isinstance(value, Checkpoint) else cls(value)

    @property
    def file(self) -> Path:
        return Path(self.path)

    @property
    def pays(self) -> bool:
        return self.resume == "pay"


@dataclass(frozen=True)
class Performance:
    """Settings that change time and memory, and no result.

    `microbatch` bounds the units that are computed at once. `path` demands one of two ways to compute gradients: "fast" (all
    examples at once; refused where their independence is not proven) or "isolated" (each unit by itself). With
    `check_rows=False` rows are not read before the run is charged.
    """

    microbatch: int | None = None
    path: str | None = None
    check_rows: bool = True

    def __post_init__(self) -> None:
        if self.microbatch is not None:
            check.whole("microbatch", self.microbatch)
        if self.path is not None:
            check.word("path", self.path, PATHS)


@dataclass(frozen=True)
class Postprocess:
    """Post-processing of the noisy gradient and the weights in every step, at no privacy cost.

    `gradient` may change the noisy gradient in place (`discreet.learn.shrink`, say); `radius` keeps the weights in a ball.
    """

    gradient: After | None = None
    radius: float | None = None

    def __post_init__(self) -> None:
        if self.gradient is not None and not callable(self.gradient):
            raise InvalidValue(f"gradient must be a function of (gradients, noise); got {type(self.gradient).__name__}.")
        if self.radius is not None:
            check.positive("radius", self.radius)
