"""`discreet demo`: a model that leaks, the same model trained privately, questions in SQL, one budget, one report."""

from __future__ import annotations

import sys
from pathlib import Path
from shutil import which

import click

from discreet.cli import CHECK_FAILED, COMMANDS, FINE
from discreet.cli.output import json_option, progress, talk, write_json


@click.command("demo", help=COMMANDS["demo"])
@click.option("-o", "--output", default="demo", show_default=True, metavar="FOLDER", help="Where to write everything.")
@click.option("--picture", metavar="FILE", help="Write the plot of both models to an SVG file, too.")
@json_option
@click.pass_context
def command(ctx: click.Context, output: str, picture: str | None, as_json: bool) -> None:
    from discreet import demo

    story = demo.run(Path(output), picture=picture, tell=talk, progress=progress)
    if as_json:
        write_json(story.to_json())
    else:
        for number, line in enumerate(story.lines(_program()), 1):
            click.echo(f"{number}. {line}")
    ctx.exit(FINE if story.as_expected() else CHECK_FAILED)


def _program() -> str:
    """How the user started discreet: by its path where it is not on PATH."""
    return sys.argv[0] if sys.argv[0].endswith("discreet") and not which("discreet") else "discreet"
