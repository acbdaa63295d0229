"""JUnit XML, which every CI server reads: a suite for each release, a case for each finding."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as XML

from discreet.report.gate.finding import Finding, Judged, one_line


def junit(judged: Sequence[Judged], policy: str, *, strict: bool = False) -> str:
    """The document. What is inconclusive counts as skipped, and with `strict` as failed."""
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
