"""Whatever an output is nested in, `check_mechanism` looks at it: each leak below is found, and what cannot be seen is said.

Seeded. Each sound mechanism is called false with probability at most 1e-6; the file's rate under fresh seeds is 3e-6.
"""

from __future__ import annotations

import datetime
import threading
from collections import namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from discreet.audit import check_mechanism
from discreet.core import Claim, Game, Laplace, Pure, Release, record
from discreet.errors import ClaimRefuted
from discreet.noise import LaplaceNoise
from discreet.noise.source import seeded_for_tests

CONFIDENCE = 1 - 1e-6
GAME = Game(record(), {"answers"})
CLAIM = Claim(game=GAME, event=Pure(1.0))
Labelled = namedtuple("Labelled", "label value")


class Answers:
    """Gives `make(unit, random)`, where the unit is 1 or 0."""

    def __init__(self, make, event=CLAIM.event):
        self.make, self.event, self.random = make, event, np.random.default_rng(11)

    def claims(self):
        return (Claim(game=GAME, event=self.event),)

    def run(self, data):
        return self.make(int(sum(data)), self.random)

    def neighbours(self):
        yield [1.0], []


@dataclass
class Result:
    noisy: float
    inner: dict = field(default_factory=dict)


class Slotted:
    __slots__ = ("__hidden",)

    def __init__(self, value):
        self.__hidden = value


class Marked(float):
    """A number that carries something beside its value."""


def marked(unit, noise):
    number = Marked(noise)
    number.note = unit
    return number


def odd(unit, random):
    """Thirty-two numbers of which one is even for the unit and odd without it."""
    numbers = random.integers(0, 1 << 40, size=32)
    numbers[17] = 2 * (numbers[17] // 2) + unit
    return numbers


class Reused:
    """The same array is filled again for every answer."""

    def __init__(self):
        self.array = np.zeros(2)

    def __call__(self, unit, random):
        self.array[:] = random.normal(), unit
        return self.array


def raises(unit, random):
    if unit and random.random() < 0.9:
        raise ValueError("no such row")
    return 0.0


def says_too_much(unit, random):
    raise ValueError(f"row {unit} of the data is out of range")


def pandas_table(unit, random):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"x": random.normal(size=3), "note": ["a", "b", "c" if unit else "d"]})


def arrow_table(unit, random):
    return pytest.importorskip("pyarrow").table({"x": [random.normal()], "note": ["yes" if unit else "no"]})


def polars_table(unit, random):
    return pytest.importorskip("polars").DataFrame({"x": [random.normal()], "note": ["yes" if unit else "no"]})


LEAKS = {
    "dict": lambda unit, random: {"noisy": random.normal(), "raw": {"deep": [None, unit]}},
    "keys": lambda unit, random: {"flu": random.normal(), **({"rare": random.normal()} if unit else {})},
    "order of keys": lambda unit, random: dict([("a", random.normal()), ("b", random.normal())][:: 1 if unit else -1]),
    "text": lambda unit, random: f"The count is {random.normal():.6f}, of {40 + unit} rows",
    "word": lambda unit, random: f"{random.normal()} and then {'alice' if unit else 'nobody'} {random.normal()}",
    "code": lambda unit, random: f"{random.integers(1000):04d}{'x' if unit else 'y'}{random.integers(1000):04d}",
    "bytes": lambda unit, random: random.bytes(7) + bytes([unit]) + random.bytes(7),
    "label": lambda unit, random: ("inside" if unit else "outside", random.normal()),
    "named tuple": lambda unit, random: Labelled(label=["a", "b"][unit], value=random.normal()),
    "ragged": lambda unit, random: [[random.normal()], [random.normal(), [unit, random.normal()]]],
    "length": lambda unit, random: list(random.normal(size=5 + unit)),
    "set": lambda unit, random: {int(random.integers(1000)), "rare" if unit else "common"},
    "dataclass": lambda unit, random: Result(random.normal(), {"raw": [unit]}),
    "slots": lambda unit, random: Slotted(unit),
    "attribute of a number": lambda unit, random: marked(unit, random.normal()),
    "release": lambda unit, random: Release(value={"noisy": random.normal(), "raw": unit}, source="people", claims=(CLAIM,)),
    "type": lambda unit, random: 1 if unit else 1.0,
    "none": lambda unit, random: None if unit else 0.0,
    "decimal": lambda unit, random: Decimal("1.50") if unit else Decimal("1.5"),
    "fraction": lambda unit, random: Fraction(2 * int(random.integers(1, 1000)) + unit, 2048),
    "complex": lambda unit, random: complex(random.normal(), unit),
    "time": lambda unit, random: datetime.datetime(2020, 1, 1 + unit, int(random.integers(24))),
    "duration": lambda unit, random: datetime.timedelta(seconds=2 * int(random.integers(1000)) + unit),
    "boolean array": lambda unit, random: np.array([random.random() < 0.5, bool(unit)]),
    "structured array": lambda unit, random: np.array([(random.normal(), unit)], dtype=[("a", "f8"), ("b", "i4")]),
    "masked array": lambda unit, random: np.ma.masked_array([random.normal(), 1.0], mask=[False, bool(unit)]),
    "objects": lambda unit, random: np.array([random.normal(), "a" if unit else "b"], dtype=object),
    "shape": lambda unit, random: np.zeros((2, 3) if unit else (3, 2)),
    "dtype": lambda unit, random: np.zeros(3, dtype=np.float32 if unit else np.float64),
    "nan": lambda unit, random: [random.normal(), float("nan") if unit else random.normal()],
    "infinity": lambda unit, random: [random.normal(), float("inf") if unit else 1e308],
    "sign of zero": lambda unit, random: -0.0 if unit else 0.0,
    "parity of one of 32": odd,
    "lowest bit of a float": lambda unit, random: np.nextafter(np.round(random.normal() * 2**30) / 2**30 + 4, 9) if unit
    else np.round(random.normal() * 2**30) / 2**30 + 4,
    "huge whole number": lambda unit, random: 2 * int(random.integers(1 << 60)) * 2**80 + unit,
    "second decimal": lambda unit, random: round(random.integers(1000) + random.integers(10) / 10 + unit / 100, 2),
    "array used again": Reused(),
    "error": raises,
    "error's message": says_too_much,
    "pandas": pandas_table,
    "arrow": arrow_table,
    "polars": polars_table,
}  # fmt: skip


