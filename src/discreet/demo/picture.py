"""The plot of the demo: the ceiling of the private model, and the attack on both models, as an SVG file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discreet.accounting import curve
from discreet.charts import attack_line, ceiling_line, tradeoff_plot
from discreet.charts.frame import on_paper

if TYPE_CHECKING:
    from discreet.core import Release

DESCRIPTION = (
    "On log scales, true against false positives of one attack on two models. On the model that memorised its patients "
    "it runs far above the ceiling of the private model; on the private model it runs below, along the line of blind guessing."
)

NOTE = ("No attack on the private model", "reaches up here, if its claim is true.")


def picture(leaky: Release[Any], private: Release[Any]) -> str:
    """An SVG on a white background: on a dark page its axes would be invisible."""
    lines = [
        attack_line(leaky.evidence[0], "attack on the overfit model", "broken"),
        ceiling_line(curve(private.claims[0].event), "ceiling of the private model"),
        attack_line(private.evidence[0], "attack on the private model"),
    ]
    drawn = tradeoff_plot(lines, title="One attack on two models", description=DESCRIPTION, size=(640, 480), note=NOTE)
    return on_paper(drawn).replace('"currentColor"', '"#222"') + "\n"
