"""`discreet audit`: the claims of a release against its evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from discreet.cli import CHECK_FAILED, COMMANDS, FINE, REFUTED
from discreet.cli.output import json_option, table, talk, write_json

if TYPE_CHECKING:
    from discreet.core import Release


@click.command("audit", help=COMMANDS["audit"])
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--confidence", type=float, default=0.999, show_default=True, metavar="C", help="How sure a refutation must be.")
@json_option
@click.pass_context
def command(ctx: click.Context, file: str, confidence: float, as_json: bool) -> None:
    from discreet.core import Release
    from discreet.core.check import open_fraction

    release = Release.load("/dev/stdin" if file == "-" else file)
    found = _verdicts(release, open_fraction("confidence", confidence))
    if as_json:
        write_json({"source": release.source, "verdicts": found})
    elif found:
        table([(item["attack"], item["claim"], item["outcome"], item["reason"]) for item in found], heads=_HEADS)
    if not found:
        lacking = "claims" if not release.claims else "evidence"
        talk(f"The release of {release.source} has no {lacking}: there is nothing to compare. Add some and save it again.")
        ctx.exit(CHECK_FAILED)
    ctx.exit(REFUTED if any(item["outcome"] == "refuted" for item in found) else FINE)


_HEADS = ("attack", "claim", "verdict", "reason")


def _verdicts(release: Release[Any], confidence: float) -> list[dict[str, Any]]:
    """Every claim against every piece of evidence."""
    from discreet.audit import verdict

    return [
        {"attack": item.attack, "claim": repr(claim.event)[:120], **verdict(claim, item, confidence=confidence).to_json()}
        for claim in release.claims
        for item in release.evidence
    ]
