"""What a report tells beside the scores of an attack: rates, controls, groups, the rows most at risk, versions and hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from discreet.attack.membership.attacks import BY_NAME
from discreet.attack.membership.controls import Controls
from discreet.attack.membership.high_loss_screen import high_loss_screen
from discreet.attack.membership.per_record_risk import per_record_risk
from discreet.attack.membership.run import MembershipResult
from discreet.audit import appraise, rates, roc
from discreet.audit.rates import ENOUGH
from discreet.core import Evidence
from discreet.core.facts import made
from discreet.errors import InvalidValue
from discreet.figures import place_name
from discreet.models import Shadows, predict

LEVELS = (0.01, 0.001)
SHOWN = 10  # members most at risk that are listed, by number only
PARTS = 4  # groups that a column of many numbers is cut into
MANY = 20  # different numbers before that is done
MOST_GROUPS = 200  # of one column
FEWEST_SHADOWS = 4  # for a risk over them


def provenance(files: Mapping[str, str | None], command: str | None = None, **seeds: int) -> dict[str, Any]:
    """How the release was made: versions, the command, seeds, and a hash of every file read."""
    hashes = {place_name(path): f"sha256:{_digest(path)}" for path in files.values() if path}
    return {"made": made(command), "seeds": seeds, "hashes": hashes}


def settings(result: MembershipResult, shared: tuple[int, int] = (0, 0)) -> dict[str, str]:
    """How the attacks were run, for the report: how many models, how many questions to the target, which controls, and how
    many members and others were left out because they were in both files."""
    known = [BY_NAME[name] for name in result if name in BY_NAME]
    asked = {attack.name: 1 + attack.needs.queries for attack in known}
    inside = next(iter(result.values())).inside
    told = {
        "shadow models": "none" if result.shadows is None else f"{len(result.shadows):,}, each on a random half of the rows",
        "rows asked about": f"{int(inside.sum()):,} members, {int((~inside).sum()):,} others",
        "rows left out, in both files": f"{shared[0]:,} members, {shared[1]:,} others" if any(shared) else "",
        "questions to the model, for each row": ", ".join(f"{name} {count:,}" for name, count in asked.items()),
        "controls": "none" if result.controls is None else "an overfit control, and a model that saw none of the rows",
    }
    return {name: value for name, value in told.items() if value}


def _digest(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def most_at_risk(evidence: Evidence) -> list[dict[str, Any]]:
    """The members that the attack is surest of, by their number in the file."""
    members = evidence.score[evidence.inside]
    return [{"index": int(each), "score": float(members[each])} for each in np.argsort(-members, kind="stable")[:SHOWN]]


def risks(shadows: Shadows | None, y: Any) -> dict[str, Any]:
    """Every row's risk over all shadows, each in turn the target, and how much models memorised it (Feldman).

    Empty where there are too few shadows.
    """
    if shadows is None or len(shadows) < FEWEST_SHADOWS:
        return {}
    measured = per_record_risk(shadows, y, attack="lira")
    return {"risk": measured.risk(), "memorisation": measured.memorisation()}


def by_group(evidence: Evidence, names: Mapping[str, Any], confidence: float) -> list[dict[str, Any]]:
    """For every way of grouping the rows: each group's rates at its own false-positive rates, and its own area."""
    rows = []
    for by, groups in names.items():
        for group in sorted(set(groups.tolist())):
            chosen = groups == group
            inside, score = evidence.inside[chosen], evidence.score[chosen]
            row: dict[str, Any] = {"by": by, "group": str(group), "n": int(inside.sum())}
            if inside.any() and not inside.all():  # a group of members alone has no false-positive rate
                measured = rates(score, inside, confidence, LEVELS)
                row |= {"auc": roc(score, inside).area(), "tpr": {f"{each.level:g}": each.rate for each in measured}}
                row |= {"low": measured[0].low, "high": measured[0].high}
            rows.append(row)
    return rows


