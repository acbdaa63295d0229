"""Cards and the plot: well-formed, escaped, with words for those who do not see it."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import numpy as np
from hypothesis import given, settings

from discreet.charts import Line, card, tradeoff_plot
from discreet.core import Claim, Evidence, Game, Laplace, NonPrivate, Release, Roc, record
from strategies import releases

GAME = Game(record(), {"answers"})
NASTY = '<script>alert("x")</script>&'


class PureCurve:
    """The ceiling of epsilon-DP, in closed form."""

    def epsilon(self, delta: float) -> float:
        return 1.0

    def delta(self, epsilon: float) -> float:
        return 0.0

    def power(self, level: float) -> float:
        return min(math.e * level, 1 - (1 - level) / math.e)

    def posterior(self, prior: float, delta: float = 1e-6) -> float:
        return math.e * prior / (math.e * prior + 1 - prior)


def nasty_release() -> Release[str]:
    evidence = Evidence(game=GAME, attack=NASTY, score=[1.0, 0.0], inside=[True, False], run=[0, 1], design="paired")
    claim = Claim(game=GAME, event=Laplace(1.0))
    return Release(value=NASTY, source=NASTY, claims=(claim,), entry=NASTY, evidence=(evidence,))


def parsed(html: str) -> ET.Element:
    return ET.fromstring(html)


def test_the_curve_card_tells_the_numbers_in_words_too() -> None:
    page = parsed(card(PureCurve()))
    description = next(page.iter("{http://www.w3.org/2000/svg}desc")).text
    assert description is not None
    assert "epsilon: 1 at δ = 1e-05" in description
    assert "belief: 50 % becomes at most 73.2 %" in description


def test_everything_is_escaped_and_nothing_runs() -> None:
    html = card(nasty_release())
    assert "<script" not in html
    assert NASTY in "".join(parsed(html).itertext())
    assert "javascript:" not in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")


def test_a_release_card_draws_ceiling_and_floor() -> None:
    roles = [node.get("data-role") for node in parsed(card(nasty_release())).iter() if node.get("data-role")]
    assert sorted(filter(None, roles)) == ["ceiling", "chance", "floor"]


def test_a_claim_without_a_ceiling_has_a_card() -> None:
    made = Release(value=1, source="x", claims=(Claim(game=GAME, event=NonPrivate()),))
    assert "<svg" not in card(made)
    assert "NonPrivate()" in card(made)


@settings(max_examples=30, deadline=None)
@given(releases)
def test_any_evidence_has_a_card(release: Release[object]) -> None:
    for evidence in release.evidence:
        assert "<svg" in card(evidence)


def test_roc_of_ties_and_of_one_world() -> None:
    ties = Roc.of(np.array([1.0, 1.0, 0.0]), np.array([True, False, False]))
    assert ties.false.tolist() == [0.0, 0.5, 1.0]
    assert ties.true.tolist() == [0.0, 1.0, 1.0]
    alone = Roc.of(np.array([1.0, 0.0]), np.array([True, True]))
    assert alone.false.tolist() == [0.0, 0.0, 0.0]


def test_points_outside_the_axes_are_left_out() -> None:
    line = Line(label="x", role="floor", points=[(0.0, 0.0), (1e-6, 1e-5), (0.5, 0.0), (0.5, 0.6), (1.0, 1.0)])
    drawn = tradeoff_plot([line], title="t", description="d")
    assert "nan" not in drawn
    assert drawn.count(" L") == 2  # one step of the floor, one of the diagonal
