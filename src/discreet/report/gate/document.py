"""What a gate found as one JSON document; `docs/reference/gate.schema.json` is its schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from discreet.report.gate.finding import Judged, worst

FORMAT = "discreet-gate"
VERSION = 1


def document(judged: Sequence[Judged], policy: str, *, strict: bool = False) -> dict[str, Any]:
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
