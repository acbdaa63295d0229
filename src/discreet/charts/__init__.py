"""Pictures: one ROC plot, one trade-off curve, budgets, steps, bars and intervals, for reports, notebooks, web and terminal.

`card` is what a notebook shows. Every plot is a small SVG of our own, with the same in words and as a table of numbers.
"""

from discreet.charts.answers import intervals
from discreet.charts.cards import card
from discreet.charts.curves import Line, attack_line, band, ceiling_line, tradeoff_plot
from discreet.charts.plots import Plot, all_plots, burn_down, histogram, marginals, roc, steps, tradeoff
from discreet.charts.terminal import sketch
from discreet.charts.trend import Version, trend

__all__ = [
    "Line", "Plot", "Version", "all_plots", "attack_line", "band", "burn_down", "card", "ceiling_line", "histogram",
    "intervals", "marginals", "roc", "sketch", "steps", "tradeoff", "tradeoff_plot", "trend",
]  # fmt: skip
