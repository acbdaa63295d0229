"""The section on attribute inference: what a model tells of a hidden column, and how much of that is about anybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from discreet.figures import percent_down, percent_up, rate
from discreet.report import text
from discreet.report.assessment import Assessment
from discreet.report.section import Section
from discreet.report.tables import Table

MOST = 20
HEADS = ("hidden column", "right on members", "right on people outside", "a guess without the model", "given away", "AUC")


@dataclass(frozen=True)
class AttributeInference:
    """The section on attribute inference."""

    name: str = "inference"
    heading: str = "What a model tells of a hidden column"

    def section(self, item: Assessment, plots: bool) -> Section | None:
        listed: Any = item.facts.get("inference")
        if not listed:
            return None
        rows = [_row(each) for each in listed[:MOST]]
        more = f"and {len(listed) - MOST} more" if len(listed) > MOST else ""
        sure = rate(min(each["confidence"] for each in listed))
        notes = (
            "The attacker knows everybody's other columns and outcome, tries every value of the hidden column, and asks the "
            "model. What is right on people outside is knowledge about the population: no privacy of members prevents it.",
            f"Given away: the part of what people outside leave open that members lose, with its {sure} interval.",
        )
        return Section(item.title, tables=(("Members against people outside", Table(HEADS, tuple(rows), more)),), notes=notes)


def _row(each: Any) -> tuple[str, ...]:
    areas = [each.get(name) for name in ("auc_members", "auc_control")]
    area = " and ".join("–" if found is None else f"{found:.3f}" for found in areas)
    given = f"{percent_down(each['share'])} ({percent_down(each['low'])} to {percent_up(each['high'])})"
    rates = (percent_down(each[name]) for name in ("members", "control", "baseline"))
    return (text.short(each["name"], 60), *rates, given, area)
