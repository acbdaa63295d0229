"""Static analysis of bytecode: the names that code uses, its imports, and whether it catches errors of operations.

A trace never fails because of a value. An operation of a real step may (an index out of range, a target that is no
probability), and code that catches the error learns something about all rows of its batch. Under vmap one unit's value fails
for all of them.
"""

from __future__ import annotations

import builtins
import dis
import functools
import re
import types
from collections.abc import Iterator
from typing import Any

HARMLESS = {"ImportError", "ModuleNotFoundError", "AttributeError", "KeyError", "StopIteration"}  # no operation raises these
SWALLOWING = {
    "suppress", "ExitStack", "AsyncExitStack", "threading", "Thread", "ThreadPoolExecutor", "ThreadPool", "concurrent",
    "asyncio", "multiprocessing", "_thread", "start_new_thread", "assertRaises", "raises", "length_hint",
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "_disabled_torch_function_impl", "set_detect_anomaly",
    "detect_anomaly",
}  # fmt: skip
TEXT = {"exec", "eval", "__import__", "builtins", "__builtins__", "import_module", "runpy"}  # reach any module by a text
BENEATH = {
    "_getframe",
    "currentframe",
    "f_back",
    "f_locals",
    "get_objects",
    "get_referrers",
    "get_referents",
    "_current_frames",
}
DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def inner(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions that are defined in it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from inner(part)


@functools.lru_cache(maxsize=10_000)
def names_of(code: types.CodeType) -> frozenset[str]:
    """Names of variables and attributes, and strings that may be such names."""
    strings = {part for nested in inner(code) for part in nested.co_consts if isinstance(part, str) and part.isidentifier()}
    return frozenset(strings.union(*(nested.co_names for nested in inner(code))))


@functools.lru_cache(maxsize=10_000)
def imports_of(code: types.CodeType) -> frozenset[tuple[str, int]]:
    """Modules that are imported where the code runs, as (name, level), and texts that may be names of modules."""
    named: set[tuple[str, int]] = set()
    for part in inner(code):
        named |= {(text, 0) for text in part.co_consts if isinstance(text, str) and DOTTED.fullmatch(text)}
        before: list[dis.Instruction] = []
        for instruction in dis.get_instructions(part):
            if instruction.opname == "IMPORT_NAME":
                operands = [earlier.argval for earlier in before[-2:]]
                level, members = (operands[0] if isinstance(operands[0], int) else 0), operands[-1]
                named.add((str(instruction.argval), level))
                named |= {
                    (f"{instruction.argval}.{member}".strip("."), level) for member in members or () if isinstance(member, str)
                }
            if instruction.opname not in ("EXTENDED_ARG", "CACHE"):
                before.append(instruction)
    return frozenset(named)


def absolute(name: str, level: int, space: dict[str, Any]) -> str:
    """The full name of a module that code with these globals imports."""
    if not level:
        return name
    package = space.get("__package__") or str(space.get("__name__", "")).rpartition(".")[0]
    return ".".join(part for part in (*str(package).split(".")[: len(str(package).split(".")) - level + 1], name) if part)


@functools.lru_cache(maxsize=10_000)
def made_of_text(code: types.CodeType) -> bool:
    """Whether this code makes code from text, or reaches modules by a text, when it runs; this covers constructors, which a
    step may call."""
    loads = ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME", "IMPORT_FROM")
    instructions = [instruction for part in inner(code) for instruction in dis.get_instructions(part)]
    loaded = {instruction.argval for instruction in instructions if instruction.opname in loads}
    attributes = {instruction.argval for instruction in instructions if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD")}
    return bool(loaded & TEXT) or "import_module" in attributes or ("sys" in loaded and "modules" in attributes)


@functools.lru_cache(maxsize=10_000)
def _catching(code: types.CodeType) -> tuple[bool, frozenset[str]]:
    """Whether one code object continues after an error, and the names of the errors that it catches ("": any)."""
    instructions = [
        instruction for instruction in dis.get_instructions(code) if instruction.opname not in ("EXTENDED_ARG", "CACHE", "NOP")
    ]
    names = [instruction.opname for instruction in instructions]
    after = list(zip(names, [*names[1:], ""]))
    goes_on = after.count(("POP_EXCEPT", "RERAISE")) < names.count("POP_EXCEPT") - names.count("WITH_EXCEPT_START")
    caught: set[str] = set()
    for place, name in enumerate(names):
        if name == "CHECK_EXC_MATCH":
            many = instructions[place - 1].arg or 0 if names[place - 1] == "BUILD_TUPLE" else 0
            for instruction in instructions[place - 1 - many : place - bool(many)]:
                caught.add(str(instruction.argval) if instruction.opname == "LOAD_GLOBAL" else "")
    if ("PUSH_EXC_INFO", "POP_TOP") in after or (goes_on and not caught):
        caught.add("")
    raises = any(
        instruction.opname == "RAISE_VARARGS" and instruction.arg for instruction in instructions
    )  # another error in the place of the one it caught
    return bool(caught) and (goes_on or raises), frozenset(caught)


def catches(function: types.FunctionType) -> bool:
    """Whether a function may continue after an error that an operation raised.

    >>> def safe(table, ids):
    ...     try:
    ...         return table(ids)
    ...     except IndexError:
    ...         return None
    >>> catches(safe), catches(inner)
    (True, False)
    """
    space = function.__globals__
    for code in inner(function.__code__):
        goes_on, caught = _catching(code)
        own = any(space.get(name, getattr(builtins, name, None)) is not getattr(builtins, name, None) for name in caught)
        if goes_on and (own or not caught <= HARMLESS):
            return True
    return False


def swallows(kind: type) -> str:
    """How a user's class may swallow errors: a context manager that suppresses them, an index that ends a loop."""
    own = vars(kind)
    for name in ("__exit__", "__aexit__"):
        function = own.get(name)
        if name in own and not (isinstance(function, types.FunctionType) and _returns_nothing(function.__code__)):
            return name
    return "__getitem__" if "__getitem__" in own and not hasattr(kind, "__iter__") else ""


@functools.lru_cache(maxsize=10_000)
def _returns_nothing(code: types.CodeType) -> bool:
    before = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "RETURN_CONST" and instruction.argval:
            return False
        if instruction.opname == "RETURN_VALUE" and not (
            before is not None and before.opname == "LOAD_CONST" and not before.argval
        ):
            return False
        before = instruction
    return not code.co_flags & 0x2A0  # neither generator nor coroutine
