"""The section on a synthetic table: how it was made and what was measured, how near it is, and what attackers make of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from discreet import charts
from discreet.charts import Plot
from discreet.figures import percent_down, percent_up, rate, up
from discreet.report import text
from discreet.report.assessment import Assessment
from discreet.report.model import SYNTHETIC
from discreet.report.section import Section
from discreet.report.tables import Table

MOST_SETS, MOST_COLUMNS = 12, 40
OWNER_ONLY = "Not for release: this was computed from the real rows without noise, for the owner of the data alone."
CHARGED = "Paid for from the budget: distances have noise, and 95 % intervals."
NO_DISTANCE = "Closeness of single rows is not a measure of privacy: distance to the closest record proves nothing."
_NOISE = {
    "columns": "noise on a count of one column",
    "choices": "epsilon of each choice of a table",
    "gaps": "noise on how far a pair is from independence",
    "pairs": "noise on a count of a chosen pair",
    "tables": "noise on a count of a chosen table, measured once",
}
_WIDTHS = {1: "columns", 2: "pairs", 3: "triples"}


@dataclass(frozen=True)
class SyntheticTable:
    """The section on synthetic tables."""

    name: str = "synthetic"
    heading: str = "The synthetic table"

    def section(self, item: Assessment, plots: bool) -> Section | None:
        return _section(item, plots) if any(item.facts.get(name) for name in SYNTHETIC) else None


def _section(item: Assessment, plots: bool) -> Section:
    facts = item.facts
    made: Any = facts.get("synthetic", {})
    tables, drawn, notes = [], [], []
    if made.get("measured"):
        tables.append(("Tables that were measured together", _measured(made)))
    for name, said in (("fidelity", CHARGED), ("owner_fidelity", OWNER_ONLY)):
        near: Any = facts.get(name)
        if near and near["distances"]:
            tables.append((f"How near it is to the real table. {said}", _distances(near)))
            drawn += [_drawn(near, width) for width in (1, 2) if plots and _sets(near, width)]
    if facts.get("risks"):
        tables.append(("Singling out, linkability and inference, against a control group", _risks(facts["risks"])))
        notes += [_risk_note(facts["risks"]), NO_DISTANCE]
    pairs = [*_pairs(made), *_useful(facts.get("usefulness"))]
    return Section(item.title, tuple(pairs), tuple(tables), tuple(drawn), tuple(notes))


def _pairs(made: Any) -> list[tuple[str, str]]:
    if not made:
        return []
    names = [f"{text.short(it['name'], 40)} ({it['cells']})" for it in made["columns"]]
    more = f" and {len(names) - MOST_COLUMNS} more" if len(names) > MOST_COLUMNS else ""
    found = [("Method", text.short(made["method"], 60)), ("Columns and their cells", ", ".join(names[:MOST_COLUMNS]) + more)]
    if "epsilon" in made:
        found.append(("Budget", f"ε = {up(made['epsilon'])} at δ = {text.small(made.get('delta', 0.0))}, in one charge"))
    for part, size in made.get("noise", {}).items():
        found.append((_NOISE.get(part, f"noise of {text.short(part, 40)}").capitalize(), f"{size:,.4g}"))
    if "rows" in made:
        found.append(("Rows of the real table, by a noisy count", f"{made['rows']:,.0f}"))
    if "measured_count" in made:
        found.append(("Tables measured", f"{made['measured_count']:,}, each column among them"))
    if "converged" in made:
        state = "has converged" if made["converged"] else "HAS NOT CONVERGED: its marginals are off by more than noise"
        within = f"; within {made['gap']:.2g} of its optimum" if "gap" in made else ""
        found.append(("Estimation", state + within))
    return found


def _measured(made: Any) -> Table:
    listed = made["measured"]
    rows = [(_set(it["columns"]), f"{it['sigma']:,.4g}") for it in listed[:MOST_SETS]]
    left = len(listed) - len(rows)
    return Table(("columns", "noise on each count (standard deviation)"), tuple(rows), f"and {left} more" if left > 0 else "")


def _set(columns: Iterable[str]) -> str:
    return " × ".join(text.short(name, 40) for name in columns)


def _sets(near: Any, width: int) -> list[Any]:
    return sorted((it for it in near["distances"] if len(it["columns"]) == width), key=lambda it: -it["distance"])


def _distances(near: Any) -> Table:
    """One line for each width: how many, the mean, and the worst."""
    rows = []
    for width, name in _WIDTHS.items():
        found = _sets(near, width)
        if found:
            worst = found[0]
            ends = f" ({worst['low']:.3f} to {worst['high']:.3f})" if "low" in worst else ""
            mean = sum(it["distance"] for it in found) / len(found)
            rows.append((name, f"{len(found):,}", f"{mean:.4f}", f"{_set(worst['columns'])}: {worst['distance']:.3f}{ends}"))
    more = "0 is the same, 1 has nothing in common."
    if "association_error" in near:
        more += f" Association of pairs (Cramér's V) is off by {near['association_error']:.4f} on average."
    return Table(("sets of", "compared", "mean total variation", "worst"), tuple(rows), more)


def _drawn(near: Any, width: int) -> Plot:
    errors = {_set(it["columns"]): it["distance"] for it in _sets(near, width)}
    return charts.marginals(errors, title=f"Total variation of {_WIDTHS[width]}")


def _risks(listed: Any) -> Table:
    rows = [
        (text.short(it["name"], 60), percent_down(it["members"]), percent_down(it["control"]), percent_down(it["baseline"]),
         f"{percent_down(it['share'])} ({percent_down(it['low'])} to {percent_up(it['high'])})")
        for it in listed[:20]
    ]  # fmt: skip
    return Table(("risk", "right on members", "right on the control group", "a blind guess", "given away"), tuple(rows))


def _risk_note(listed: Any) -> str:
    sure = rate(min((it["confidence"] for it in listed), default=0.95))
    return (
        "What is right on people who were not in the table is knowledge about the population. Given away: the part of what the "
        f"control group leaves open that members lose, with its {sure} interval. Who was a member was not decided by coins: "
        "this warns, and cannot refute a claim."
    )


def _useful(useful: Any) -> list[tuple[str, str]]:
    if not useful:
        return []
    right = [percent_down(useful[f"{kind}_accuracy"]) for kind in ("synthetic", "real")]
    areas = [useful.get(f"{kind}_auc") for kind in ("synthetic", "real")]
    more = f"; AUC {areas[0]:.3f} against {areas[1]:.3f}" if all(isinstance(it, float) for it in areas) else ""
    said = f"right on {right[0]} of real rows, against {right[1]} when learned from real ones{more}. Not for release."
    return [(f"{text.short(useful['label'], 40)}, learned from it", said)]
