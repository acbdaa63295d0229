"""An output taken apart: every number, text, length, type and key in it, whatever it is nested in.

A distinguisher that looks at top-level numbers only calls a mechanism sound that hides the data in a label, a key or the
message of an error. Here an output becomes named parts: blocks of numbers, texts, and kinds (what is there, of which type).
What cannot be looked into is named as well, so that nobody takes it for seen.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
import re
import types
from collections.abc import Mapping, Sequence, Set
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

PARTS = 20_000  # of one output that are walked through
NUMBERS = 8192  # of one output that are looked at one by one
_DEEPEST = 40
_LONGEST = 10_000  # characters of one text
_WORDS = 64  # of one text that are looked at by their place
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_HEAP_TYPE, _IMMUTABLE = 1 << 9, 1 << 8  # Py_TPFLAGS_HEAPTYPE and _IMMUTABLETYPE
_OPAQUE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, types.GeneratorType)


class Raised:
    """What a run gave that raised an error instead of answering."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class Flat:
    """The parts of one output, by name: `numbers`, the `bits` of each, `texts`, `kinds`; and what is `unseen`, with why."""

    __slots__ = ("bits", "kinds", "numbers", "texts", "unseen")

    def __init__(self) -> None:
        self.numbers: dict[str, NDArray[np.float64]] = {}
        self.bits: dict[str, NDArray[np.uint64]] = {}
        self.texts: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.unseen: dict[str, str] = {}


def flatten(output: Any) -> Flat:
    """Take one output apart.

    >>> flat = flatten({"count": 3, "notes": ["41 rows", None]})
    >>> flat.numbers["output['count']"].tolist(), flat.numbers["output['notes'][0], numbers"].tolist()
    ([3.0], [41.0])
    >>> flatten(lambda: 3).unseen
    {'output': 'a function'}
    """
    walk = _Walk()
    walk.visit("output", output, ())
    return walk.flat


