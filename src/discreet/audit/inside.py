"""What an object is made of: its fields, its columns, its bytes. Used to take outputs apart."""

from __future__ import annotations

import collections
import datetime
import enum
import hashlib
import io
import marshal
import math
import pickle
import re
import sys
import types
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEAP_TYPE, _IMMUTABLE = 1 << 9, 1 << 8  # Py_TPFLAGS_HEAPTYPE and _IMMUTABLETYPE
_TOLD = ("__doc__", "__module__", "__qualname__")
_DUNDER = re.compile("__.*__")
_OF_TABLES = frozenset(
    ["_mgr", "_attrs", "_flags", "_name", "_item_cache", "_data", "_cache", "_id", "_references", "_df", "_s"]
)
_SHOWN = 80  # characters of a key
# Types of C that hold nothing beside what the walk reads from them.
_PLAIN = frozenset({
    object, int, bool, float, complex, str, bytes, bytearray, memoryview, list, tuple, dict, set, frozenset, Decimal,
    datetime.date, datetime.timedelta, collections.OrderedDict, types.MappingProxyType, np.ndarray,
})  # fmt: skip


def bare_base(kind: type) -> type:
    """The first class that was not written in Python among those a class is derived from.

    >>> class Tagged(list): pass
    >>> bare_base(Tagged)
    <class 'list'>
    """
    return next(each for each in kind.__mro__ if not in_python(each) and each.__module__ not in ("abc", "typing"))


def is_plain(kind: type) -> bool:
    """Does the walk read all that an object of this type of C holds?"""
    return kind in _PLAIN or issubclass(kind, np.generic)


def own_fields(value: Any) -> dict[str, Any]:
    """The attributes and slots that an object holds by classes written in Python."""
    fields = dict(getattr(value, "__dict__", {}))
    for slot in (slot for kind in type(value).__mro__ if in_python(kind) for slot in _slots(kind)):
        if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
            fields[slot] = getattr(value, slot)
    return fields


def class_data(kind: type) -> dict[str, Any]:
    """What a class holds, if it is in no module: it may have been made for this output alone.

    Of its methods that is their code, defaults and what they keep of the place they were written in.

    >>> class_data(type("Made", (), {"secret": 7}))["secret"], class_data(Fraction)
    (7, {})
    """
    if getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind:
        return {}
    data: dict[str, Any] = {}
    for key, each in vars(kind).items():
        ways = (each, *(getattr(each, part, None) for part in ("__func__", "fget", "fset", "fdel")))
        methods = [way for way in ways if isinstance(way, types.FunctionType)]
        if methods:
            data[key] = [_kept(method, kind, ()) for method in methods]
        elif key in _TOLD or not (_DUNDER.fullmatch(key) or callable(each) or hasattr(each, "__get__")):
            data[key] = each
    return data


def _kept(function: types.FunctionType, kind: type, above: tuple[types.FunctionType, ...]) -> list[Any]:
    """All that a function of a class holds; other functions among it are taken apart as well."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # empty
            cells.append(None)
    held = [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    inner = [
        _kept(each, kind, (*above, function)) if isinstance(each, types.FunctionType) else _named(each)
        for each in held
        if each is not kind and each is not function and each not in above
    ]
    return [digest(marshal.dumps(function.__code__)), inner]


def _named(value: Any) -> Any:
    """A function of C that belongs to a type or a module, by its name: it holds nothing else."""
    owner = getattr(value, "__self__", None)
    if isinstance(value, types.BuiltinFunctionType) and isinstance(owner, (type, types.ModuleType)):
        return f"{owner.__name__}.{value.__name__}"
    return value


def as_bytes(value: bytes | bytearray | memoryview) -> NDArray[np.uint8]:
    return np.frombuffer(bytes(value), dtype=np.uint8)


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def pickle_digest(output: Any) -> str:
    """A digest of all that `pickle` keeps of an output, without a memo: which equal parts are one object is no content.

    >>> pickle_digest([1, "a"]) == pickle_digest([1, "a"]), pickle_digest(lambda: 1)
    (True, '')
    """
    file = io.BytesIO()
    try:
        pickler = pickle.Pickler(file, protocol=4)
        pickler.fast = True
        pickler.dump(output)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a stranger's object may refuse in any way
        return ""
    return digest(file.getvalue())


def nibbles(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Each byte as two numbers below 16, the low half first: few enough cells that every bit shows."""
    return np.stack([values & 15, values >> 4], axis=1).ravel()


