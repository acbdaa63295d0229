"""What a gate found, for machines and for job summaries: one JSON document, JUnit XML, SARIF 2.1.0, Markdown, GitHub's lines.

`docs/reference/gate.schema.json` is the schema of the JSON document. Text from releases is one line, with nothing in it that a
CI server takes for a command.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as XML

from discreet import __version__
from discreet.report.gate.finding import OUTCOMES, Finding, Judged, one_line, worst
from discreet.report.gate.policy import Policy

FORMAT = "discreet-gate"
VERSION = 1
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"inconclusive": "warning", "failed": "error", "refuted": "error"}
_MARKS = {"holds": "✅ holds", "inconclusive": "❔ inconclusive", "failed": "❌ failed", "refuted": "🛑 refuted"}
_ACTIVE = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_{}[]<>#|~&!:@$"})


def document(judged: Sequence[Judged], policy: str, *, strict: bool = True) -> dict[str, Any]:
    """Everything that was found, and the outcome of it all."""
    findings = [finding for each in judged for finding in each.findings]
    return {
        "format": FORMAT,
        "version": VERSION,
        "policy": policy,
        "strict": strict,
        "outcome": worst(findings, strict=strict),
        "releases": [each.to_json() for each in judged],
    }


def junit(judged: Sequence[Judged], policy: str, *, strict: bool = True) -> str:
    """The document. What is inconclusive counts as failed, and without `strict` as skipped."""
    suites = XML.Element("testsuites", name="discreet gate")
    for each in judged:
        suite = XML.SubElement(suites, "testsuite", name=one_line(each.file))
        for finding in each.findings:
            _case(suite, each, finding, policy, strict)
        _count(suite)
    _count(suites)
    XML.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{XML.tostring(suites, encoding="unicode")}\n'


def _case(suite: XML.Element, judged: Judged, finding: Finding, policy: str, strict: bool) -> None:
    name = f"{one_line(finding.rule)}: {one_line(finding.where)}"
    case = XML.SubElement(
        suite, "testcase", classname=f"discreet.gate.{one_line(judged.source)}", name=name, file=policy, line=str(finding.line),
        time="0",
    )  # fmt: skip
    message = one_line(finding.message)
    if finding.outcome == "inconclusive" and not strict:
        XML.SubElement(case, "skipped", message=f"inconclusive: {message}")
    elif finding.outcome != "holds":
        failure = XML.SubElement(case, "failure", message=f"{finding.outcome}: {message}", type=finding.outcome)
        failure.text = f"{policy}:{finding.line}: {message}"
    else:
        XML.SubElement(case, "system-out").text = message


def _count(suite: XML.Element) -> None:
    for name, path in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped")):
        suite.set(name, str(sum(1 for _ in suite.iter(path))))
    suite.set("errors", "0")
    suite.set("time", "0")


def sarif(judged: Sequence[Judged], policy: Policy, *, strict: bool = True) -> dict[str, Any]:
    """The document. An alert is known again by its rule, the part of the release and the data set: not by lines or numbers."""
    asked = (*policy.rules, policy.genuine)
    places = {rule.name: place for place, rule in enumerate(asked)}
    results = [
        _result(each, finding, policy.name, places[finding.rule], strict)
        for each in judged
        for finding in each.findings
        if finding.outcome != "holds"
    ]
    rules = [
        {
            "id": one_line(rule.name),
            "shortDescription": {"text": one_line(str(rule))},
            "defaultConfiguration": {"level": "error"},
        }
        for rule in asked
    ]
    driver = {"name": "discreet gate", "version": __version__, "rules": rules}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(judged: Judged, finding: Finding, policy: str, place: int, strict: bool) -> dict[str, Any]:
    level = "error" if strict else _LEVELS[finding.outcome]
    return {
        "ruleId": one_line(finding.rule),
        "ruleIndex": place,
        "level": level,
        "message": {
            "text": f"{one_line(judged.file)}: {one_line(finding.where)}: {finding.outcome}: {one_line(finding.message)}"
        },
        "locations": [{"physicalLocation": {"artifactLocation": _artifact(policy), "region": {"startLine": finding.line}}}],
        "partialFingerprints": _fingerprints(judged, finding),
    }


def _artifact(path: str) -> dict[str, str]:
    """A path as a URI: relative to the checkout where it is."""
    address = quote(path.replace("\\", "/"), safe="/._-~")
    return {"uri": f"file://{address}"} if address.startswith("/") else {"uri": address, "uriBaseId": "%SRCROOT%"}


def _fingerprints(judged: Judged, finding: Finding) -> dict[str, str]:
    whole = "\0".join(("discreet gate", judged.source, finding.rule, finding.where))
    digest = hashlib.sha256(whole.encode("utf-8", "backslashreplace")).hexdigest()[:32]
    return {"discreetFinding/v1": digest, "primaryLocationLineHash": f"{digest[:16]}:1"}


def counts(findings: Sequence[Finding]) -> str:
    """How many findings there are of each outcome, as a phrase.

    >>> counts([])
    'nothing was checked'
    """
    by_outcome = [(name, sum(each.outcome == name for each in findings)) for name in OUTCOMES]
    phrases = [f"{count} {'hold' if name == 'holds' and count > 1 else name}" for name, count in by_outcome if count]
    return ", ".join(phrases) or "nothing was checked"


def markdown(judged: Sequence[Judged], policy: str, *, strict: bool = True) -> str:
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


def remarks(judged: Sequence[Judged], policy: str, *, strict: bool = True) -> Iterator[str]:
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