class _Walk:
    def __init__(self) -> None:
        self.flat = Flat()
        self.parts = self.counted = 0

    def visit(self, name: str, value: Any, above: tuple[int, ...]) -> None:
        self.parts += 1
        self.flat.kinds[name] = type(value).__name__
        if value is None:
            return
        if self.parts > PARTS or len(above) > _DEEPEST:
            self.unseen(name, f"more than {PARTS} parts" if self.parts > PARTS else f"nested more than {_DEEPEST} deep")
        elif id(value) in above:
            self.flat.kinds[name] = "itself again"
        else:
            try:
                self.look(name, value, (*above, id(value)))
                self.attributes(name, value, (*above, id(value)))
            except Exception as error:  # a stranger's object may refuse in any way
                self.unseen(name, f"{type(value).__name__} that cannot be read ({type(error).__name__})")

    def look(self, name: str, value: Any, above: tuple[int, ...]) -> None:
        if isinstance(value, (Raised, BaseException)):
            self.raised(name, value.error if isinstance(value, Raised) else value, above)
        elif self.scalar(name, value):
            return
        elif isinstance(value, str):
            self.text(name, str(value))
        elif isinstance(value, (bytes, bytearray, memoryview)):
            self.array(name, np.frombuffer(bytes(value), dtype=np.uint8))
        elif isinstance(value, np.ndarray):
            self.array(name, value, above)
        elif (columns := _table(value)) is not None:
            self.mapping(name, columns, above)
        elif isinstance(value, Mapping):
            self.mapping(name, value, above)
        elif isinstance(value, Set):
            self.members(name, value, above)
        elif isinstance(value, Sequence):
            self.sequence(name, value, above)
        else:
            self.thing(name, value, above)

    def attributes(self, name: str, value: Any, above: tuple[int, ...]) -> None:
        """What a number, a text or a list carries beside itself when its class was written in Python."""
        if isinstance(value, (int, float, complex, str, bytes, Mapping, Set, Sequence)) and _in_python(type(value)):
            beside = dict(getattr(value, "__dict__", {}))
            if beside and not isinstance(value, enum.Enum):
                self.mapping(f"{name}, attributes", beside, above)

    def scalar(self, name: str, value: Any) -> bool:
        """Numbers and what stands for one."""
        if isinstance(value, enum.Enum):
            self.flat.texts[name] = value.name
        elif isinstance(value, (int, np.integer, np.bool_)):
            self.whole(name, int(value))
        elif isinstance(value, (float, np.floating)):
            self.put(name, np.array([value], dtype=value.dtype if isinstance(value, np.floating) else np.float64))
        elif isinstance(value, (complex, np.complexfloating)):
            self.put(f"{name}, real and imaginary", np.array([value.real, value.imag], dtype=np.float64))
        elif isinstance(value, Decimal):
            self.flat.texts[name] = str(value)
            self.put(name, np.array([math.nan if value.is_snan() else float(value)]))
        elif isinstance(value, Fraction):
            self.whole(f"{name}, numerator", value.numerator)
            self.whole(f"{name}, denominator", value.denominator)
            self.put(name, np.array([value.numerator / value.denominator]))
        elif isinstance(value, datetime.timedelta):
            self.whole(name, value // datetime.timedelta(microseconds=1))
        elif isinstance(value, (datetime.date, datetime.time)):
            self.text(name, value.isoformat())
        elif isinstance(value, type):
            self.flat.texts[name] = f"{value.__module__}.{value.__qualname__}"
        else:
            return False
        return True

    def whole(self, name: str, value: int) -> None:
        """A whole number of any size, with its lowest 64 bits and its length."""
        try:
            near = float(value)
        except OverflowError:
            near = math.copysign(math.inf, value)
            self.text(f"{name}, in hexadecimal", hex(value))
        self.put(name, np.array([near]), np.array([value & 0xFFFF_FFFF_FFFF_FFFF], dtype=np.uint64))
        if value.bit_length() > 64:
            self.put(f"{name}, bits", np.array([float(value.bit_length())]))

    def text(self, name: str, value: str) -> None:
        """A text as a whole, its length, its words by place and by presence, and the numbers in it."""
        if len(value) > _LONGEST:
            self.unseen(name, f"text beyond its first {_LONGEST} characters")
        self.put(f"length of {name}", np.array([float(len(value))]))
        value = value[:_LONGEST]
        self.flat.texts[name] = value
        words = value.split()
        if len(words) > 1:
            for place, word in enumerate(words[:_WORDS]):
                self.flat.texts[f"{name}, word {place}"] = word
            for word in set(words):
                self.flat.kinds[f"{name}, has {word[:40]!r}"] = "word"
        within = _NUMBER.findall(value)
        if within:
            self.put(f"{name}, numbers", np.array([float(each) for each in within]))
        if len(value) <= _WORDS:
            self.put(f"{name}, characters", np.array([ord(each) for each in value], dtype=np.float64))

    def array(self, name: str, value: NDArray[Any], above: tuple[int, ...] = ()) -> None:
        self.flat.kinds[name] = f"{type(value).__name__} of {value.dtype}"
        self.flat.texts[f"shape of {name}"] = repr(value.shape)
        self.put(f"length of {name}", np.array([float(value.size)]))
        if isinstance(value, np.ma.MaskedArray):
            self.array(f"{name}, mask", np.ma.getmaskarray(value))
            value = value.data
        if value.dtype.names:
            for field in value.dtype.names:
                self.array(f"{name}[{field!r}]", value[field], above)
        elif value.dtype.kind in "mM":
            self.put(name, value.view(np.int64).ravel())
        elif value.dtype.kind == "c":
            self.put(f"{name}, real", value.real.ravel())
            self.put(f"{name}, imaginary", value.imag.ravel())
        elif value.dtype.kind in "biuf":
            self.put(name, value.ravel())
        elif value.dtype.kind == "V":
            self.put(name, np.frombuffer(value.tobytes(), dtype=np.uint8))
        else:
            self.sequence(name, value.ravel().tolist(), above)

    def put(self, name: str, values: NDArray[Any], bits: NDArray[np.uint64] | None = None) -> None:
        """A block of numbers, as floats and as the bits they are stored in."""
        room = max(NUMBERS - self.counted, 0)
        if len(values) > room:
            self.unseen(name, f"numbers beyond the first {NUMBERS} of the output")
            values = values[:room]
        self.counted += len(values)
        self.flat.numbers[name] = values.astype(np.float64)
        self.flat.bits[name] = _bits(values) if bits is None else bits

    def mapping(self, name: str, value: Mapping[Any, Any], above: tuple[int, ...]) -> None:
        self.put(f"length of {name}", np.array([float(len(value))]))
        self.flat.texts[f"keys of {name}"] = "|".join(map(_short, value))
        for place, (key, item) in enumerate(value.items()):
            if not isinstance(key, (str, int, float, bytes, bool, type(None))):
                self.visit(f"key {place} of {name}", key, above)
            self.visit(f"{name}[{_short(key)}]", item, above)
            if self.parts > PARTS:
                return

    def members(self, name: str, value: Set[Any], above: tuple[int, ...]) -> None:
        """A set, in an order that does not depend on hashes."""
        self.put(f"length of {name}", np.array([float(len(value))]))
        for member in value:
            self.flat.kinds[f"{name}, has {_short(member)}"] = "member"
        self.sequence(f"{name}, sorted", sorted(value, key=lambda each: (type(each).__name__, _short(each))), above)

    def sequence(self, name: str, value: Sequence[Any], above: tuple[int, ...]) -> None:
        self.put(f"length of {name}", np.array([float(len(value))]))
        sorts = set(map(type, value))
        if sorts == {float} or sorts == {bool} or (sorts == {int} and all(abs(each) < 1 << 63 for each in value)):
            self.flat.kinds[f"items of {name}"] = next(iter(sorts)).__name__
            self.put(name, np.array(value))
            return
        names = getattr(type(value), "_fields", ())
        for place, item in enumerate(value):
            self.visit(f"{name}.{names[place]}" if place < len(names) else f"{name}[{place}]", item, above)
            if self.parts > PARTS:
                return

    def thing(self, name: str, value: Any, above: tuple[int, ...]) -> None:
        """Any other object: its fields, where it is made of fields alone."""
        if hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor, perhaps of another device
            value = value.detach().cpu()
        if hasattr(value, "__array__"):
            self.array(f"{name} as an array", np.asarray(value), above)
            return
        made = [each for each in type(value).__mro__ if each is not object and each.__module__ not in ("abc", "typing")]
        if isinstance(value, _OPAQUE) or not all(map(_in_python, made)) or hasattr(value, "__next__"):
            self.unseen(name, f"a {type(value).__name__}")
            return
        fields = {slot for each in made for slot in _slots(each)} | set(getattr(value, "__dict__", {}))
        if dataclasses.is_dataclass(value):
            fields |= {field.name for field in dataclasses.fields(value)}
        for field in sorted(fields):
            if field not in ("__dict__", "__weakref__") and hasattr(value, field):
                self.visit(f"{name}.{field}", getattr(value, field), above)

    def raised(self, name: str, error: BaseException, above: tuple[int, ...]) -> None:
        self.flat.kinds[name] = f"error {type(error).__name__}"
        self.text(f"{name}, error", str(error))
        self.visit(f"{name}, error's arguments", error.args, above)
        self.visit(f"{name}, error's notes", getattr(error, "__notes__", ()), above)
        self.visit(f"{name}, error's fields", dict(vars(error)), above)
        self.visit(f"{name}, error's cause", error.__cause__ or error.__context__, above)

    def unseen(self, name: str, why: str) -> None:
        self.flat.unseen[name] = why


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    """What numbers are stored as: the pattern of a float, the value of a whole number."""
    if values.dtype.kind == "f" and values.dtype.itemsize in (2, 4, 8):
        return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64)
    if values.dtype.kind == "f":
        return np.ascontiguousarray(values.astype(np.float64)).view(np.uint64)
    return np.asarray(values.astype(np.int64) if values.dtype.kind != "u" else values).astype(np.uint64)


