"""Markdown for job summaries, and lines that GitHub shows beside the policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from discreet.report.gate.finding import OUTCOMES, Finding, Judged, one_line, worst

_MARKS = {"holds": "✅ holds", "inconclusive": "❔ inconclusive", "failed": "❌ failed", "refuted": "🛑 refuted"}
_ACTIVE = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_{}[]<>#|~&!:@$"})


def counts(findings: Sequence[Finding]) -> str:
    """How many findings there are of each outcome, as a phrase.

    >>> counts([])
    'nothing was checked'
    """
    found = [(name, sum(each.outcome == name for each in findings)) for name in OUTCOMES]
    told = [f"{count} {'hold' if name == 'holds' and count > 1 else name}" for name, count in found if count]
    return ", ".join(told) or "nothing was checked"


def markdown(judged: Sequence[Judged], policy: str, *, strict: bool = False) -> str:
    """A table for each release, the worst findings first."""
    findings = [finding for each in judged for finding in each.findings]
    text = [
        f"## Privacy gate: {worst(findings, strict=strict)}",
        "",
        f"{counts(findings)}; by the rules of {_cell(policy)}.",
        "",
    ]
    for each in judged:
        text += [
            f"### {_cell(each.file)} (made from {_cell(each.source)})",
            "",
            "| outcome | rule | on | found |",
            "|---|---|---|---|",
        ]
        for finding in sorted(each.findings, key=lambda each: -OUTCOMES.index(each.outcome)):
            cells = (finding.rule, finding.where, finding.message)
            text.append(f"| {_MARKS[finding.outcome]} | {' | '.join(map(_cell, cells))} |")
        text.append("")
    return "\n".join(text)


def remarks(judged: Sequence[Judged], policy: str, *, strict: bool = False) -> Iterator[str]:
    """`::error` and `::warning` lines, which GitHub Actions shows at the line of the policy."""
    for each in judged:
        for finding in each.findings:
            if finding.outcome != "holds":
                kind = "warning" if finding.outcome == "inconclusive" and not strict else "error"
                title = _property(f"{finding.outcome}: {one_line(finding.rule)}")
                text = f"{one_line(each.file)}: {one_line(finding.where)}: {one_line(finding.message)}"
                yield f"::{kind} file={_property(policy)},line={finding.line},title={title}::{_data(text)}"


def _cell(text: str) -> str:
    """Text in a table, with nothing in it that Markdown or HTML would act on."""
    return one_line(text).translate(_ACTIVE)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(one_line(text)).replace(":", "%3A").replace(",", "%2C")
