"""Policy: which releases pass the rules of a privacy.toml, and why those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from discreet.errors import DiscreetError
from discreet.report.gate import Policy, proofs_of
from discreet.serve.routes import READERS, Page, Reply, Request, Route
from discreet.serve.store import Card

WORST = ("refuted", "failed", "inconclusive", "holds")  # the first that occurs is the outcome of a release


def policy(request: Request) -> Reply:
    """Every release against every rule."""
    file = request.state.settings.policy
    data: dict[str, Any] = {"policy": file.name if file else None, "releases": [], "fault": ""}
    if file is None:
        return Page("policy.html", data, {"counts": {}})
    try:
        rules = Policy.read(file)
    except DiscreetError as error:
        return Page("policy.html", {**data, "fault": str(error)}, {"counts": {}})
    for card in request.state.store.cards():
        summary = {"name": card.name, "title": card.title, "source": card.source}
        judged = _judged(request, rules, file, card.name) if card.fault is None else _unreadable(card)
        data["releases"].append({**summary, **judged})
    data["releases"].sort(key=lambda each: WORST.index(each["outcome"]))  # what needs somebody first
    counts = {word: sum(each["outcome"] == word for each in data["releases"]) for word in WORST}
    return Page("policy.html", data, {"counts": counts})


def _unreadable(card: Card) -> dict[str, Any]:
    """A release that nobody can read keeps to no rule."""
    message = f"The release cannot be read, so nothing is known of it: {card.fault}"
    finding = {"rule": "readable", "where": card.name, "outcome": "failed", "message": message, "needed": None}
    return {"outcome": "failed", "findings": [finding]}


def _judged(request: Request, rules: Policy, file: Path, name: str) -> dict[str, Any]:
    """What every rule finds; judged again only when the release, the policy or the ledger changed."""

    def judge() -> dict[str, Any]:
        try:
            release = request.state.store.load(name)
            proofs = proofs_of(release, request.state.store.path(name), ledger=request.state.ledger, keys=rules.keys)
            findings = [each.to_json() for each in rules.judge(release, proofs)]
        except DiscreetError as error:
            findings = [{"rule": "", "where": name, "outcome": "failed", "message": str(error), "needed": None}]
        outcome = next((word for word in WORST if any(finding["outcome"] == word for finding in findings)), "holds")
        return {"outcome": "failed" if outcome == "inconclusive" and rules.strict else outcome, "findings": findings}

    last = tuple(entry.id for entry in request.state.ledger.history()[-1:])
    judged: dict[str, Any] = request.state.store.remember(name, ("policy", file.stat().st_mtime_ns, *last), judge)
    return judged


ROUTES = (Route("/policy", policy, READERS, work="heavy"),)
