"""The picture of how a fit grows with rows and with columns: CPU-seconds and memory, both on log scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, SIDE = 700, 300, 56, 34, 250
OURS, PLAIN = "#3b6fd4", "#d9541e"


class Panel:
    """One pair of axes; `across` and `up` are powers of ten."""

    def __init__(self, left: int, across: tuple[float, float], up: tuple[float, float]) -> None:
        self.left, self.across, self.up = left, across, up

    def at(self, x: float, y: float) -> str:
        spots = []
        for value, (low, high) in ((x, self.across), (y, self.up)):
            spots.append((math.log10(value) - low) / (high - low))
        return f"{self.left + SIDE * spots[0]:.1f} {TOP + 200 * (1 - spots[1]):.1f}"

    def axes(self, title: str, name: str, below: Sequence[float], beside: Sequence[float]) -> str:
        parts = [f'<text x="{self.left - 40}" y="16">{title}</text>']
        for value in beside:
            x, y = self.at(10 ** self.across[0], value).split()
            parts.append(f'<path d="M{x} {y} h{SIDE}" stroke="#999" stroke-opacity="0.3"/>')
            parts.append(f'<text x="{self.left - 6}" y="{y}" dy="4" text-anchor="end">{value:g}</text>')
        for value in below:
            x, _ = self.at(value, 10 ** self.up[0]).split()
            parts.append(f'<text x="{x}" y="{TOP + 218}" text-anchor="middle">{_short(value)}</text>')
        parts.append(f'<text x="{self.left + SIDE / 2:.0f}" y="{TOP + 240}" text-anchor="middle">{name}</text>')
        return "".join(parts)

    def line(self, points: Sequence[tuple[float, float]], colour: str, says: str, dash: str = "") -> str:
        path = " L".join(self.at(x, y) for x, y in points)
        dots = "".join(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in (self.at(*p).split() for p in points))
        x, y = self.at(*points[-1]).split()
        style = f' stroke-dasharray="{dash}"' if dash else ""
        label = f'<text x="{x}" y="{y}" dx="-4" dy="-7" text-anchor="end" fill="{colour}">{says}</text>'
        return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{style}/>{dots}{label}'


def _short(value: float) -> str:
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k" if value >= 1e3 else f"{value:g}"


def drawn(size: list[dict[str, Any]], large: list[dict[str, Any]]) -> str:
    """`size` and `large` as bench/synth.py has them."""
    rows = Panel(LEFT, (4, 8), (-1, 2))
    columns = Panel(LEFT + SIDE + 90, (1, 2), (-1, 1))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#555">',
        "<title>CPU-seconds of a tree by the number of rows and of columns</title>",
        rows.axes("CPU-seconds of a fit (tree)", "rows", (1e4, 1e5, 1e6, 1e7, 1e8), (0.1, 1, 10, 100)),
        rows.line([(it["rows"], it["fit_cpu_s"]) for it in size if it["columns"] == 15], OURS, "15 columns"),
        rows.line([(it["rows"], it["tree_fit_cpu_s"]) for it in large], OURS, "", "4 4"),
        rows.line([(it["rows"], it["duckdb_fit_cpu_s"]) for it in large], PLAIN, "12 columns; DuckDB alone"),
        columns.axes("CPU-seconds of a fit (tree), 39,073 rows", "columns", (10, 20, 50, 100), (0.1, 1, 10)),
        columns.line([(it["columns"], it["fit_cpu_s"]) for it in size if it["rows"] < 50_000], OURS, ""),
    ]
    return "".join(parts) + "</svg>\n"
