"""The attacks that `discreet serve` runs in its worker processes: the functions of `discreet attack`, called in Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from discreet.errors import DiscreetError

Progress = Callable[[int, int], None]


def attack_model(options: Mapping[str, Any], progress: Progress) -> None:
    """Attack the model in `weights`; options are those of `discreet attack model`."""
    from discreet.cli.attack import command

    flags = [*(["--trust-pickle"] if options.get("trust_pickle") is True else []),
             *(["--no-controls"] if options.get("controls") is False else [])]  # fmt: skip
    names = ("members", "nonmembers", "recipe", "target_column", "attacks", "shadows", "seed", "claim", "out")
    _run(command, ["model", options["weights"], *_words(options, names), *flags], progress)


def attack_table(options: Mapping[str, Any], progress: Progress) -> None:
    """Attack the table in `file`; options are those of `discreet attack table`."""
    from discreet.cli.attack import command

    names = ("quasi", "sensitive", "population", "id", "fraction", "out")
    _run(command, ["table", options["file"], *_words(options, names)], progress)


ATTACKS = {"model": attack_model, "table": attack_table}


def _words(options: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    return [word for name in names if name in options for word in (f"--{name.replace('_', '-')}", str(options[name]))]


def _run(command: click.Command, arguments: list[str], progress: Progress) -> None:
    """Call a command with its errors raised; the release records the arguments as the way to repeat it."""
    from discreet.cli.output import reporting_to

    sys.argv = ["discreet", "attack", *arguments]
    try:
        with reporting_to(progress):
            command.main(arguments, prog_name="discreet attack", standalone_mode=False)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        raise DiscreetError(error.format_message()) from error
