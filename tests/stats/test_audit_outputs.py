"""Whatever an output is nested in, `check_mechanism` looks at it: each leak below is found, and what cannot be seen is said.

Seeded. Each sound mechanism is called false with probability at most 1e-6; the file's rate under fresh seeds is 4e-6.
"""

from __future__ import annotations

import datetime
import enum
import math
import threading
from collections import defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from discreet.audit import check_mechanism
from discreet.audit.columns import Outputs
from discreet.audit.flatten import flatten
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


class TaggedArray(np.ndarray):
    pass


class TaggedDecimal(Decimal):
    pass


class TaggedDate(datetime.date):
    pass


class TaggedFraction(Fraction):
    __slots__ = ("tag",)


class TaggedList(list):
    __slots__ = ("tag",)


class TaggedError(ValueError):
    __slots__ = ("tag",)


class Flags(enum.IntFlag):
    ONE = 1


def tagged(thing, unit):
    thing.tag = unit
    return thing


def bits(random, count):
    return int.from_bytes(random.bytes(count // 8 + 1), "little") & ((1 << count) - 1)


def wide(unit, random):
    """200 bits at random, but for the hundredth: no float holds it, and neither do the lowest 64."""
    return (1 << 199) | (bits(random, 90) << 101) | (unit << 100) | bits(random, 100)


def extended(unit, random):
    """A number with the unit below what a float holds, where the machine has such numbers."""
    if np.finfo(np.longdouble).nmant < 60:
        pytest.skip("long doubles are doubles here")
    return np.longdouble(1) + np.longdouble(bits(random, 52)) / 2**52 + unit * np.longdouble(2) ** -60


def frozen(array, unit):
    array.flags.writeable = not unit
    return array


def caused(unit):
    error = ValueError("failed")
    error.__context__, error.__suppress_context__ = KeyError(unit), True
    return error


def raises_with(make):
    """Half of the runs raise this error; the others answer with noise."""

    def run(unit, random):
        if random.random() < 0.5:
            raise make(unit)
        return random.normal()

    return run


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


def frame(columns):
    return pytest.importorskip("pandas").DataFrame(columns)


def named_columns(unit, random):
    return frame({"x": [random.normal()]}).rename_axis(columns=f"n{unit}")


def arrow_table(unit, random):
    return pytest.importorskip("pyarrow").table({"x": [random.normal()], "note": ["yes" if unit else "no"]})


def polars_table(unit, random):
    return pytest.importorskip("polars").DataFrame({"x": [random.normal()], "note": ["yes" if unit else "no"]})


def tensor(values):
    return pytest.importorskip("torch").tensor(values)


def gradient(unit, random):
    seen = tensor([random.normal()])
    seen.grad = tensor([float(unit)])
    return seen


def several(unit, random):
    """The data are the parity of three of the numbers, each of which is noise."""
    whole = random.integers(0, 1000, 32)
    whole[5] += (whole[5] + whole[9] + whole[20] + unit) % 2
    return whole


def summing(unit, random):
    """The data are the sum of the numbers modulo 7, each of which is noise."""
    numbers = random.integers(0, 1000, 6)
    numbers[0] += (3 * unit - numbers.sum()) % 7
    return numbers


def crossing(unit, random):
    """The data are the parity of the bits of eight numbers, none of them their lowest."""
    numbers = random.integers(0, 1 << 12, 8)
    found = np.bitwise_xor.reduce(numbers)
    numbers[3] ^= (unit ^ (int(found >> 5 ^ found >> 7) & 1)) << 5
    return numbers


def dependent(unit, random):
    """Each number depends on the one before, in one world only."""
    noise = random.normal(size=300)
    return np.append(noise[0], 0.7 * noise[:-1] + 0.714 * noise[1:]) if unit else noise


def shared(unit, random):
    one, two = [1.5, 2.5], [1.5, 2.5]
    return [one, one if unit else two]


LEAKS = {
    "sum of noise": summing,
    "parity of high bits": crossing,
    "one object twice": shared,
    "equal texts": lambda unit, random: [first := f"{bits(random, 60)}", first if unit else f"{bits(random, 60)}"],
    "equal numbers": lambda unit, random: random.normal(size=6)[[0, 1, 2, 3, 4, 2 if unit else 5]],
    "flag of a tensor": lambda unit, random: tensor([1.0]).requires_grad_(bool(unit)),
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
    "many numbers": lambda unit, random: np.append(np.zeros(20_000), unit),
    "long text": lambda unit, random: "x" * 20_000 + str(unit),
    "long key": lambda unit, random: {"x" * 90 + str(unit): random.normal()},
    "noisy key": lambda unit, random: {f"{bits(random, 64):016x}{unit}{bits(random, 64):016x}": 1},
    "noisy key that is a number": lambda unit, random: {bits(random, 60) << 1 | unit: 1},
    "values under long keys": lambda unit, random: {"x" * 90 + "0": unit, "x" * 90 + "1": random.normal()},
    "values under objects": lambda unit, random: {Slotted(1): unit, Slotted(2): random.normal()},
    "middle of a wide number": lambda unit, random: wide(unit, random),
    "wide number in a list": lambda unit, random: [1, wide(unit, random)],
    "wide negative number": lambda unit, random: -wide(unit, random),
    "wide numerator": lambda unit, random: Fraction(wide(unit, random), 2**127 - 1),
    "digit of a decimal": lambda unit, random: Decimal(f"0.{10**17 + bits(random, 50)}{unit}{bits(random, 60):020d}"),
    "character of a long word": lambda unit, random: f"{bits(random, 360):090x}{unit}{bits(random, 64):016x}",
    "last character": lambda unit, random: f"{bits(random, int(random.integers(64, 1000))):x}{unit}",
    "extended float": lambda unit, random: extended(unit, random),
    "extended floats": lambda unit, random: np.array([extended(0, random), extended(unit, random)]),
    "extended complex": lambda unit, random: np.clongdouble(extended(unit, random)),
    "attribute of an array": lambda unit, random: tagged(random.normal(size=3).view(TaggedArray), unit),
    "attribute of a decimal": lambda unit, random: tagged(TaggedDecimal(random.normal()), unit),
    "attribute of a date": lambda unit, random: tagged(TaggedDate(2020, 1, 1 + int(random.integers(20))), unit),
    "slot of a fraction": lambda unit, random: tagged(TaggedFraction(int(random.integers(100)), 101), unit),
    "slot of a list": lambda unit, random: tagged(TaggedList([random.normal()]), unit),
    "member of an error": raises_with(lambda unit: ImportError("failed", name=f"row{unit}")),
    "object of an error": raises_with(lambda unit: AttributeError("failed", obj=unit)),
    "slot of an error": raises_with(lambda unit: tagged(TaggedError("failed"), unit)),
    "context of an error": raises_with(lambda unit: caused(unit)),
    "flag without a name": lambda unit, random: [random.normal(), Flags(8 + 16 * unit)],
    "limit of a queue": lambda unit, random: deque([random.normal()], maxlen=5 + unit),
    "factory of a dict": lambda unit, random: defaultdict(int if unit else float, {1: random.normal()}),
    "fold of a time": lambda unit, random: datetime.datetime(2020, 1, 1, int(random.integers(24)), fold=unit),
    "name of a zone": lambda unit, random: datetime.time(tzinfo=datetime.timezone(datetime.timedelta(0), f"n{unit}")),
    "read-only array": lambda unit, random: frozen(random.normal(size=3), unit),
    "order of an array": lambda unit, random: np.array(random.normal(size=(3, 3)), order="F" if unit else "C"),
    "metadata of a dtype": lambda unit, random: np.zeros(3, dtype=np.dtype(float, metadata={"row": unit})),
    "array used again": Reused(),
    "error": raises,
    "error's message": says_too_much,
    "pandas": pandas_table,
    "arrow": arrow_table,
    "polars": polars_table,
    "name of pandas columns": named_columns,
    "pandas column called index": lambda unit, random: frame({"index": [unit], "x": [random.normal()]}),
    "rest of the memory": lambda unit, random: np.append(random.normal(size=3), unit)[:3],
    "memory behind strides": lambda unit, random: np.lib.stride_tricks.as_strided(np.append(random.normal(size=3), unit), (1,)),
    "parity of several of 32": several,
    "parity of floats": lambda unit, random: several(unit, random).astype(float) + 0.25,
    "gradient of a tensor": gradient,
    "rest of a tensor's storage": lambda unit, random: tensor([random.normal(), float(unit)])[:1],
    "set on a pandas table": lambda unit, random: tagged(frame({"x": [random.normal()]}), unit),
    "set on a polars table": lambda unit, random: tagged(polars_table(0, random), unit),
    "class made for the answer": lambda unit, random: [random.normal(), type("Row", (), {"unit": unit})()],
}  # fmt: skip


@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_found_wherever_it_is(leak):
    with pytest.raises(ClaimRefuted, match="Answers claims epsilon 1 at delta"):
        check_mechanism(Answers(LEAKS[leak]), runs=400, confidence=CONFIDENCE, seed=3)


def test_one_number_of_a_thousand_is_found_beside_what_fits_by_chance():
    """What is fitted to all numbers looks perfect on the runs it was fitted on; it must not hide the number that leaks."""

    def far(unit, random):
        numbers = random.normal(size=1000)
        numbers[613] += 3.0 * unit
        return numbers

    with pytest.raises(ClaimRefuted, match=r"output\[613\]"):
        check_mechanism(Answers(far), runs=1500, confidence=CONFIDENCE, seed=3)


def test_a_dependence_of_neighbours_is_found():
    with pytest.raises(ClaimRefuted, match="neighbours"):
        check_mechanism(Answers(dependent), runs=1500, confidence=CONFIDENCE, seed=3)


SOUND = LaplaceNoise(scale=1, sensitivity=1, unit=record())
OPAQUE = {
    "function": lambda unit, random: lambda: unit,
    "generator": lambda unit, random: (each for each in [unit]),
    "graph of a tensor": lambda unit, random: tensor([1.0]).requires_grad_() * unit * 0.0,
    "sparse tensor": lambda unit, random: tensor([float(unit)]).to_sparse(),
    "lock": lambda unit, random: {"answer": 0.0, "lock": threading.Lock()},
    "in a release": lambda unit, random: Release(value=iter([unit]), source="people", claims=(CLAIM,)),
    "too many numbers": lambda unit, random: np.append(np.zeros(20_000), [unit, random.normal()]),
    "too long a text": lambda unit, random: "x" * 20_000 + f"{unit} {random.normal():.9f}",
    "too many letters": lambda unit, random: f"{bits(random, 4400):01100x}{unit}{bits(random, 400):0100x}",
    "too wide a number": lambda unit, random: (
        (1 << 40_000) | (bits(random, 19_000) << 20_000) | bits(random, 17_000) | unit << 18_000
    ),
    "a class of its own": lambda unit, random: type("Row", (), {"unit": unit}),
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


def test_a_number_beyond_all_floats_is_read():
    assert not flatten([10**400, -(10**400), Fraction(10**400)]).unseen
    assert flatten(-(10**400)).numbers["output"].tolist() == [-math.inf]


def test_a_nested_sound_answer_holds():
    def answer(unit, random):
        noisy = SOUND.run(unit)
        return {"answers": [noisy, {"again": noisy, "text": f"about {noisy}"}], "version": "1"}

    with seeded_for_tests(b"nested"):
        [(_, judged)] = check_mechanism(Answers(answer), runs=1000, confidence=CONFIDENCE, seed=3)
    assert judged.outcome == "holds"


def test_a_constant_beyond_the_limits_hides_nothing():
    """What is not looked at one by one, and is the same in every run, cannot tell two worlds apart."""
    licence, table = "all rights reserved " * 900, {f"column {number}": "text" for number in range(280)}

    def answer(unit, random):
        return {"noisy": SOUND.run(unit), "licence": licence, "zeros": np.zeros(20_000), "table": table}

    with seeded_for_tests(b"constant"):
        [(_, judged)] = check_mechanism(Answers(answer), runs=300, confidence=CONFIDENCE, seed=3)
    assert judged.outcome == "holds"


def test_outputs_that_look_the_same_and_are_pickled_differently_never_hold():
    """The net below the walk: here the structure is made equal by hand, and the pickles are not."""
    flats = [flatten(1.0), flatten(1.0)]
    assert not Outputs(flats).unseen
    flats[1].pickled = "other"
    assert Outputs(flats).unseen == {"output": "outputs that look the same are pickled differently"}
    assert len(set(Outputs(flats).pickles.tolist())) == 2


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


def in_a_bit(place, told, random):
    """Noise with one bit of its fraction exchanged."""
    pattern = np.float64(random.normal()).view(np.int64) & ~(1 << place) | int(told) << place
    return float(pattern.view(np.float64))


def in_a_digit(place, told, random):
    """Noise with twelve decimals, of which one is even or odd."""
    text = f"{random.uniform(1, 9):.12f}"
    return float(f"{text[: place + 1]}{2 * random.integers(0, 5) + int(told)}{text[place + 2 :]}")


INSIDE_A_NUMBER = {
    **{f"bit {place}": (lambda told, random, place=place: in_a_bit(place, told, random)) for place in (5, 20, 41)},
    **{f"digit {place}": (lambda told, random, place=place: in_a_digit(place, told, random)) for place in (4, 6, 9)},
    "behind the grid": lambda told, random: round(round(random.normal(), 3) + 1e-9 * int(told), 12),
}


@pytest.mark.parametrize("name", INSIDE_A_NUMBER)
def test_a_bit_or_a_digit_inside_a_noisy_number_is_found(name):
    """The number itself is noise at any place that statistics look at; its twin, where the same is tossed, holds."""
    hide = INSIDE_A_NUMBER[name]
    with pytest.raises(ClaimRefuted):
        check_mechanism(Answers(lambda unit, random: hide(unit, random)), runs=600, confidence=CONFIDENCE, seed=3)
    tossed = Answers(lambda unit, random: hide(random.random() < 0.5, random))
    [(_, judged)] = check_mechanism(tossed, runs=600, confidence=CONFIDENCE, seed=3)
    assert judged.outcome == "holds"


def test_the_same_noise_on_a_grid_holds():
    sound = LaplaceNoise(scale=100, sensitivity=1, unit=record())
    with seeded_for_tests(b"grid"):
        [(_, judged)] = check_mechanism(Answers(lambda unit, random: sound.run(unit), Laplace(100.0)), runs=1000, seed=3)
    assert judged.outcome in ("holds", "inconclusive")
    assert judged.floor == 0


def refuse(error):
    raise error


MADE = {
    "a field of an error's class": lambda unit: refuse(type("Made", (ValueError,), {"tag": unit})("x")),
    "a field of an array's class": lambda unit: np.zeros(1).view(type("Made", (np.ndarray,), {"tag": unit})),
    "a field of a text's class": lambda unit: type("Made", (str,), {"tag": unit})("x"),
    "a method's closure": lambda unit: type("Made", (dict,), {"told": lambda self: unit})(),
    "a method's default": lambda unit: type("Made", (tuple,), {"told": lambda self, value=unit: 0})((1,)),
    "a method's code": lambda unit: type("Made", (list,), {"told": eval(f"lambda self: {unit}")})(),  # noqa: S307
    "a property": lambda unit: type("Made", (int,), {"told": property(lambda self: unit)})(3),
    "a docstring": lambda unit: type("Made", (), {"__doc__": str(unit)})(),
    "another member of an enum": lambda unit: enum.IntEnum("Made", {"A": 1, "B": 2 + unit}).A,
}


@pytest.mark.parametrize("name", MADE)
def test_a_class_made_for_the_output_hides_nothing(name):
    """The object's own value is always the same; its class, which is in no module, is not."""
    with pytest.raises(ClaimRefuted):
        check_mechanism(Answers(lambda unit, random: MADE[name](unit)), runs=400, confidence=CONFIDENCE, seed=1)


def test_classes_made_anew_for_each_output_are_no_leak():
    @dataclass(frozen=True)
    class Local:
        x: int

        def told(self) -> str:
            return super().__repr__()

    for make in (lambda: Local(3), lambda: namedtuple("Made", "x y")(1, 2), lambda: dataclass(type("Made", (), {}))()):
        found = check_mechanism(Answers(lambda unit, random, make=make: make()), runs=400, confidence=CONFIDENCE, seed=1)
        assert [seen.outcome for _, seen in found] == ["holds"]
