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
import sys
import types
from collections.abc import Mapping, Sequence, Set
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.audit.inside import (
    as_bytes,
    bare_base,
    class_data,
    digest,
    in_python,
    is_plain,
    layout,
    nibbles,
    own_fields,
    pickle_digest,
    ratio,
    shown_key,
    stored,
    stored_bytes,
    table_columns,
    table_fields,
)

PARTS = 20_000  # of one output that are walked through
NUMBERS = 8192  # of one output that are looked at one by one
LETTERS = 2048  # characters, digits and half bytes of one output that are looked at one by one
_DEEPEST = 40
_LONGEST = 10_000  # characters of one text
_WORDS = 64  # of one text that are looked at by their place
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_PLACES, _LAST, _KEYS = 1024, 16, 256  # characters of one text by place, and from its end; keys of one mapping
_ASIDE = (", characters", ", last characters", ", digits", ", half bytes")
_REDUCED = (datetime.tzinfo, re.Pattern, slice)  # of C, and whole in what `__reduce_ex__` says
_UNTOLD = ("__traceback__", "__context__", "__cause__", "__dict__", "__weakref__", "args")
_CHANGEABLE = (list, dict, set, bytearray, np.ndarray)  # whether two are one object shows when one is changed
_OPAQUE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, types.GeneratorType)


