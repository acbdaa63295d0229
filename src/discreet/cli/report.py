"""`discreet report`: releases as one page for people who sign things."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from discreet.cli import COMMANDS
from discreet.cli.output import counted, json_option, talk, write_json
from discreet.cli.releases import opened_ledger, place_of, releases_in
from discreet.errors import InvalidValue


@click.command("report", help=f"""{COMMANDS["report"]}

FILES are release.json files: of one release, or of several to be seen side by side. Without -o the report is written to
stdout as Markdown. A report checks nothing and exits with 0 whatever it says; discreet gate checks.""")  # fmt: skip
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", multiple=True, metavar="FILE", help="A .html, .pdf, .md or .json file to write; repeatable.")
@click.option(
    "--ledger", "place", envvar="DISCREET_LEDGER", metavar="PATH_OR_URL", help="The ledger that paid; DISCREET_LEDGER too."
)
@click.option("--title", metavar="TEXT", help="The heading, instead of the release's own.")
@click.option("--annex", is_flag=True, help="Add the annex for a data protection impact assessment (GDPR Art. 35).")
@click.option("--card", metavar="FILE.md", help="Write the privacy section of a model card (one release only).")
@click.option("--history", metavar="FILE", help="What discreet gate --history kept: show how earlier versions came out.")
@click.option("--plots", type=click.Choice(["svg"]), help="Write the plots as files too, beside the first output.")
@click.option("--confidence", type=float, default=0.95, show_default=True, metavar="C", help="Confidence of intervals.")
@json_option
def command(
    files: tuple[str, ...], output: tuple[str, ...], place: str | None, title: str | None, annex: bool, card: str | None,
    plots: str | None, history: str | None, confidence: float, as_json: bool,
) -> None:  # fmt: skip
    from discreet.core.check import open_fraction
    from discreet.core.document import write_whole
    from discreet.report import files as forms
    from discreet.report import modelcard
    from discreet.report.history import Trend
    from discreet.report.history import read as read_history
    from discreet.report.markdown import render as render_markdown
    from discreet.report.model import build

    open_fraction("confidence", confidence)
    for path in output:
        forms.check_form(path)
    if card is not None and len(files) != 1:
        raise InvalidValue(f"--card is about one model; {len(files)} releases were given.")
    given = [each for name in files for each in _opened(name)]
    sections = [Trend(*read_history(history))] if history is not None else []
    with ExitStack() as stack:
        ledger = stack.enter_context(opened_ledger(place)) if place else None
        report = build(given, ledger=ledger, title=title, confidence=confidence, sections=sections)
    for path in output:
        talk(f"The report is in {forms.write_report(report, path, annex=annex)}")
    if card is not None:
        written = write_whole(card, modelcard.render(report.assessments[0], confidence))
        talk(f"The section for a model card is in {written}")
    if plots is not None:
        folder = _beside(output)
        count = len(forms.write_plots(report, folder))
        talk(f"{counted(count, 'plot')} {'is' if count == 1 else 'are'} in {folder}")
    if as_json:
        write_json(forms.as_document(report, annex=annex))
    elif not output and card is None and plots is None:
        click.echo(render_markdown(report, annex=annex), nl=False)
    talk(f"{report.status}: {report.sentence}")


def _opened(name: str) -> list[Any]:
    """The releases that an argument names, as files; what is on stdin is read now."""
    from discreet.core import Release

    return [Release.load("/dev/stdin")] if name == "-" else [Path(place_of(file)) for file in releases_in(name)]


def _beside(output: tuple[str, ...]) -> Path:
    return Path(output[0]).with_suffix("").with_name(f"{Path(output[0]).stem}-plots") if output else Path("report-plots")
