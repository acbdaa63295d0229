"""SARIF 2.1.0, for code scanning: every finding that does not hold points at its line of the policy."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from discreet import __version__
from discreet.report.gate.finding import Finding, Judged, one_line
from discreet.report.gate.policy import Policy

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"inconclusive": "warning", "failed": "error", "refuted": "error"}


def sarif(judged: Sequence[Judged], policy: Policy, *, strict: bool = False) -> dict[str, Any]:
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