class Raised:
    """What a run gave that raised an error instead of answering."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Flat:
    """The parts of one output, by name: `numbers`, the `bits` of each, `texts`, `kinds`; and what is `unseen`, with why.

    `cut` has the digest of what lies beyond a limit, with why: it is unseen unless it is the same in every output.
    `pickled` is a digest of the output as `pickle` writes it, or empty.
    """

    __slots__ = ("bits", "cut", "kinds", "numbers", "pickled", "texts", "unseen")

    def __init__(self) -> None:
        self.numbers: dict[str, NDArray[np.float64]] = {}
        self.bits: dict[str, NDArray[np.uint64]] = {}
        self.texts: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.unseen: dict[str, str] = {}
        self.cut: dict[str, tuple[str, str]] = {}
        self.pickled = ""


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
    if not walk.flat.unseen and not walk.foreign:
        walk.flat.pickled = pickle_digest(output.error if isinstance(output, Raised) else output)
    return walk.flat


def aside(name: str) -> bool:
    """Is this block a way to write another part, or part of a key, and not a number of the output?"""
    return name.endswith(_ASIDE) or "key " in name


class _Walk:
    def __init__(self) -> None:
        self.flat = Flat()
        self.parts = self.counted = self.letters = 0
        self.foreign = False  # holds tensors, whose pickles hold addresses
        self.met: dict[int, tuple[str, Any]] = {}  # where an object that can be changed was seen first, and the object

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
            if issubclass(type(value), _CHANGEABLE):
                first = self.met.setdefault(id(value), (name, value))[0]
                if first != name:
                    self.flat.kinds[f"{name}, the same object"] = first
            try:
                self.made(name, type(value), (*above, id(value)))
                if self.look(name, value, (*above, id(value))):
                    self.beside(name, value, (*above, id(value)))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a stranger's object may refuse in any way
                self.unseen(name, f"{type(value).__name__} that cannot be read ({type(error).__name__})")

    def made(self, name: str, kind: type, above: tuple[int, ...]) -> None:
        """What the classes of a value hold, where they were made while it ran: an object of any type may hide a value there."""
        for place, each in enumerate(kind.__mro__):
            if in_python(each) and (data := class_data(each)):
                self.mapping(f"{name}, class {place}", data, above)

    def look(self, name: str, value: Any, above: tuple[int, ...]) -> bool:
        """Walk the value itself; True where it may carry more beside that."""
        if isinstance(value, (Raised, BaseException)):
            self.raised(name, value.error if isinstance(value, Raised) else value, above)
            return False
        if self.scalar(name, value, above):
            return not isinstance(value, (enum.Enum, type))
        if isinstance(value, str):
            self.text(name, str(value))
        elif isinstance(value, (bytes, bytearray, memoryview)):
            self.array(name, as_bytes(value))
            self.flat.texts[f"form of {name}"] = repr((value.format, value.shape) if isinstance(value, memoryview) else ())
        elif isinstance(value, np.ndarray):
            self.array(name, value, above)
            self.behind(name, value.base, value.nbytes, above)
        elif (columns := table_columns(value)) is not None:
            self.mapping(name, columns, above)
            if beside := table_fields(value):
                self.mapping(f"{name}, attributes", beside, above)
            return False
        elif isinstance(value, Mapping):
            self.mapping(name, value, above)
        elif isinstance(value, Set):
            self.members(name, value, above)
        elif isinstance(value, Sequence):
            self.sequence(name, value, above)
        else:
            return self.thing(name, value, above)
        return True

    def behind(self, name: str, base: Any, shown: int, above: tuple[int, ...]) -> None:
        """What an array is a window on: whoever has the one can reach the other."""
        while getattr(base, "base", None) is not None:
            base = base.base
        try:
            size = 0 if base is None else base.nbytes if isinstance(base, np.ndarray) else memoryview(base).nbytes
        except TypeError:  # no memory that can be read
            return
        if size > shown:
            self.array(f"memory behind {name}", base if isinstance(base, np.ndarray) else as_bytes(memoryview(base)), above)

    def tensor(self, name: str, value: Any, above: tuple[int, ...]) -> None:
        """What a tensor carries beside its numbers: attributes, a gradient, the rest of its storage, what it was made from."""
        self.foreign = True
        form = (getattr(value, each, None) for each in ("dtype", "layout", "requires_grad", "is_leaf", "names"))
        self.flat.texts[f"form of {name}"] = repr((str(getattr(value, "device", "")), *map(str, form)))
        self.mapping(f"{name}, attributes", dict(getattr(value, "__dict__", {})), above)
        if getattr(value, "grad_fn", None) is not None:
            self.unseen(f"{name}.grad_fn", "the computation that a tensor was made by, with the tensors in it")
        elif getattr(value, "grad", None) is not None:
            self.visit(f"{name}.grad", value.grad, above)
        storage = value.untyped_storage() if hasattr(value, "untyped_storage") and not value.is_sparse else None
        if storage is not None and storage.nbytes() > value.numel() * value.element_size():
            if storage.nbytes() > NUMBERS:
                self.unseen(f"storage of {name}", f"more than {NUMBERS} bytes that the tensor is a window on")
            else:
                self.array(f"storage of {name}", np.array(storage.tolist(), dtype=np.uint8), above)

    def beside(self, name: str, value: Any, above: tuple[int, ...]) -> None:
        """What a value carries beside itself: fields of classes written in Python, and what its type of C keeps."""
        fields = own_fields(value)
        if fields:
            self.mapping(f"{name}, attributes", fields, above)
        if not is_plain(bare_base(type(value))):
            self.reduced(name, value, above)

    def reduced(self, name: str, value: Any, above: tuple[int, ...]) -> None:
        """What is needed to make the object again, but for its items: a length limit, a factory, a time zone."""
        _, arguments, *rest = value.__reduce_ex__(4)
        told = [each for each in arguments if each is not type(value)]
        self.visit(f"{name}, made from", [told, rest[0] if rest else None], above)

    def scalar(self, name: str, value: Any, above: tuple[int, ...]) -> bool:
        """Numbers and what stands for one."""
        if isinstance(value, enum.Enum):
            self.flat.texts[name] = str(value.name)
            self.visit(f"{name}, value", value.value, above)
            inner = {key: each for key, each in own_fields(value).items() if key not in ("_value_", "_name_", "__objclass__")}
            self.mapping(f"{name}, attributes", inner, above)
        elif isinstance(value, (int, np.integer, np.bool_)):
            self.whole(name, int(value))
        elif isinstance(value, (float, np.floating)):
            self.put(name, np.array([value], dtype=value.dtype if isinstance(value, np.floating) else np.float64))
        elif isinstance(value, (complex, np.complexfloating)):
            self.put(f"{name}, real and imaginary", np.array([value.real, value.imag]))
        elif isinstance(value, Decimal):
            self.flat.texts[name] = str(value)
            self.spell(f"{name}, digits", np.array(value.as_tuple().digits, dtype=np.uint8))
            self.put(name, np.array([math.nan if value.is_snan() else float(value)]))
        elif isinstance(value, Fraction):
            self.whole(f"{name}, numerator", value.numerator)
            self.whole(f"{name}, denominator", value.denominator)
            self.put(name, np.array([ratio(value)]))
        elif isinstance(value, datetime.timedelta):
            self.whole(name, value // datetime.timedelta(microseconds=1))
        elif isinstance(value, (datetime.date, datetime.time)):
            self.text(name, value.isoformat())
        elif isinstance(value, type):
            self.flat.texts[name] = f"{value.__module__}.{value.__qualname__}"
            if getattr(sys.modules.get(value.__module__), value.__qualname__, None) is not value:
                self.unseen(name, "a class that is in no module")
        else:
            return False
        return True

    def whole(self, name: str, value: int) -> None:
        """A whole number of any size; one that no float holds also by its length and its half bytes, the lowest first."""
        try:
            near = float(value)
        except OverflowError:
            near = math.inf if value > 0 else -math.inf
        self.put(name, np.array([near]), np.array([value & 0xFFFF_FFFF_FFFF_FFFF], dtype=np.uint64))
        if value.bit_length() > 53:
            self.put(f"{name}, bits", np.array([float(value.bit_length())]))
            raw = abs(value).to_bytes((value.bit_length() + 7) // 8, "little")
            self.spell(f"{name}, half bytes", nibbles(np.frombuffer(raw, dtype=np.uint8)))

    def text(self, name: str, value: str) -> None:
        """A text as a whole, its length, its words by place and by presence, the numbers in it, and its characters."""
        self.put(f"length of {name}", np.array([float(len(value))]))
        codes = np.array([ord(each) for each in value[:_LONGEST]], dtype=np.uint32)
        self.spell(f"{name}, characters", codes[:_PLACES], value[_PLACES:])
        self.spell(f"{name}, last characters", codes[: -_LAST - 1 : -1] if len(value) <= _LONGEST else codes[:0])
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

    def spell(self, name: str, codes: NDArray[Any], rest: str = "") -> None:
        """Small numbers that another part is written in; what there is no room for is `cut`."""
        room = max(LETTERS - self.letters, 0)
        if len(codes) > room or rest:
            left = codes[room:].tobytes() + rest.encode("utf-8", "surrogatepass")
            self.flat.cut[name] = digest(left), f"beyond the first {min(len(codes), room)}"
            codes = codes[:room]
        self.letters += len(codes)
        self.flat.numbers[name] = codes.astype(np.float64)
        self.flat.bits[name] = codes.astype(np.uint64)

    def array(self, name: str, value: NDArray[Any], above: tuple[int, ...] = ()) -> None:
        self.flat.kinds[name] = f"{type(value).__name__} of {value.dtype}"
        self.flat.texts[f"shape of {name}"] = repr(value.shape)
        self.flat.texts[f"layout of {name}"] = layout(value)
        if value.dtype.metadata:
            self.visit(f"{name}, metadata", dict(value.dtype.metadata), above)
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
            left = stored(values[room:]) if bits is None else bits[room:]
            self.flat.cut[name] = digest(left.tobytes()), f"numbers beyond the first {NUMBERS} of the output"
            values, bits = values[:room], None if bits is None else bits[:room]
        self.counted += len(values)
        self.flat.numbers[name] = values.astype(np.float64)
        self.flat.bits[name] = stored(values) if bits is None else bits
        if values.dtype.kind == "f" and values.dtype.itemsize > 8:
            self.spell(f"{name}, half bytes", nibbles(stored_bytes(values)))

    def mapping(self, name: str, value: Mapping[Any, Any], above: tuple[int, ...]) -> None:
        self.put(f"length of {name}", np.array([float(len(value))]))
        self.flat.texts[f"keys of {name}"] = "|".join(shown_key(key)[0] for key in value)
        for place, (key, item) in enumerate(value.items()):
            shown, whole = shown_key(key)
            if place < _KEYS or not whole:
                self.visit(f"key {place} of {name}", key, above)
            else:
                self.flat.cut[f"key {place} of {name}"] = digest(shown.encode("utf-8", "surrogatepass")), "one of many keys"
            self.visit(f"{name}[{shown}]" if whole else f"{name}[{shown}, key {place}]", item, above)
            if self.parts > PARTS:
                return

    def members(self, name: str, value: Set[Any], above: tuple[int, ...]) -> None:
        """A set, in an order that does not depend on hashes."""
        self.put(f"length of {name}", np.array([float(len(value))]))
        for member in value:
            self.flat.kinds[f"{name}, has {shown_key(member)[0]}"] = "member"
        self.sequence(f"{name}, sorted", sorted(value, key=lambda each: (type(each).__name__, shown_key(each)[0])), above)

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

    def thing(self, name: str, value: Any, above: tuple[int, ...]) -> bool:
        """Any other object: its fields, where it is made of fields alone; True where it may carry more."""
        if hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor, perhaps of another device
            self.tensor(name, value, above)
            value = value.detach().cpu()
        if hasattr(value, "__array__"):
            self.foreign = self.foreign or not isinstance(value, np.generic)
            self.array(f"{name} as an array", np.asarray(value), above)
            return False
        if isinstance(value, _REDUCED):
            return True
        made = [each for each in type(value).__mro__ if each is not object and each.__module__ not in ("abc", "typing")]
        if isinstance(value, _OPAQUE) or not all(map(in_python, made)) or hasattr(value, "__next__"):
            self.unseen(name, f"a {type(value).__name__}")
            return False
        fields = own_fields(value)
        if dataclasses.is_dataclass(value):
            named = [field.name for field in dataclasses.fields(value)]
            fields |= {field: getattr(value, field) for field in named if hasattr(value, field)}
        for field in sorted(fields):
            self.visit(f"{name}.{field}", fields[field], above)
        return False

    def raised(self, name: str, error: BaseException, above: tuple[int, ...]) -> None:
        """An error: its text, its arguments, and every member of its class, since some keep theirs outside of `vars`."""
        self.flat.kinds[name] = f"error {type(error).__name__}"
        self.made(name, type(error), above)
        self.text(f"{name}, error", str(error))
        self.visit(f"{name}, error's arguments", error.args, above)
        members = {
            key for kind in type(error).__mro__ for key, each in vars(kind).items()
            if isinstance(each, (types.MemberDescriptorType, types.GetSetDescriptorType)) and key not in _UNTOLD
        }  # fmt: skip
        told = {key: getattr(error, key) for key in sorted(members) if hasattr(error, key)}
        self.visit(f"{name}, error's fields", {**told, **vars(error)}, above)
        self.visit(f"{name}, error's cause", error.__cause__, above)
        self.visit(f"{name}, error's context", error.__context__, above)

    def unseen(self, name: str, why: str) -> None:
        self.flat.unseen[name] = why
