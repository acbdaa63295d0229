"""One number has one source: page, caption, table, card, gate and JSON show the same rate of an attack.

All draws are seeded.
"""

from __future__ import annotations

import json
import re
from html import unescape

import numpy as np
import pytest

from discreet import charts, report
from discreet.audit import intervals as measure
from discreet.audit import rate_at
from discreet.core import Claim, Evidence, Game, NonPrivate, Release, record
from discreet.figures import percent_down, percent_up, rate
from discreet.report.assessment import assess

GAME = Game(record(), {"scores"})
LEVELS = (0.001, 0.01)


def released(draw: int) -> Release[int]:
    """Evidence of a random size and strength; every third has few distinct scores, so that thresholds are far apart."""
    random = np.random.default_rng(draw)
    members, others = random.integers(0 if draw == 7 else 1, 3_000, 2)
    inside = np.arange(members + others) < members
    score = random.normal(size=len(inside)) + random.uniform(0, 3) * inside
    score = np.round(score, 1) if draw % 3 == 0 else score
    runs = np.zeros(len(inside), dtype=int)
    evidence = Evidence(game=GAME, attack="loss", score=score, inside=inside, run=runs, design="post_hoc")
    return Release(value=1, source="people", claims=(Claim(game=GAME, event=NonPrivate()),), evidence=(evidence,))


@pytest.mark.parametrize("draw", range(24))
def test_every_view_shows_the_same_rate(draw: int) -> None:
    release = released(draw)
    (evidence,) = release.evidence
    (finding,) = assess(release)
    plot, card = charts.roc(release), unescape(charts.card(evidence))
    document = json.loads(json.dumps(report.document(release)))
    (in_json,) = document["releases"][0]["evidence"]
    page = " ".join(unescape(re.sub(r"<[^>]+>", " ", report.html(release))).split())
    cells = dict(zip(plot.heads, plot.rows[-1]))
    for place, level in enumerate(LEVELS):
        true, found = rate_at(evidence.score, evidence.inside, level), in_json["rates"][place]
        assert found == {"fpr": level, "tpr": true.rate, "low": true.low, "high": true.high, "resolvable": true.resolvable}
        gate = measure.tpr(evidence, level, 0.95)
        assert (gate.value, gate.low, gate.high) == (true.rate, true.low, true.high)
        assert cells[rate(level)] == true.told
        assert f"{true.told} at {rate(level)}" in plot.alt
        assert f"{true.told} at {rate(level)} false positives" in card
        assert finding.floors[0].at(level).told == true.told
        assert " ".join(true.told.split()) in page


@pytest.mark.parametrize("draw", range(24))
def test_the_sentence_and_the_drawn_line_show_it_too(draw: int) -> None:
    release = released(draw)
    (evidence,) = release.evidence
    (finding,) = assess(release)
    floor = finding.floors[0]
    ends = (percent_up(each.high) for each in floor.rates)
    told = [*(percent_down(each) for rate in floor.rates for each in (rate.rate, rate.low)), *ends, "95 %"]
    told.append(percent_down(floor.auc.value))
    sentence = finding.sentence.replace("\N{NO-BREAK SPACE}", " ")
    assert all(number in [*told, *map(rate, LEVELS)] for number in re.findall(r"[\d.]+ %", sentence))
    drawn = dict(charts.attack_line(evidence, "loss").points)
    assert {level: drawn[level] for level in LEVELS if level in drawn} == {
        level: evidence.tpr(level) for level in LEVELS if level in drawn
    }


def test_the_page_that_told_two_numbers_tells_one() -> None:
    """1,500 members and 1,500 others: an interpolated curve told more than any threshold reaches."""
    random = np.random.default_rng(3)
    inside = np.arange(3_000) < 1_500
    score = np.round(random.normal(size=3_000) + 1.2 * inside, 1)
    evidence = Evidence(game=GAME, attack="loss", score=score, inside=inside, run=np.zeros(3_000, int), design="post_hoc")
    roc = evidence.roc()
    assert roc.at(0.01) < float(np.interp(0.01, roc.false, roc.true))
    assert percent_down(roc.at(0.01)) in charts.card(evidence)
