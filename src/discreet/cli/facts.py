"""What a report tells beside the scores of an attack: controls, groups, the most exposed rows, versions and hashes."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from discreet.attack.membership.controls import Controls
    from discreet.core import Evidence
    from discreet.models import Shadows

LEVELS = (0.01, 0.001)
SHOWN = 10  # most exposed members listed, by number only
PARTS = 4  # groups that a column of many numbers is cut into
MANY = 20  # different numbers before that is done
MOST = 200  # groups of one column
LEAST = 4  # shadows, for a risk over them


def produced(files: Mapping[str, str | None], **seeds: int) -> dict[str, Any]:
    """How the release was made: versions, the command with its options (no folders), seeds, and a hash of every file read."""
    from discreet.core.facts import made

    words = [f"{name}{sign}{Path(value).name or value}" for name, sign, value in map(_option, sys.argv[1:])]
    hashes = {Path(path).name: f"sha256:{_digest(path)}" for path in files.values() if path}
    return {"made": made(" ".join(["discreet", *words])[:500]), "seeds": seeds, "hashes": hashes}


def _option(word: str) -> tuple[str, str, str]:
    """An argument as (--name, =, value); one that is no option with a value is all value."""
    return word.partition("=") if word.startswith("--") and "=" in word else ("", "", word)


def _digest(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def most_exposed(evidence: Evidence) -> list[dict[str, Any]]:
    """The members that the attack is surest of, by their number in the file."""
    import numpy as np

    members = evidence.score[evidence.inside]
    return [{"index": int(each), "score": float(members[each])} for each in np.argsort(-members, kind="stable")[:SHOWN]]


def risks(shadows: Shadows | None, y: Any) -> dict[str, Any]:
    """Every row's risk over all shadows, each in turn the target, and how much models memorised it (Feldman).

    Empty where there are too few shadows.
    """
    from discreet.attack.membership import per_record_risk

    if shadows is None or len(shadows) < LEAST:
        return {}
    measured = per_record_risk(shadows, y, attack="lira")
    return {"risk": measured.risk(), "memorisation": measured.memorisation()}


def by_group(evidence: Evidence, names: Mapping[str, Any], confidence: float) -> list[dict[str, Any]]:
    """For every way of grouping the rows, each group's rate at one threshold for all, and its own area under the curve."""
    from discreet.attack.membership import groups_of
    from discreet.audit.rates import ENOUGH

    levels = [level for level in LEVELS if level * int((~evidence.inside).sum()) >= ENOUGH]
    found = []
    for by, groups in names.items():
        shares = {level: groups_of(evidence, groups, fpr=level, confidence=confidence) for level in levels}
        for place, group in enumerate(sorted(set(groups.tolist()))):
            chosen = groups == group
            row: dict[str, Any] = {"by": by, "group": str(group), "n": int((chosen & evidence.inside).sum())}
            area = _area(evidence, chosen)
            row |= {"auc": area} if area is not None else {}
            row |= {"tpr": {f"{level:g}": shares[level][place].rate for level in levels}} if levels else {}
            row |= {"low": shares[levels[0]][place].low, "high": shares[levels[0]][place].high} if levels else {}
            found.append(row)
    return found


def _area(evidence: Evidence, chosen: Any) -> float | None:
    """None where a group has only members, or none."""
    from discreet.audit import roc

    inside = evidence.inside[chosen]
    return roc(evidence.score[chosen], inside).area() if inside.any() and not inside.all() else None


def grouping(column: str, values: Any) -> Any:
    """A column as the names of groups: its own values, or four ranges where it holds many numbers."""
    import numpy as np

    values = np.asarray(values)
    if values.dtype.kind in "iuf" and len(np.unique(values)) > MANY:
        cuts = np.unique(np.quantile(values, np.linspace(0, 1, PARTS + 1)[1:-1]))
        bounds = ["least", *(f"{cut:g}" for cut in cuts), "most"]
        labels = np.array([f"{place + 1}: {low} to {high}" for place, (low, high) in enumerate(pairwise(bounds))])
        return labels[np.searchsorted(cuts, values, side="right")]
    names = np.array([f"{each:g}" if values.dtype.kind == "f" else str(each) for each in values.tolist()])
    if len(np.unique(names)) > MOST:
        raise InvalidValue(f"{column!r} has {len(np.unique(names)):,} different values: groups of so few rows tell nothing.")
    return names


def of_controls(controls: Controls, confidence: float) -> list[dict[str, Any]]:
    """What each attack found on the leaky twin, and on a model that saw none of the rows."""
    kinds = (("positive", controls.positive, "a leaky twin", controls.works),
             ("negative", controls.negative, "a model that saw none of the rows", controls.biased))  # fmt: skip
    return [
        {"name": f"{name} on {where}", "kind": kind, "auc": each.auc(), "tpr": _rates(each, confidence), "found": found(name)}
        for kind, those, where, found in kinds
        for name, each in those.items()
    ]  # fmt: skip


def _rates(evidence: Evidence, confidence: float) -> dict[str, float]:
    from discreet.audit import rate_at

    rates = [rate_at(evidence.score, evidence.inside, level, confidence) for level in LEVELS]
    return {f"{rate.level:g}": rate.rate for rate in rates if rate.resolvable}


def told_of_controls(rows: list[dict[str, Any]]) -> list[str]:
    """What to say of controls that did not come out as they should."""
    blind = [row["name"].split(" on ")[0] for row in rows if row["kind"] == "positive" and not row["found"]]
    biased = [row["name"].split(" on ")[0] for row in rows if row["kind"] == "negative" and row["found"]]
    lines = []
    if blind:
        lines.append(
            f"{', '.join(blind)}: does not find, beyond chance, even the members of a leaky twin, so that it finds nothing "
            "means nothing."
        )
    if biased:
        lines.append(
            f'{", ".join(biased)}: "finds" members of a model that saw none of the rows. Members and non-members differ in '
            "themselves (another time, another source?): what is found is not membership alone."
        )
    return lines