@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_found_wherever_it_is(leak):
    with pytest.raises(ClaimRefuted, match="Answers claims epsilon 1 at delta"):
        check_mechanism(Answers(LEAKS[leak]), runs=400, confidence=CONFIDENCE, seed=3)


SOUND = LaplaceNoise(scale=1, sensitivity=1, unit=record())
OPAQUE = {
    "function": lambda unit, random: lambda: unit,
    "generator": lambda unit, random: (each for each in [unit]),
    "lock": lambda unit, random: {"answer": 0.0, "lock": threading.Lock()},
    "in a release": lambda unit, random: Release(value=iter([unit]), source="people", claims=(CLAIM,)),
    "too many numbers": lambda unit, random: np.append(np.zeros(20_000), unit),
    "too long a text": lambda unit, random: "x" * 20_000 + str(unit),
    "unreadable": lambda unit, random: Unreadable(),
}


class Unreadable:
    def __init__(self):
        self.x = 1

    def __getattribute__(self, name):
        raise RuntimeError("no")


@pytest.mark.parametrize("kind", OPAQUE)
def test_what_cannot_be_looked_at_never_holds(kind):
    [(_, judged)] = check_mechanism(Answers(OPAQUE[kind]), runs=300, confidence=CONFIDENCE, seed=3)
    assert judged.outcome == "inconclusive"
    assert judged.reason.startswith("not all of the output could be looked at: output")


def test_a_nested_sound_answer_holds():
    def answer(unit, random):
        noisy = SOUND.run(unit)
        return {"answers": [noisy, {"again": noisy, "text": f"about {noisy}"}], "version": "1"}

    with seeded_for_tests(b"nested"):
        [(_, judged)] = check_mechanism(Answers(answer), runs=1000, confidence=CONFIDENCE, seed=3)
    assert judged.outcome == "holds"


def test_an_error_that_every_run_raises_is_raised():
    """The same words whatever the data: nothing leaks, and nothing was audited either."""
    with pytest.raises(ZeroDivisionError):
        check_mechanism(Answers(lambda unit, random: 1 / 0), runs=200, confidence=CONFIDENCE, seed=3)


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_textbook_noise_of_any_scale_is_found(scale):
    """At scale 100 the shift is a hundredth of the noise; the grid of its logarithms gives the data away."""
    textbook = Answers(lambda unit, random: unit + random.laplace(scale=scale), Laplace(scale))
    with pytest.raises(ClaimRefuted, match="granularity"):
        check_mechanism(textbook, runs=4000, confidence=CONFIDENCE, seed=3)


def test_the_same_noise_on_a_grid_holds():
    sound = LaplaceNoise(scale=100, sensitivity=1, unit=record())
    with seeded_for_tests(b"grid"):
        [(_, judged)] = check_mechanism(Answers(lambda unit, random: sound.run(unit), Laplace(100.0)), runs=1000, seed=3)
    assert judged.outcome in ("holds", "inconclusive")
    assert judged.floor == 0
