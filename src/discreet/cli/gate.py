"""`discreet gate`: do releases keep to a policy? For CI: exit codes, JUnit, SARIF, job summaries."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discreet.cli import CHECK_FAILED, COMMANDS, FINE, REFUTED
from discreet.cli.output import json_option, table, talk, write_json
from discreet.cli.releases import opened_ledger, place_of, read_release, releases_in

if TYPE_CHECKING:
    from discreet.core import Release
    from discreet.ledger import Ledger
    from discreet.report.gate import Judged, Policy
    from discreet.report.signature import Signed

_CODES = {"holds": FINE, "inconclusive": FINE, "failed": CHECK_FAILED, "refuted": REFUTED}


@click.command("gate", help=f"""{COMMANDS["gate"]}

RELEASES are files, or folders: with release.json in it, or of several releases. With --ledger, the entry that a release names
must be one that paid for its claims; a signature beside a release must fit. Exit codes: 0 every rule holds; 1 a rule failed, or
an attack does better than a claim allows, or too few targets can tell (--no-strict says so, and passes); 2 wrong use; 3 a claim
was refuted by its evidence. Under GitHub Actions the summary and the lines at fault show up by themselves.""")  # fmt: skip
@click.argument("releases", nargs=-1, required=True, type=click.Path(allow_dash=True))
@click.option("--policy", default="privacy.toml", show_default=True, metavar="FILE", help="The rules, in TOML.")
@click.option(
    "--ledger", "place", envvar="DISCREET_LEDGER", metavar="PATH_OR_URL", help="The ledger that paid; DISCREET_LEDGER too."
)
@click.option("--head", metavar="FILE", help="A signature of the ledger's last entry, from discreet keys sign.")
@click.option("--strict/--no-strict", default=None,
              help="Whether what is inconclusive has failed.  [default: as the policy says, and else it has]")  # fmt: skip
@click.option("--junit", metavar="FILE", help="Write JUnit XML.")
@click.option("--sarif", metavar="FILE", help="Write SARIF 2.1.0.")
@click.option("--summary", metavar="FILE", help="Write a summary in Markdown.")
@click.option(
    "--history", metavar="FILE", help="Add a line for each release to this file, and say what changed since the last version."
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, releases: tuple[str, ...], policy: str, place: str | None, head: str | None, strict: bool | None,
    junit: str | None, sarif: str | None, summary: str | None, history: str | None, as_json: bool,
) -> None:  # fmt: skip
    from discreet.report.gate import Policy, worst
    from discreet.report.gate.finding import one_line
    from discreet.report.gate.outputs import counts, document
    from discreet.report.gate.proofs import shared_entries

    rules = Policy.read(_here(policy))
    strict = rules.strict if strict is None else strict
    with ExitStack() as stack:
        ledger = stack.enter_context(opened_ledger(place)) if place else None
        signed = _head(ledger, head, rules)
        read = [(file, read_release(file)) for each in releases for file in releases_in(each)]
        judged = [_judged(file, release, rules, ledger, signed) for file, release in read]
        changes = _kept(history, read, judged, strict, ledger) if history else []
    findings = [finding for each in judged for finding in each.findings]
    outcome = worst(findings, strict=strict)
    if as_json:
        write_json(document(judged, rules.name, strict=strict))
    else:
        table(_rows(judged))
    _write(judged, rules, strict, junit, sarif, summary)
    _github(judged, rules.name, strict)
    for sentence in shared_entries((_shown(file), release) for file, release in read) if place else ():
        talk(f"Warning: {one_line(sentence)}")
    for sentence in changes:
        talk(one_line(sentence))
    talk(f"{outcome}: {counts(findings)}, by {rules.name}.")
    ctx.exit(_CODES[outcome])


def _here(path: str) -> str:
    """The path as seen from this folder, where it is below it: as CI servers want to be told."""
    try:
        return Path(path).absolute().relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return path


def _head(ledger: Ledger | None, head: str | None, policy: Policy) -> Signed | None:
    from discreet.report.signature import check_head

    if head is None:
        return None
    if ledger is None:
        raise click.UsageError("--head is about a ledger; name it with --ledger.")
    return check_head(ledger, head, policy.keys)


def _shown(path: str) -> str:
    return "stdin" if path == "-" else _here(place_of(path))


def _judged(path: str, release: Release[Any], policy: Policy, ledger: Ledger | None, head: Signed | None) -> Judged:
    from discreet.report.gate import Judged, proofs_of

    proofs = proofs_of(release, None if path == "-" else path, ledger=ledger, head=head, keys=policy.keys)
    return Judged(file=_shown(path), source=release.source, findings=policy.judge(release, proofs))


def _kept(
    place: str, read: list[tuple[str, Release[Any]]], judged: list[Judged], strict: bool, ledger: Ledger | None
) -> list[str]:
    """Add what was found to the history; what changed since the versions that it knows."""
    from discreet.report import history
    from discreet.report.account import budgets
    from discreet.report.assessment import assess
    from discreet.report.gate import worst

    past, warnings = history.read(place, missing=True)
    items = assess([release if file == "-" else place_of(file) for file, release in read], budgets=budgets(ledger))
    found = [history.judgement(item, worst(each.findings, strict=strict)) for item, each in zip(items, judged, strict=True)]
    history.append(place, found)
    return [*(f"Warning: {each}" for each in warnings), *filter(None, (history.change(past, each) for each in found))]


def _rows(judged: list[Judged]) -> list[tuple[str, ...]]:
    from discreet.report.gate.finding import one_line

    several = len(judged) > 1
    return [
        (
            finding.outcome,
            *([one_line(each.file)] if several else []),
            *map(one_line, (finding.rule, finding.where, finding.message)),
        )
        for each in judged
        for finding in each.findings
    ]


def _write(
    judged: list[Judged], policy: Policy, strict: bool, junit: str | None, sarif: str | None, summary: str | None
) -> None:
    import json

    from discreet.core.document import write_whole
    from discreet.report.gate import outputs

    if junit:
        write_whole(junit, outputs.junit(judged, policy.name, strict=strict))
    if sarif:
        write_whole(sarif, json.dumps(outputs.sarif(judged, policy, strict=strict), indent=2) + "\n")
    if summary:
        write_whole(summary, outputs.markdown(judged, policy.name, strict=strict))


def _github(judged: list[Judged], policy: str, strict: bool) -> None:
    """What GitHub Actions reads: the job's summary, and lines on stderr, so that stdout stays data."""
    from discreet.report.gate.outputs import markdown, remarks

    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(markdown(judged, policy, strict=strict) + "\n")
        except OSError as error:
            talk(f"The job's summary cannot be written: {error.strerror}.")  # the verdict does not hang on it
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in remarks(judged, policy, strict=strict):
            talk(line)