def grouping(column: str, values: Any) -> Any:
    """A column as the names of groups: its own values, or four ranges where it holds many numbers."""
    values = np.asarray(values)
    if values.dtype.kind in "iuf" and len(np.unique(values)) > MANY:
        cuts = np.unique(np.quantile(values, np.linspace(0, 1, PARTS + 1)[1:-1]))
        bounds = ["least", *(f"{cut:g}" for cut in cuts), "most"]
        labels = np.array([f"{place + 1}: {low} to {high}" for place, (low, high) in enumerate(pairwise(bounds))])
        return labels[np.searchsorted(cuts, values, side="right")]
    names = np.array([f"{each:g}" if values.dtype.kind == "f" else str(each) for each in values.tolist()])
    if len(np.unique(names)) > MOST_GROUPS:
        raise InvalidValue(f"{column!r} has {len(np.unique(names)):,} different values: groups of so few rows tell nothing.")
    return names


def of_controls(controls: Controls, confidence: float) -> list[dict[str, Any]]:
    """What each attack reached on the overfit control, and on a model that saw none of the rows."""
    kinds = (("positive", controls.positive, "an overfit control", controls.works),
             ("negative", controls.negative, "a model that saw none of the rows", controls.biased))  # fmt: skip
    return [
        {"name": f"{attack} on {where}", "attack": attack, "kind": kind, "auc": evidence.auc(),
         "tpr": _rates(evidence, confidence), "found": finds(attack)}
        for kind, by_attack, where, finds in kinds
        for attack, evidence in by_attack.items()
    ]  # fmt: skip


def _rates(evidence: Evidence, confidence: float) -> dict[str, float]:
    return {f"{each.level:g}": each.rate for each in rates(evidence.score, evidence.inside, confidence, LEVELS)}


def control_warnings(rows: list[dict[str, Any]]) -> list[str]:
    """What to say of controls that did not come out as they should."""
    blind = [row["attack"] for row in rows if row["kind"] == "positive" and not row["found"]]
    biased = [row["attack"] for row in rows if row["kind"] == "negative" and row["found"]]
    lines = []
    if blind:
        lines.append(
            f"{', '.join(blind)}: does not find, beyond chance, even the members of an overfit control, so that it finds "
            "nothing means nothing."
        )
    if biased:
        lines.append(
            f'{", ".join(biased)}: "finds" members of a model that saw none of the rows. Members and non-members differ in '
            "themselves (another time, another source?): what is found is not membership alone."
        )
    return lines


def reached(evidence: Evidence, delta: float, confidence: float) -> dict[str, Any]:
    """What one attack reached, with intervals; where they are wide for lack of rows, how many would narrow them."""
    measured = appraise(evidence, confidence=confidence, delta=delta)
    return {
        "attack": evidence.attack, "view": sorted(evidence.game.view), "auc": measured.auc.value,
        "auc_low": measured.auc.low, "auc_high": measured.auc.high,
        "rates": [
            {"fpr": each.level, "tpr": each.rate, "low": each.low, "high": each.high,
             "outcome": "resolved" if each.resolvable else "few rows", "nonmembers_needed": round(ENOUGH / each.level)}
            for each in map(measured.at, LEVELS)
        ],
        "epsilon_at_least": measured.epsilon,
    }  # fmt: skip


def accuracies(target: Any, members: Any, nonmembers: Any) -> dict[str, float]:
    right = [float((predict.labels(target, X) == y).mean()) for X, y in (members, nonmembers)]
    return {"train accuracy": right[0], "test accuracy": right[1]}


def screened(target: Any, members: Any, nonmembers: Any, confidence: float) -> dict[str, Any]:
    """The screen that needs no shadows: how many non-members have a loss that hardly any member has."""
    screen = high_loss_screen(target, members, nonmembers, confidence=confidence)
    return {"rate": screen.rate, "low": screen.low, "high": screen.high, "says": str(screen)}
