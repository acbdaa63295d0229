"""The plots of a report: well-formed, told in words and in numbers, whatever they are given."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet import charts
from discreet.accounting import curve
from discreet.audit import rate_at
from discreet.charts import Plot
from discreet.charts.frame import Frame, number, thinned, ticks
from discreet.core import Claim, Evidence, Game, Laplace, Release, record
from discreet.errors import InvalidValue
from reports import COUNT, TRAINED, broken, evidence, leaky, ledger, private


def checked(plot: Plot) -> ElementTree.Element:
    """The picture as XML, after checking that it says the same in words and numbers."""
    root = ElementTree.fromstring(plot.file())
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == plot.title
    assert plot.alt
    assert plot.table[0] == plot.heads
    assert all(len(row) == len(plot.heads) for row in plot.rows)
    assert "<figure>" in plot._repr_html_()
    paths = [path.attrib["d"] for path in root.iter() if "d" in path.attrib]
    assert not any("nan" in path or "inf" in path for path in paths)
    return root


def test_the_roc_has_a_line_for_every_claim_and_attack() -> None:
    for release in (private(), leaky(), broken()):
        plot = charts.roc(release)
        roles = [each.attrib["data-role"] for each in checked(plot).iter() if "data-role" in each.attrib]
        ceilings = 0 if release is leaky() or "plainly" in release.facts.get("title", "") else 1
        assert roles.count("ceiling") == ceilings
        assert roles.count("floor") + roles.count("broken") == len(release.evidence)
        assert len(plot.rows) == ceilings + len(release.evidence)
        assert len(plot.legend) == len(plot.rows) + 1
    assert "there is no ceiling; attack lira reaches" in charts.roc(leaky()).alt


def test_an_attack_through_a_ceiling_has_its_own_colour() -> None:
    roles = [each.attrib["data-role"] for each in checked(charts.roc(broken())).iter() if "data-role" in each.attrib]
    assert roles == ["chance", "ceiling", "broken"]


def test_lines_of_one_role_differ_in_colour_and_dashes() -> None:
    swatches = [swatch for swatch, _ in charts.roc(leaky()).legend]
    assert len(set(swatches)) == len(swatches) == 4


def test_attacks_of_one_name_are_told_apart_and_of_many_some_are_drawn() -> None:
    claim = Claim(game=leaky().evidence[0].game, event=Laplace(20.0))
    attacks = (*(evidence(0.0, targets=200) for _ in range(29)), evidence(4.0, targets=200))
    plot = charts.roc(replace(leaky(), claims=(claim,), evidence=attacks), most=5)
    assert [name for _, name in plot.legend][1:] == [
        "lira (1)",
        "lira (2)",
        "lira (3)",
        "lira (4)",
        "lira (30)",
        "guessing blindly",
    ]
    assert "25 more attacks" in plot.alt


def test_the_band_is_that_of_the_tables() -> None:
    seen = evidence(1.0, targets=20_000)
    band = {level: (low, high) for level, low, high in charts.band(seen)}
    for level in (0.001, 0.01, 0.1):
        measured = rate_at(seen.score, seen.inside, level)
        assert band[level] == (measured.low, measured.high)
    assert all(low <= seen.roc().at(level) <= high for level, (low, high) in band.items())
    assert charts.band(evidence(1.0, targets=6)) == []


def test_the_tradeoff_is_that_of_the_curve() -> None:
    plot = charts.tradeoff(curve(COUNT.event))
    checked(plot)
    assert plot.rows[1][0] == "1 %"
    assert float(plot.rows[1][1].split()[0]) <= 100 * (1 - curve(COUNT.event).power(0.01))
    checked(charts.tradeoff(curve(TRAINED.event)))


@pytest.mark.parametrize("pairs", [[[0, 0.0]], [[5, 1.0], [1, 0.5]], [(k, k**0.5) for k in range(5000)], [[1, 0], [1, 0]]])
def test_steps(pairs: Any) -> None:
    plot = charts.steps(pairs)
    checked(plot)
    assert len(plot.rows) <= 8
    assert len(plot.svg) < 20_000


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(InvalidValue, match="nothing to draw"):
        charts.steps([])
    with pytest.raises(InvalidValue, match="nothing to draw"):
        charts.marginals({})


@pytest.mark.parametrize("errors", [{"age": 0.0}, {"age": 1e-300, "b": 1e300}, {f"column {k}": k / 7 for k in range(500)}])
def test_marginals(errors: dict[str, float]) -> None:
    plot = charts.marginals(errors)
    checked(plot)
    assert len(plot.rows) == min(len(errors), 30)
    assert plot.rows[0][0] == max(errors, key=errors.__getitem__)


@pytest.mark.parametrize(
    "score", [[0.0, 0.0, 0.0], [1e308, -1e308, 0.0], [1.0, 1.0, np.nextafter(1.0, 2.0)], [1, 2, 3]], ids=str
)
@pytest.mark.parametrize("inside", [[True, False, True], [True, True, True], [False, False, False]], ids=str)
def test_histograms(score: list[float], inside: list[bool]) -> None:
    seen = Evidence(game=Game(record(), {"scores"}), attack="<x>", score=score, inside=inside, run=[0, 0, 0], design="post_hoc")
    plot = charts.histogram(seen)
    checked(plot)
    assert "&lt;x&gt;" in plot.svg
    assert plot.svg.count(">not inside</text>") == 1
    assert ">not inside</text>" not in charts.histogram(seen, legend=False).svg


def test_burn_down(tmp_path: Path) -> None:
    kept, _ = ledger(tmp_path)
    with kept:
        plot = charts.burn_down(kept.balance("hospital"), list(kept.history("hospital")))
    checked(plot)
    assert plot.rows[-1][1] == "62.5 %"


def test_every_plot_of_a_release() -> None:
    assert [plot.name for plot in charts.all_plots(private())] == [
        "roc",
        "tradeoff",
        "steps",
        "histogram-1",
        "histogram-2",
        "marginals",
    ]
    assert [plot.name for plot in charts.all_plots(Release(value=1, source="x", claims=()))] == ["roc"]


def test_ticks_are_round_and_few() -> None:
    random = np.random.default_rng(1)
    for _ in range(300):
        low, high = sorted(random.normal(size=2) * 10 ** random.uniform(-6, 6))
        found = ticks(low, high)
        assert 2 <= len(found) <= 12
        assert all(low - 1e-9 * abs(low) <= each <= high + 1e-9 * abs(high) for each in found)
    assert ticks(3.0, 3.0) == [3.0]
    assert number(1e-9) == "1e-9"


def test_thinning_never_moves_a_line_that_can_be_seen() -> None:
    random = np.random.default_rng(2)
    points = [(float(x), float(y)) for x, y in zip(range(400), np.cumsum(random.normal(size=400)))]
    kept = thinned(points, 0.5)
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]
    assert len(kept) < len(points)
    between = np.interp([x for x, _ in points], [x for x, _ in kept], [y for _, y in kept])
    assert np.abs(between - [y for _, y in points]).max() <= 0.5 * 8  # half a pixel across a line, more along a steep one
    assert thinned(points[:2]) == points[:2]
    frame = Frame((0, 1), (0, 1))
    assert frame.path([(0, 0), (0.5, 0.5), (1, 1)]).count("L") == 1
