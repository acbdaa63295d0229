"""What "left" means: the largest epsilon of one more answer that the ledger admits, on every surface and for every reader."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from decimal import Decimal
from html import unescape
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from discreet import Ledger, report
from discreet.accounting import Gaussian, calibrate
from discreet.cli import app
from discreet.core import Claim, Event, Game, Pure, Release, record
from discreet.errors import BudgetExceeded
from discreet.figures import down
from discreet.ledger.summary import sentence, shares, used_in_percent

EVENTS: tuple[tuple[Event, ...], ...] = (
    (), (Pure(0.7),), (Gaussian(calibrate(Gaussian, 0.5, 1e-6)),) * 12, (Pure(0.1),) * 12, (Pure(1.0), Pure(0.3)),
)  # fmt: skip


def claim(event: Event) -> Claim:
    return Claim(game=Game(record(), {"answers"}), event=event)


@pytest.mark.parametrize("events", EVENTS)
@pytest.mark.parametrize("account", ["default", "ann"])
def test_left_is_what_one_more_answer_may_have_on_every_surface(
    events: tuple[Event, ...], account: str, tmp_path: Path
) -> None:
    place = tmp_path / "ledger.db"
    with Ledger(place) as ledger:
        ledger.open("people", unit=record(), epsilon=4.2, delta=1e-6)
        ledger.share("people", "ann", 0.6, by="owner")
        entry = None
        for event in events:
            with ledger.reserve("people", claim(event), account=account) as paid:
                entry = paid
        left = {name: ledger.balance("people", name).epsilon_left for name in (None, "ann", "default")}
        shown = down(left[None])
        balance = ledger.balance("people")
        release = Release(value=1, source="people", claims=tuple(map(claim, events[-1:])) or (claim(Pure(1.0)),), entry=entry)
        page = " ".join(unescape(re.sub(r"<[^>]+>", " ", report.html(release, ledger=ledger))).split())
        document = report.document(release, ledger=ledger)
        show = ["ledger", "show", "people", "--ledger", str(place)]
        texts = [str(balance), sentence(balance), CliRunner().invoke(app, show).stdout]
        told = json.loads(CliRunner().invoke(app, [*show, "--json"]).stdout)

        for text in texts:
            assert re.search(rf"(?<![\d.]){re.escape(shown)} (left|in one more answer)", text), (shown, text)
        assert told["left"]["epsilon"] == left[None]
        for each in told["accounts"]:
            assert each["left"]["epsilon"] == left[each["account"]]
        if entry is not None:
            assert f"ε {shown} in one more answer" in page
            assert document["ledger"][0]["left"] == {"epsilon": left[None]}
        assert not any(re.search(r"%\s*(is )?left", text) for text in [*texts, page])

        for name in ("ann", "default"):
            with pytest.raises(BudgetExceeded) as refused:
                ledger.reserve("people", claim(Pure(left[name] * 1.01 + 1e-6)), account=name)
            assert refused.value.left == pytest.approx(left[name])
        if left[account]:
            ledger.reserve("people", claim(Pure(left[account])), account=account)


@pytest.mark.parametrize("seed", range(8))
def test_shares_add_up_as_they_are_shown(seed: int, tmp_path: Path) -> None:
    """Share - used = unused in every line, and the lines add up to the budget, to the last digit that is shown."""
    draw = Random(seed)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=draw.choice([0.3, 4.2, 20.0]), delta=1e-6)
        names = [f"analyst {place}" for place in range(draw.randint(1, 6))]
        for name in names:
            ledger.share("people", name, draw.choice([1 / 7, 0.1, 0.0123456]), by="owner")
        for _ in range(draw.randint(0, 12)):
            event = Pure(draw.uniform(0.01, 0.3)) if draw.random() < 0.5 else Gaussian(draw.uniform(20, 90))
            with suppress(BudgetExceeded):
                ledger.reserve("people", claim(event), account=draw.choice([*names, "default"]))
        balance, show = ledger.balance("people"), ["ledger", "show", "people", "--ledger", str(tmp_path / "ledger.db")]
        parts = shares(balance)
        assert [each.account for each in parts[:-1]] == ledger.accounts("people")
        assert [each.left for each in parts[:-1]] == [ledger.left("people", each.account) for each in parts[:-1]]
        lines = [each.told() for each in parts]
        number = [[Decimal(cell.removesuffix(" %")) for cell in line[1:4]] for line in lines]
        assert all(given - used == unused for given, used, unused in number)
        assert [sum(column) for column in zip(*number[:-1])] == number[-1]
        assert number[-1][0] == 100
        assert lines[-1][2] == used_in_percent(balance)
        for text in (sentence(balance), text_of_cli := CliRunner().invoke(app, show).stdout):
            assert re.search(rf"[Uu]sed:? +{re.escape(lines[-1][2])} of", text)
        for line in lines:
            assert re.search(r" {2,}".join(map(re.escape, line)), text_of_cli), (line, text_of_cli)
        release = Release(value=1, source="people", claims=(claim(Pure(0.1)),))
        page = " ".join(unescape(re.sub(r"<[^>]+>", " ", report.html(release, ledger=ledger))).split())
        for line in lines:
            assert " ".join(line) in page
        assert report.document(release, ledger=ledger)["ledger"][0]["shares"] == [each.to_json() for each in parts]


def test_after_is_the_balance_that_a_charge_leaves(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=3.0, delta=1e-6)
        ledger.share("people", "ann", 0.5, by="owner")
        charge = ledger.reserve("people", claim(Pure(0.4)), account="ann")
        before, paid = ledger.balance("people", "ann"), ledger.balance("people").spent
        ledger.reserve("people", claim(Pure(0.4)), account="ann")
        assert charge.id
        assert before.after(paid) == ledger.balance("people", "ann")
