"""The card of a ledger: a picture that falls as the budget does, the same in words, and nothing that runs."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from discreet import Ledger, record
from discreet.accounting import Approximate, Gaussian, Pure
from discreet.charts import card
from discreet.core import Claim, Game
from discreet.ledger.summary import unused_after

CLAIM = Claim(game=Game(record(), {"answers"}), event=Gaussian(20.0))
EVIL = "<script>alert('x')</script>"


def test_it_burns_down(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
        ledger.reserve("people", CLAIM).settle()
        ledger.reserve("people", CLAIM).cancel("did_not_run")
        ledger.reserve("people", CLAIM)
        found = ledger.balance("people")
        left = unused_after(found, ledger.history("people"))
        one = 1 - found.spent.divergence / 2 / found.limit.divergence
        two = 1 - found.spent.divergence / found.limit.divergence
        assert left == [1, 1, one, one, two, one, two]
        assert unused_after(found, ledger.history("people")[-2:]) == [one, one, two]  # what it gave back began earlier
        page = card(ledger)
    root = ET.fromstring(page)
    (picture,) = root.iter("{http://www.w3.org/2000/svg}svg")
    assert picture.get("role") == "img"
    told = picture.find("{http://www.w3.org/2000/svg}desc")
    assert told is not None
    assert "Budget ε = 1 at δ = 1e-6" in (told.text or "")


def test_it_burns_down_by_the_better_of_two_sums(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=2.0, delta=1e-6)
        for _ in range(3):
            ledger.reserve("people", Claim(game=CLAIM.game, event=Pure(0.5)))
        ledger.reserve("people", Claim(game=CLAIM.game, event=Approximate(0.25, 1e-7)))
        found = ledger.balance("people")
        assert found.spent.divergence > found.limit.divergence
        left = unused_after(found, ledger.history("people"))
        assert left[2:] == [0.75, 0.5, 0.25, 0.125]
        assert "Of the part of delta that is reserved for charges with a failure probability, 20 % is used." in card(ledger)


def test_names_are_escaped_and_periods_are_told(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert "No sources yet" in card(ledger)
        ledger.open(EVIL, unit=record(), epsilon=1.0, delta=1e-6, by_period=True)
        ledger.renew(EVIL, period="2026-11", by="owner", reason="new rows")
        page = card(ledger)
    assert "<script" not in page
    assert "for each of its periods" in page
    assert len(list(ET.fromstring(page).iter("{http://www.w3.org/2000/svg}svg"))) == 1
