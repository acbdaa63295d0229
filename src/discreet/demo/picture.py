"""The plot of the demo: the ceiling of the private model, and the attack on both models, as an SVG file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from discreet.accounting import curve
from discreet.core import svg
from discreet.core.card import attack_line, ceiling_line
from discreet.report.plots import band

if TYPE_CHECKING:
    from discreet.core import Evidence, Release

DESCRIPTION = (
    "On log scales, true against false positives of one attack on two models. On the model that memorised its patients "
    "it runs far above the ceiling of the private model; on the private model it runs below, along the line of blind guessing."
)

NOTE = ("No attack on the private model", "reaches up here, if its claim is true.")


def picture(leaky: Release[Any], private: Release[Any]) -> str:
    """An SVG on a white background: on a dark page its axes would be invisible."""
    lines = [
        _line(leaky.evidence[0], "attack on the overfit model", "broken"),
        ceiling_line(curve(private.claims[0].event), "ceiling of the private model"),
        _line(private.evidence[0], "attack on the private model", "floor"),
    ]
    drawn = svg.tradeoff_plot(
        lines, title="One attack on two models", description=DESCRIPTION, width=640, height=480, paper="#fff", note=NOTE
    )
    return drawn.replace('fill="currentColor"', 'fill="#222"').replace('"currentColor"', '"#222"') + "\n"


def _line(evidence: Evidence, label: str, role: str) -> svg.Line:
    return replace(attack_line(evidence, label, role), band=band(evidence))
