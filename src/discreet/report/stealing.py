"""The section on stealing: what answers gave away of a model's parameters. Never beside an epsilon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from discreet.figures import percent_down
from discreet.report import text
from discreet.report.assessment import Assessment
from discreet.report.section import Section
from discreet.report.tables import Table

MOST = 20
ACCUSED = "{} is accused no more often than the level says; who reorders units, or learned a copy from answers, is not seen."
START = "A model from another start"  # another public model, or another seed
BESIDE = "A model from the same start that was made without this one"
HEADS = ("method", "answers seen", "queries", "parameters or leaves", "largest error", "agreement")


@dataclass(frozen=True)
class StolenModel:
    """The section on stealing."""

    name: str = "stealing"
    heading: str = "What answers give away of a model's parameters"

    def section(self, item: Assessment, plots: bool) -> Section | None:
        listed: Any = item.facts.get("stealing") or ()
        kin: Any = item.facts.get("descent")
        if not listed and not kin:
            return None
        if not listed:
            return Section(item.title, pairs=_kin(kin), notes=(_accused(kin),))
        more = f"and {len(listed) - MOST} more" if len(listed) > MOST else ""
        notes = (
            "Evidence of another kind: the parameters of a model have no neighbouring data sets. No claim bounds it, it "
            "is no floor of ε, and a private model is stolen as easily as another.",
            "Whoever holds a copy can attack it with its weights in hand; the attacks on weights then apply.",
        )
        return Section(
            item.title, pairs=_kin(kin) if kin else (), notes=(*notes, _accused(kin)) if kin else notes,
            tables=(("Stolen through answers", Table(HEADS, tuple(map(_row, listed[:MOST])), more)),),
        )  # fmt: skip


def _kin(each: Any) -> tuple[tuple[str, str], ...]:
    """Whether another model was made from this one."""
    made = "made from this model" if each.get("siblings") else "made from this model, or both from one start"
    said = made if each["accused"] else "no sign that it was made from this model"
    return ((text.short(each["suspect"], 60), f"{said} (p = {each['p']:.2g}, level {each['level']:g})"),)


def _accused(each: Any) -> str:
    return ACCUSED.format(BESIDE if each.get("siblings") else START)


def _row(each: Any) -> tuple[str, ...]:
    size = each.get("parameters", each.get("leaves"))
    error, share = each.get("error"), each.get("agreement")
    told = "–" if share is None else f"{percent_down(share)} (at least {percent_down(each.get('agreement_low', 0.0))})"
    return (
        text.short(each["method"], 40), text.short(each.get("answers", "scores"), 20), f"{each['queries']:,}",
        "–" if size is None else f"{size:,}", "–" if error is None else f"{error:.1e}", told,
    )  # fmt: skip
