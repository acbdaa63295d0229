"""Errors of the library in the words of the command line: what to do is told as an option, not as Python."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import click

_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_BOUNDS = re.compile(rf"bounds=\{{'([^']+)': \(({_NUMBER}), ({_NUMBER})\)\}}")
_USER = re.compile(r"(?:unit=)?(?:discreet\.)?user\('([^']+)', rows=(\d+|…|\.\.\.)\)")
_RECORD = re.compile(r"unit=(?:discreet\.)?record\(\)")
_VALUE = rf"{_NUMBER}\b|…|\.\.\.|'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\([^)]*\)|True\b|(?=[,;:. )]|$)"
_NAMED = re.compile(rf"\b([a-z][a-z_]*)=({_VALUE})")
_ALWAYS = ("delta", "epsilon", "groups")
_OTHERWISE = {"rows": "unit-rows", "schema": "schema"}  # what a unit of several rows is told by


def as_options(message: str, options: Collection[str] = ()) -> str:
    """A message with options where it names arguments; `options` are the names of those that the command has.

    >>> as_options("Say them, such as bounds={'age': (0, 100)}, with delta=1e-6.")
    'Say them, such as --bounds age=0:100, with --delta 1e-6.'
    >>> as_options("Or say whose rows they are: unit=user('id', rows=1).")
    'Or say whose rows they are: --unit user:id --unit-rows 1.'
    >>> as_options('A workload is for method="aim"; leave workload= out.', {"method", "workload"})
    'A workload is for --method aim; leave --workload out.'
    """
    told = _BOUNDS.sub(r"--bounds \1=\2:\3", message)
    told = _RECORD.sub("--unit record", _USER.sub(r"--unit user:\1 --unit-rows \2", told))
    return _NAMED.sub(lambda found: _option(found, options), told).replace("--unit-rows …", "--unit-rows N")


def _option(found: re.Match[str], options: Collection[str]) -> str:
    name, value = found[1].replace("_", "-"), found[2].strip("'\"[]()")
    name = name if name in options or name in _ALWAYS else _OTHERWISE.get(name, name)
    if name not in options and name not in _ALWAYS:
        return found[0]
    shown = "" if value == "True" else f" {value.replace(', ', ',')}"
    return f"--{name}{shown}".rstrip()


def options_of(command: click.Command | None, context: click.Context) -> Iterator[str]:
    """The names of the options of a command and of all below it."""
    for each in command.params if command is not None else ():
        yield from (name.removeprefix("--") for name in each.opts if name.startswith("--"))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from options_of(command.get_command(context, name), context)
