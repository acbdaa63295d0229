"""Claims of documents that would take minutes are known by their shape, before anything of them is worked out."""

from __future__ import annotations

import pytest

from discreet import accounting
from discreet.accounting.effort import effort
from discreet.audit import appraise
from discreet.audit.judge import MOST_EFFORT, ceiling_of
from discreet.core import Claim, Event, Evidence, Game, Gaussian, Laplace, Poisson, Release, Repeat, Sequence, record
from discreet.core.event import Group, Pure, RandomAllocation, Zero
from discreet.errors import UnsupportedEvent
from discreet.report.gate.rules import ClaimedEpsilon, Unrefuted

GAME = Game(record(), {"answers"})
MANY = [Laplace(1.0 + place / 100) for place in range(60)]
HOSTILE: list[Event] = [
    Poisson(0.1, Sequence([Poisson(0.01 + place / 1e3, each) for place, each in enumerate(MANY)])),
    Sequence([Poisson(0.01 + place / 1e5, Gaussian(0.6 + place / 1e3)) for place in range(200)]),
    Sequence([Poisson(0.5, Sequence([Laplace(1.0 + place), *MANY[:5]])) for place in range(20)]),
    Repeat(Group(Sequence([Laplace(1.0 + place / 1e4) for place in range(20_000)]), 2), 3),
]


@pytest.mark.parametrize("event", HOSTILE, ids=range(len(HOSTILE)))
def test_no_curve_of_a_hostile_claim_is_begun_and_it_holds_nothing(event: Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "curve", lambda event: pytest.fail("a curve was begun"))
    inside = [True, False] * 50
    seen = Evidence(game=GAME, attack="peek", score=inside, inside=inside, run=range(100), design="paired")
    release = Release(value=1, source="x", claims=(Claim(game=GAME, event=event),), evidence=(seen,))
    assert effort([event]) > MOST_EFFORT
    with pytest.raises(UnsupportedEvent, match="not worked out for a document"):
        ceiling_of(event)
    assert appraise(seen, release.claims).outcome == "no ceiling"
    (claimed,) = ClaimedEpsilon(name="epsilon", line=1, delta=1e-6, limit=1e9).judge(release)
    assert claimed.outcome == "failed"
    assert [each.outcome for each in Unrefuted(name="claims-hold", line=1).judge(release)] == []


def test_what_is_merged_or_equal_counts_once() -> None:
    gaussian, laplace = [Gaussian(1.0 + place) for place in range(99)], [Laplace(2.0)] * 99
    assert effort([Sequence(gaussian)]) == effort([Gaussian(1.0)])
    assert effort(laplace) == effort([Repeat(Laplace(2.0), 99)]) == effort([Laplace(2.0)]) == effort([Pure(1.0)])
    assert effort([Poisson(0.1, Repeat(Gaussian(1.0), 9))]) == effort([RandomAllocation(Laplace(1.0), 9)])
    assert effort([Zero()]) == effort([]) == 0
