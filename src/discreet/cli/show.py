"""`discreet show`: what a release says of itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from discreet.cli import COMMANDS
from discreet.cli.output import json_option, table, talk, write_json

if TYPE_CHECKING:
    from discreet.core import Claim, Release


@click.command("show", help=COMMANDS["show"])
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--html", type=click.Path(dir_okay=False), metavar="FILE", help="Write its card into an HTML file.")
@click.option(
    "--ledger", "place", envvar="DISCREET_LEDGER", metavar="PATH_OR_URL",
    help="The ledger that paid: epsilon is told at the delta of its budget. DISCREET_LEDGER too.",
)  # fmt: skip
@json_option
def command(file: str, html: str | None, place: str | None, as_json: bool) -> None:
    from discreet.audit.appraisal import DELTA
    from discreet.cli.releases import opened_ledger, read_release
    from discreet.core.document import write_whole
    from discreet.report.account import budgets
    from discreet.report.assessment import told_at

    release, known = read_release(file), {}
    if place:
        with opened_ledger(place) as ledger:
            known = budgets(ledger)
    of_budget = known.get(release.source)
    deltas = told_at(DELTA if of_budget is None else of_budget)
    if as_json:
        write_json(_facts(release, deltas))
    else:
        table(_rows(release, deltas, of_budget))
        if of_budget is None and release.entry:
            talk("With --ledger, the ledger that paid, epsilon is told at the delta of its budget, as reports tell it.")
    if html:
        from discreet.charts import card

        shown = card(release, deltas=deltas)
        page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>discreet</title>{shown}</html>'
        write_whole(html, page)
        talk(f"The card is in {html}")


def _facts(release: Release[Any], deltas: tuple[float, ...]) -> dict[str, Any]:
    return {
        "source": release.source,
        "entry": list(release.entries) if release.also else release.entry,
        "claims": [{**claim.to_json(), "epsilon": _epsilons(claim, deltas)} for claim in release.claims],
        "evidence": [
            {"attack": item.attack, "design": item.design, "targets": len(item), "inside": int(item.inside.sum())}
            for item in release.evidence
        ],
    }


def _rows(release: Release[Any], deltas: tuple[float, ...], of_budget: float | None) -> list[tuple[str, str]]:
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
        rows += [("  epsilon", _told(item["epsilon"], item["delta"], of_budget)) for item in _epsilons(claim, deltas)]
        rows += [("  provided", text) for text in claim.assumptions]
    for item in release.evidence:
        members, runs = int(item.inside.sum()), len(set(item.run.tolist()))
        many = "1 run" if runs == 1 else f"{runs} runs"
        rows.append(("evidence", f"{item.attack}, {item.design}: {members} inside, {len(item) - members} outside, {many}"))
        if item.design == "post_hoc":
            rows.append(("", "who was inside was not decided by coins: this warns, and cannot refute a claim"))
    if not release.claims:
        rows.append(("claim", "none: there is no ceiling"))
    elif not release.claims_on_value:
        rows.append(("no claim", "about the value: the machine saw ciphertexts; there is no ceiling on what was decrypted"))
    return rows


def _told(epsilon: float, delta: float, of_budget: float | None) -> str:
    from discreet.figures import up

    whose = ", that of the budget" if delta == of_budget else ""
    return f"{up(epsilon)} at delta {up(delta, 6)}{whose}{'' if math.isfinite(epsilon) else ': there is no ceiling'}"


def _epsilons(claim: Claim, deltas: tuple[float, ...]) -> list[dict[str, float]]:
    from discreet.audit.judge import ceiling_of

    bound = ceiling_of(claim.event)
    return [{"delta": delta, "epsilon": bound.epsilon(delta)} for delta in deltas]
