"""No command writes its output over what it was given: a table, a release, a key or the ledger that pays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import click

OUTPUTS = {"--output", "--ready-file", "--picture", "--plot", "--plots", "--junit", "--sarif", "--summary", "--html", "--card"}


def keeping_inputs(command: click.Command) -> click.Command:
    """The command, and those inside it, with a look at the files that it names before anything is read or charged."""
    for inner in getattr(command, "commands", {}).values():
        keeping_inputs(inner)
    if command.callback is not None and not hasattr(command.callback, "keeps_inputs"):
        command.callback = _looking(command, command.callback)
    return command


def _looking(command: click.Command, callback: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(callback)
    def called(*given: Any, **named: Any) -> Any:
        outputs = [each for each in command.params if OUTPUTS.intersection(each.opts)]
        inputs = [each for each in command.params if each not in outputs]
        for place in (place for each in outputs for place in _files(named.get(each.name or ""))):
            for each in inputs:
                if any(os.path.samefile(place, other) for other in _files(named.get(each.name or ""))):
                    raise click.UsageError(
                        f"{place} is what {_told(each)} names, which is never written over. Name another file for the output. "
                        "Nothing was read, charged or written."
                    )
        return callback(*given, **named)

    called.keeps_inputs = True  # type: ignore[attr-defined]
    return called


def _told(parameter: click.Parameter) -> str:
    return parameter.opts[-1] if isinstance(parameter, click.Option) else (parameter.name or "").upper()


def _files(value: Any) -> Iterator[str]:
    """The files among the values of a parameter that are there."""
    for each in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(each, (str, os.PathLike)) and "\0" not in os.fspath(each) and os.path.isfile(each):
            yield os.fspath(each)
