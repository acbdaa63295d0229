"""Policy: which releases pass the rules of a privacy.toml, and why those that do not."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from discreet.errors import DiscreetError
from discreet.serve.doors import READERS, Door, Page, Reply, Visit

WORST = ("refuted", "failed", "inconclusive", "holds")  # the first that occurs is the outcome of a release


def _has_gate() -> bool:
    return find_spec("discreet.report") is not None and find_spec("discreet.report.gate") is not None


def policy(visit: Visit) -> Reply:
    """Every release against every rule."""
    file = visit.house.settings.policy
    data: dict[str, Any] = {"policy": file.name if file else None, "releases": [], "fault": ""}
    if file is None or not _has_gate():
        return Page("policy.html", data, {"counts": {}})
    gate: Any = import_module("discreet.report.gate")
    try:
        rules = gate.Policy.read(file)
    except DiscreetError as error:
        return Page("policy.html", {**data, "fault": str(error)}, {"counts": {}})
    for card in visit.house.shelf.cards():
        if card.fault is None:
            data["releases"].append(
                {"name": card.name, "title": card.title, "source": card.source, **_judged(visit, rules, card.name)}
            )
    counts = {word: sum(each["outcome"] == word for each in data["releases"]) for word in WORST}
    return Page("policy.html", data, {"counts": counts})


def _judged(visit: Visit, rules: Any, name: str) -> dict[str, Any]:
    try:
        findings = [
            {"rule": str(it.rule), "where": it.where, "outcome": it.outcome, "message": it.message, "needed": it.needed}
            for it in rules.judge(visit.house.shelf.load(name))
        ]
    except DiscreetError as error:
        findings = [{"rule": "", "where": name, "outcome": "failed", "message": str(error), "needed": None}]
    outcome = next((word for word in WORST if any(it["outcome"] == word for it in findings)), "holds")
    return {"outcome": outcome, "findings": findings}


DOORS = (Door("/policy", policy, READERS, work="heavy"),)