def stored_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of extended floats, without the padding that an 80-bit one has to its 16 bytes."""
    used = 10 if np.finfo(values.dtype).nmant == 63 else values.dtype.itemsize
    native = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("=")))
    return native.view(np.uint8).reshape(len(values), -1)[:, :used].ravel()


def layout(value: NDArray[Any]) -> str:
    """How an array lies in memory."""
    flags = value.flags
    return repr((value.dtype.str, value.strides, flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned))


def stored(values: NDArray[Any]) -> NDArray[np.uint64]:
    """What numbers are stored as: the pattern of a float, the value of a whole number."""
    if values.dtype.kind == "f" and values.dtype.itemsize in (2, 4, 8):
        return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64)
    if values.dtype.kind == "f":
        return np.ascontiguousarray(values.astype(np.float64)).view(np.uint64)
    return np.asarray(values.astype(np.int64) if values.dtype.kind != "u" else values).astype(np.uint64)


def table_columns(value: Any) -> Mapping[str | None, Any] | None:
    """The columns of a table of pandas, polars or Arrow, none of which is imported here; None for all else.

    What a table has beside its columns is under None, which is no column's name.
    """
    home = type(value).__module__.partition(".")[0]
    if home == "pandas" and hasattr(value, "columns"):
        columns: dict[str | None, Any] = {str(name): value[name].to_numpy() for name in value.columns}
        labels = [list(value.columns), list(value.columns.names), list(value.index.names)]
        return {**columns, None: {"index": np.asarray(value.index), "labels": labels, "attrs": dict(value.attrs)}}
    if home == "pandas" and hasattr(value, "index"):
        return {"values": value.to_numpy(), "index": np.asarray(value.index), "name": value.name, "attrs": dict(value.attrs)}
    if home == "polars" and hasattr(value, "to_dict"):
        return {name: series.to_numpy() for name, series in value.to_dict(as_series=True).items()}
    if home == "pyarrow" and hasattr(value, "to_pydict"):
        return {**value.to_pydict(), None: {"schema": str(value.schema)}}
    if home == "pyarrow" and hasattr(value, "to_pylist"):
        return {"values": value.to_pylist(), "type": str(value.type)}
    return None


def table_fields(value: Any) -> dict[str, Any]:
    """What somebody has set on a table beside what its library keeps there."""
    return {name: field for name, field in own_fields(value).items() if name not in _OF_TABLES}


def in_python(kind: type) -> bool:
    """Is this class a `class` statement, so that its objects hold their fields and slots alone? Others may hide memory."""
    own = kind.__flags__ & _HEAP_TYPE and not kind.__flags__ & _IMMUTABLE
    body = "__slots__" in vars(kind) or "__weakref__" in vars(kind) or "__dict__" in vars(kind)
    return bool(own) and (body or any(in_python(base) for base in kind.__bases__ if base is not object))


def _slots(kind: type) -> Sequence[str]:
    slots = kind.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    private = f"_{kind.__name__.lstrip('_')}"
    return [private + each if each.startswith("__") and not each.endswith("__") else each for each in names]


def shown_key(value: Any) -> tuple[str, bool]:
    """A name for a key or a member, and whether it says all; of objects it has the type alone, since texts may hold addresses.

    >>> shown_key("age"), shown_key(("x" * 90,))[1]
    (("'age'", True), False)
    """
    if isinstance(value, (frozenset, tuple)):
        items = [shown_key(each) for each in value]
        shown = ", ".join(sorted(each for each, _ in items) if isinstance(value, frozenset) else [each for each, _ in items])
        whole = type(value) in (frozenset, tuple) and len(shown) <= _SHOWN and all(told for _, told in items)
        return ("{%s}" if isinstance(value, frozenset) else "(%s)") % shown[:_SHOWN], whole
    plain = (str, int, float, complex, bytes, type(None), Decimal, Fraction, datetime.date)
    if not isinstance(value, plain) or isinstance(value, enum.Enum):
        return type(value).__name__, False
    exact = type(value) in (*plain, bool, datetime.datetime) and getattr(value, "tzinfo", None) is None
    # The decimal digits of a very wide number are refused by Python.
    shown = hex(value) if isinstance(value, int) and value.bit_length() > 4096 else repr(value)
    return shown[:_SHOWN], exact and len(shown) <= _SHOWN


def ratio(value: Fraction) -> float:
    """The nearest float, infinite where it is too large for one."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value.numerator > 0 else -math.inf