def _table(value: Any) -> Mapping[str, Any] | None:
    """The columns of a table of pandas, polars or Arrow, none of which is imported here; None for all else."""
    home = type(value).__module__.partition(".")[0]
    if home == "pandas" and hasattr(value, "columns"):
        columns = {str(name): value[name].to_numpy() for name in value.columns}
        return {**columns, "index": np.asarray(value.index), "attrs": dict(value.attrs)}
    if home == "pandas" and hasattr(value, "index"):
        return {"values": value.to_numpy(), "index": np.asarray(value.index), "name": value.name, "attrs": dict(value.attrs)}
    if home == "polars" and hasattr(value, "to_dict"):
        return {name: series.to_numpy() for name, series in value.to_dict(as_series=True).items()}
    if home == "pyarrow" and hasattr(value, "to_pydict"):
        return {**value.to_pydict(), "schema": str(value.schema)}
    if home == "pyarrow" and hasattr(value, "to_pylist"):
        return {"values": value.to_pylist(), "type": str(value.type)}
    return None


def _in_python(kind: type) -> bool:
    """Is this class a `class` statement, so that its objects hold their fields and slots alone? Others may hide memory."""
    own = kind.__flags__ & _HEAP_TYPE and not kind.__flags__ & _IMMUTABLE
    body = "__slots__" in vars(kind) or "__weakref__" in vars(kind) or "__dict__" in vars(kind)
    return bool(own) and (body or any(_in_python(base) for base in kind.__bases__ if base is not object))


def _slots(kind: type) -> Sequence[str]:
    slots = kind.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    private = f"_{kind.__name__.lstrip('_')}"
    return [private + each if each.startswith("__") and not each.endswith("__") else each for each in names]


def _short(value: Any) -> str:
    """A name for a key or a member; of objects it shows the type alone, since their text may hold an address."""
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(_short, value)))[:80] + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_short, value))[:80] + ")"
    plain = isinstance(value, (str, int, float, complex, bytes, type(None), Decimal, Fraction, datetime.date))
    return repr(value)[:80] if plain else type(value).__name__
