"""Errors of the library in the words of the command line: what to do is told as an option, not as Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from discreet.errors import DiscreetError

_NUMBER = r"[-+]?[\d.]+(?:e[-+]?\d+)?"
_BOUNDS = re.compile(rf"bounds=\{{'([^']+)': \(({_NUMBER}), ({_NUMBER})\)\}}")
_NAMED = re.compile(rf"\b(delta|epsilon|groups|rows)=({_NUMBER})")


def as_options(message: str) -> str:
    """A message with options where it names arguments.

    >>> as_options("Say them, such as bounds={'age': (0, 100)}, with delta=1e-6.")
    'Say them, such as --bounds age=0:100, with --delta 1e-6.'
    """
    return _NAMED.sub(r"--\1 \2", _BOUNDS.sub(r"--bounds \1=\2:\3", message))


@contextmanager
def spoken() -> Iterator[None]:
    """Within it, errors of the library name options."""
    try:
        yield
    except DiscreetError as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (as_options(error.args[0]), *error.args[1:])
        raise
