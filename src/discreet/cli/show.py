"""`discreet show`: what a release says of itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from discreet.cli import COMMANDS
from discreet.cli.output import json_option, table, talk, write_json

if TYPE_CHECKING:
    from discreet.core import Claim, Release

_DELTAS = (1e-5, 1e-9)


@click.command("show", help=COMMANDS["show"])
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--html", type=click.Path(dir_okay=False), metavar="FILE", help="Write its card into an HTML file.")
@json_option
def command(file: str, html: str | None, as_json: bool) -> None:
    from discreet.cli.releases import read_release
    from discreet.core.document import write_whole

    release = read_release(file)
    if as_json:
        write_json(_facts(release))
    else:
        table(_rows(release))
    if html:
        from discreet.charts import card

        page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>discreet</title>{card(release)}</html>'
        write_whole(html, page)
        talk(f"The card is in {html}")


def _facts(release: Release[Any]) -> dict[str, Any]:
    return {
        "source": release.source,
        "entry": list(release.entries) if release.also else release.entry,
        "claims": [{**claim.to_json(), "epsilon": _epsilons(claim)} for claim in release.claims],
        "evidence": [
            {"attack": item.attack, "design": item.design, "targets": len(item), "inside": int(item.inside.sum())}
            for item in release.evidence
        ],
    }


def _rows(release: Release[Any]) -> list[tuple[str, str]]:
    from discreet.core import ExternalValue
    from discreet.core.check import shown

    value = release.value
    rows = [
        ("made from", release.source),
        ("value", f"{value.type}, beside this document" if isinstance(value, ExternalValue) else shown(value)),
        ("paid by", ", ".join(release.entries) or "no ledger entry"),
    ]
    for claim in release.claims:
        rows.append(("claim", repr(claim.event)[:200]))
        rows.append(("  unit", str(claim.game.unit)))
        rows.append(("  seen", ", ".join(sorted(claim.game.view))))
        rows += [("  epsilon", _told(item["epsilon"], item["delta"])) for item in _epsilons(claim)]
        rows += [("  provided", text) for text in claim.assumptions]
    for item in release.evidence:
        members, runs = int(item.inside.sum()), len(set(item.run.tolist()))
        many = "1 run" if runs == 1 else f"{runs} runs"
        rows.append(("evidence", f"{item.attack}, {item.design}: {members} inside, {len(item) - members} outside, {many}"))
        if item.design == "post_hoc":
            rows.append(("", "who was inside was not decided by coins: this warns, and cannot refute a claim"))
    if not release.claims:
        rows.append(("claim", "none: there is no ceiling"))
    return rows


def _told(epsilon: float, delta: float) -> str:
    from discreet.figures import up

    return f"{up(epsilon)} at delta {up(delta, 6)}{'' if math.isfinite(epsilon) else ': there is no ceiling'}"


def _epsilons(claim: Claim) -> list[dict[str, float]]:
    from discreet.audit.judge import ceiling_of

    bound = ceiling_of(claim.event)
    return [{"delta": delta, "epsilon": bound.epsilon(delta)} for delta in _DELTAS]
