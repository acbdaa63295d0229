"""Errors of the library in the words of the command line: what to do is told as an option, not as Python."""

from __future__ import annotations

import re

_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_BOUNDS = re.compile(rf"bounds=\{{'([^']+)': \(({_NUMBER}), ({_NUMBER})\)\}}")
_USER = re.compile(r"(?:unit=)?(?:discreet\.)?user\('([^']+)', rows=(\d+|…)\)")
_RECORD = re.compile(r"unit=(?:discreet\.)?record\(\)")
_NAMED = re.compile(rf"\b(delta|epsilon|groups)=({_NUMBER}|…)")


def as_options(message: str) -> str:
    """A message with options where it names arguments.

    >>> as_options("Say them, such as bounds={'age': (0, 100)}, with delta=1e-6.")
    'Say them, such as --bounds age=0:100, with --delta 1e-6.'
    >>> as_options("Or say whose rows they are: unit=user('id', rows=1).")
    'Or say whose rows they are: --unit user:id --unit-rows 1.'
    """
    told = _BOUNDS.sub(r"--bounds \1=\2:\3", message)
    told = _RECORD.sub("--unit record", _USER.sub(r"--unit user:\1 --unit-rows \2", told))
    return _NAMED.sub(r"--\1 \2", told).replace("--unit-rows …", "--unit-rows N")
