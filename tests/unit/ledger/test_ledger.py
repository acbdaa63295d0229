"""Opening, sharing, reserving, settling, cancelling, raising: what each does and refuses."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from discreet import Ledger, Release, record, user
from discreet.accounting import Approximate, Filter, Gaussian, NonPrivate, Pure
from discreet.core import Claim, Event, Game, Unit
from discreet.errors import BudgetExceeded, InvalidValue
from discreet.ledger import Amount, question_key
from discreet.ledger.amount import MOST


def claim(event: Event, unit: Unit | None = None) -> Claim:
    return Claim(game=Game(unit or record(), {"answers"}), event=event)


SMALL = claim(Gaussian(20.0))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "ledger.db")
    made.open("people", unit=record(), epsilon=1.0, delta=1e-6, failure=1e-7)
    return made


def kinds(ledger: Ledger) -> list[str]:
    return [entry.kind for entry in ledger.history()]


def test_a_source_has_the_limits_of_the_filter(ledger: Ledger) -> None:
    found, budget = ledger.balance("people"), Filter(1.0, 1e-6, failure=1e-7)
    assert found.order == budget.order
    assert found.limit == (budget.limit, 10**9, budget.failure_limit // 10**12)
    assert found.spent == (0, 0, 0)
    assert (ledger.spent("people"), ledger.left("people")) == (0.0, 1.0)


def test_opening_again_changes_nothing(ledger: Ledger) -> None:
    ledger.reserve("people", SMALL)
    again = ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6, failure=1e-7)
    assert again.spent.divergence > 0
    assert kinds(ledger) == ["open", "reserve"]


@pytest.mark.parametrize(
    "other", [{"epsilon": 2.0}, {"delta": 1e-5}, {"failure": 0.0}, {"unit": record("replace")}, {"fingerprint": "abc"}]
)
def test_opening_otherwise_is_refused(ledger: Ledger, other: dict[str, Any]) -> None:
    asked = {"unit": record(), "epsilon": 1.0, "delta": 1e-6, "failure": 1e-7, **other}
    with pytest.raises(InvalidValue, match=r"people is open with epsilon 1, .*raise_budget"):
        ledger.open("people", **asked)


def test_the_same_data_has_one_budget(ledger: Ledger) -> None:
    ledger.open("visits", unit=record(), epsilon=1.0, delta=1e-6, fingerprint="sha256:1")
    with pytest.raises(InvalidValue, match="already, under the name 'visits'"):
        ledger.open("visits again", unit=record(), epsilon=1.0, delta=1e-6, fingerprint="sha256:1")
    assert ledger.sources() == ["people", "visits"]


def test_a_budget_beyond_counting_is_refused(ledger: Ledger) -> None:
    with pytest.raises(InvalidValue, match=r"epsilon must be below about 4611.*got 1e\+06"):
        ledger.open("all", unit=record(), epsilon=1e6, delta=1e-6)
    assert ledger.open("much", unit=record(), epsilon=4000.0, delta=1e-6).limit.divergence <= MOST


def test_a_charge_is_spent_before_its_block_and_settled_after(ledger: Ledger) -> None:
    charge = ledger.reserve("people", SMALL)
    before = ledger.balance("people").spent
    assert before == charge.amount
    with charge as entry:
        assert entry == charge.id
        assert ledger.balance("people").spent == before
    assert ledger.balance("people").spent == before
    assert kinds(ledger) == ["open", "reserve", "settle"]
    assert Release(value=1, source="people", claims=(SMALL,), entry=entry).entry == f"2-{ledger.history()[1].hash[:16]}"


def test_an_exception_gives_nothing_back_and_is_not_told(ledger: Ledger) -> None:
    with pytest.raises(RuntimeError), ledger.reserve("people", SMALL):
        raise RuntimeError("row 17 holds ann")
    assert ledger.spent("people") > 0
    assert ledger.history()[-1].body == {"outcome": "failed"}
    assert not any("ann" in line for line in ledger.export())


def test_what_never_ran_can_be_given_back_once(ledger: Ledger) -> None:
    charge = ledger.reserve("people", SMALL)
    charge.cancel("did_not_run")
    assert ledger.balance("people").spent == (0, 0, 0)
    assert ledger.balance("people", "default").spent == (0, 0, 0)
    with pytest.raises(InvalidValue, match="was cancelled, so nothing can be given back"):
        charge.cancel("did_not_run")
    with pytest.raises(InvalidValue, match="has ended already"), charge:
        pass
    with pytest.raises(InvalidValue, match="has ended already"):
        charge.settle()


def test_what_started_cannot(ledger: Ledger) -> None:
    charge = ledger.reserve("people", SMALL)
    with charge, pytest.raises(InvalidValue, match="was started, so nothing can be given back"):
        charge.cancel("did_not_run")
    another = ledger.reserve("people", SMALL)
    another.started()
    with pytest.raises(InvalidValue, match="was started"):
        another.cancel("withdrawn")
    with pytest.raises(InvalidValue, match="reason must be one of did_not_run"):
        ledger.reserve("people", SMALL).cancel("the answer was boring")
    assert kinds(ledger) == ["open", "reserve", "settle", "reserve", "reserve"]


def test_a_refusal_spends_nothing_and_is_logged(ledger: Ledger) -> None:
    with pytest.raises(
        BudgetExceeded,
        match=r"people has about epsilon 1 left of 1 for one more question that has no pure epsilon \(delta 1e-6\); this "
        r"one is worth about \d.* \(divergence \d.* is left at order \d.*Add noise, or ask its owner",
    ) as told:
        ledger.reserve("people", claim(Gaussian(1.0)))
    assert told.value.asked > told.value.left > 0
    assert ledger.spent("people") == 0
    last = ledger.history()[-1]
    assert (last.kind, last.body["reason"]) == ("refuse", str(told.value))


def test_failures_have_their_own_limit(ledger: Ledger) -> None:
    tiny = claim(Approximate(0.001, 6e-8))
    ledger.reserve("people", tiny)
    with pytest.raises(BudgetExceeded, match="people has failure probability"):
        ledger.reserve("people", tiny)
    assert ledger.balance("people").spent.failure == 60_000_000_000


def test_what_has_no_bound_is_refused_and_logged(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded, match="NonPrivate promises nothing") as told:
        ledger.reserve("people", claim(NonPrivate()))
    assert (told.value.asked, told.value.left) == (float("inf"), 1.0)
    assert kinds(ledger) == ["open", "refuse"]
    with pytest.raises(BudgetExceeded):
        ledger.reserve("people", claim(Pure(1e300)))
    ledger.verify()


def test_another_unit_is_refused_with_the_reason(ledger: Ledger) -> None:
    both = (SMALL, claim(Gaussian(20.0), user("id", rows=2)))
    with pytest.raises(InvalidValue, match=r"budget for one record .*this claim is about one user .*says nothing"):
        ledger.reserve("people", both)
    assert ledger.spent("people") == 0
    assert kinds(ledger) == ["open", "refuse"]


def test_several_claims_are_charged_together(ledger: Ledger) -> None:
    alone = ledger.reserve("people", SMALL).amount.divergence
    assert ledger.reserve("people", [SMALL, SMALL, SMALL]).amount.divergence == 3 * alone


@pytest.mark.parametrize("claims", [(), None, "claims", [1], Gaussian(1.0)])
def test_only_claims_can_be_charged(ledger: Ledger, claims: Any) -> None:
    with pytest.raises(InvalidValue, match="claims must be one or more claims"):
        ledger.reserve("people", claims)


def test_accounts_share_one_budget(ledger: Ledger) -> None:
    whole = ledger.balance("people").limit
    ann = ledger.share("people", "ann", 0.25, by="owner")
    assert ann.limit == Amount(*(limit // 4 for limit in whole))
    assert ledger.balance("people", "default").limit.divergence == whole.divergence - ann.limit.divergence
    assert ledger.accounts("people") == ["ann", "default"]
    charge = ledger.reserve("people", SMALL, account="ann")
    assert ledger.balance("people", "ann").spent == ledger.balance("people").spent == charge.amount
    with pytest.raises(BudgetExceeded, match=r"people \(account ann\) has about epsilon .* left of its 25 % of 1 for"):
        ledger.reserve("people", claim(Gaussian(8.0)), account="ann")
    ledger.reserve("people", claim(Gaussian(8.0)))
    with pytest.raises(BudgetExceeded, match=r"people \(account default\) has 0\.\d+ of the budget left to give") as told:
        ledger.share("people", "bob", 0.8, by="owner")
    assert told.value.left < told.value.asked == 0.8
    ledger.share("people", "bob", told.value.left * 0.999, by="owner")
    with pytest.raises(InvalidValue, match="people has no account 'eve'"):
        ledger.reserve("people", SMALL, account="eve")
    with pytest.raises(InvalidValue, match="account default has what no other"):
        ledger.share("people", "default", 0.1, by="owner")
    ledger.verify()


def test_an_unknown_source_says_what_to_do(ledger: Ledger) -> None:
    with pytest.raises(InvalidValue, match=r"no source 'others'. Open it first"):
        ledger.reserve("others", SMALL)


def test_a_budget_is_raised_in_the_open(ledger: Ledger) -> None:
    order = ledger.balance("people").order
    raised = ledger.raise_budget("people", epsilon=2.0, delta=1e-6, by="the owner", reason="a second study")
    assert raised.limit.divergence == Filter(2.0, 1e-6, failure=1e-7, order=order).limit
    assert ledger.balance("people", "default").limit == raised.limit
    last = ledger.history()[-1]
    assert (last.kind, last.body["by"], last.body["reason"]) == ("raise", "the owner", "a second study")
    for epsilon in (1.0, 2.0):
        ledger.open("people", unit=record(), epsilon=epsilon, delta=1e-6, failure=1e-7)
    with pytest.raises(InvalidValue, match="can only be raised"):
        ledger.raise_budget("people", epsilon=1.5, delta=1e-6, by="the owner", reason="regret")
    with pytest.raises(InvalidValue, match="reason must be a non-empty string"):
        ledger.raise_budget("people", epsilon=3.0, delta=1e-6, by="the owner", reason="")
    ledger.verify()


def test_an_identical_question_is_answered_free(ledger: Ledger) -> None:
    key = question_key({"sql": "SELECT count(*) FROM people"})
    with ledger.reserve("people", SMALL, key=key) as first:
        pass  # settled without an answer: nothing to give again
    with (charge := ledger.reserve("people", SMALL, key=key)) as second:
        assert not charge.repeated
        charge.settle(answer={"count": 412, "interval": (400.5, 424)})
    spent = ledger.spent("people")
    with (again := ledger.reserve("people", SMALL, key=key)) as third:
        assert again.repeated
        assert again.amount == (0, 0, 0)
        assert again.answer == {"count": 412, "interval": [400.5, 424]}
    assert first != second == third
    assert ledger.spent("people") == spent
    with pytest.raises(InvalidValue, match="answered by an earlier entry"):
        again.cancel("withdrawn")
    assert not ledger.reserve("people", claim(Gaussian(21.0)), key=key).repeated  # other noise is another question
    assert not ledger.reserve("people", SMALL).repeated
    ledger.verify()


@pytest.mark.parametrize("answer", [float("nan"), {1: 2}, {1, 2}, b"bytes", object(), {"a": [float("inf")]}])
def test_answers_are_json(ledger: Ledger, answer: Any) -> None:
    charge = ledger.reserve("people", SMALL, key="k")
    with pytest.raises(InvalidValue, match="The ledger keeps JSON"):
        charge.settle(answer=answer)
    charge.settle(answer="something else")
    ledger.verify()


def test_the_export_carries_its_own_proof(ledger: Ledger) -> None:
    ledger.reserve("people", SMALL)
    previous = ""
    for line in ledger.export():
        document = json.loads(line)
        mark = document.pop("hash")
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        assert hashlib.sha256(text.encode()).hexdigest() == mark
        assert document["previous"] == previous
        previous = mark
    assert ledger.verify().endswith(previous[:16])


def renewed(ledger: Ledger, period: str) -> str:
    return ledger.renew("visits", period=period, by="owner", reason="the visits of that month are new").source


def test_each_period_has_a_budget_of_its_own(ledger: Ledger) -> None:
    ledger.open("visits", unit=record(), epsilon=1.0, delta=1e-6, by_period=True)
    with pytest.raises(InvalidValue, match=r"visits has a budget for each period and none itself. Name a period, as visits@"):
        ledger.reserve("visits", SMALL)
    october, november = renewed(ledger, "2026-10"), renewed(ledger, "2026-11")
    assert (october, november) == ("visits@2026-10", "visits@2026-11")
    charge = ledger.reserve(october, SMALL, key="q")
    charge.settle(answer=1)
    assert ledger.balance(october).spent == charge.amount
    assert ledger.balance(november).spent == ledger.balance("visits").spent == ledger.balance("visits").limit == (0, 0, 0)
    assert ledger.balance(november).limit == Amount(Filter(1.0, 1e-6, failure=5e-7).limit, 10**9, 5 * 10**11)
    assert not ledger.reserve(november, SMALL, key="q").repeated  # another month is another question
    ledger.share(november, "ann", 0.5, by="owner")
    ledger.raise_budget(november, epsilon=2.0, delta=1e-6, by="owner", reason="more")
    ledger.verify()


def test_a_period_is_renewed_once_and_signed(ledger: Ledger) -> None:
    ledger.open("visits", unit=record(), epsilon=1.0, delta=1e-6, by_period=True)
    name = renewed(ledger, "2026-11")
    ledger.reserve(name, SMALL)
    spent = ledger.spent(name)
    assert ledger.renew("visits", period="2026-11", by="another", reason="more, please").spent.divergence > 0
    assert ledger.spent(name) == spent > 0
    assert kinds(ledger) == ["open", "open", "renew", "reserve"]
    assert ledger.history()[2].body["by"] == "owner"
    for by, reason in (("", "why"), ("who", "")):
        with pytest.raises(InvalidValue, match="must be a non-empty string"):
            ledger.renew("visits", period="2026-12", by=by, reason=reason)


def test_only_what_was_opened_by_period_is_renewed(ledger: Ledger) -> None:
    with pytest.raises(InvalidValue, match="people has one budget, whenever it is asked"):
        ledger.renew("people", period="2026-11", by="owner", reason="hope")
    for change in ({"by_period": True}, {"by_period": True, "epsilon": 2.0}):
        with pytest.raises(InvalidValue, match="asked to open otherwise"):
            ledger.open("people", **{"unit": record(), "epsilon": 1.0, "delta": 1e-6, "failure": 1e-7, **change})
    with pytest.raises(InvalidValue, match="source must not hold @"):
        ledger.open("people@2026-11", unit=record(), epsilon=1.0, delta=1e-6)
    ledger.open("visits", unit=record(), epsilon=1.0, delta=1e-6, by_period=True)
    with pytest.raises(InvalidValue, match="period must not hold @"):
        ledger.renew("visits", period="2026@11", by="owner", reason="why")
    for refused in (
        lambda: ledger.raise_budget("visits", epsilon=2.0, delta=1e-6, by="owner", reason="more"),
        lambda: ledger.share("visits", "ann", 0.5, by="owner"),
    ):
        with pytest.raises(InvalidValue, match="none itself"):
            refused()
    ledger.verify()


def test_loading_the_ledger_loads_nothing_heavy() -> None:
    code = "import sys, discreet.ledger; print(*{'scipy', 'torch', 'pandas', 'sklearn', 'duckdb'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_plain_epsilons_add_up(ledger: Ledger) -> None:
    """Three questions of a third: no single order of divergence would hold them, their sum does."""
    ledger.open("visits", unit=record(), epsilon=1.5, delta=1e-6)
    for asked in range(3):
        assert ledger.left("visits") == pytest.approx(1.5 - asked / 2)
        ledger.reserve("visits", claim(Pure(0.5)))
    found = ledger.balance("visits")
    assert found.spent.divergence > found.limit.divergence
    assert found.spent.epsilon == found.limit.epsilon == 1_500_000_000
    assert (found.epsilon_spent, found.epsilon_left, found.part_spent, found.left.divergence) == (1.5, 0.0, 1.0, 0)
    with pytest.raises(BudgetExceeded) as told:
        ledger.reserve("visits", claim(Pure(0.5)))
    assert str(told.value) == (
        "visits has about epsilon 0 left of 1.5 for one more question (delta 1e-6); this one asks 0.5. "
        "Ask its owner to raise the budget: discreet ledger show visits"
    )
    ledger.verify()


def test_a_refusal_says_what_would_fit(ledger: Ledger) -> None:
    ledger.open("our people", unit=record(), epsilon=1.5, delta=1e-6)
    ledger.reserve("our people", claim(Pure(1.25)))
    with pytest.raises(BudgetExceeded) as told:
        ledger.reserve("our people", claim(Pure(0.5)))
    assert str(told.value) == (
        "our people has about epsilon 0.25 left of 1.5 for one more question (delta 1e-6); this one asks 0.5. "
        "Lower epsilon to 0.25, or ask its owner to raise the budget: discreet ledger show 'our people'"
    )
    assert (told.value.asked, told.value.left) == (0.5, 0.25)
    assert str(ledger.balance("our people")) == "our people: epsilon 0.25 left of 1.5 (delta 1e-6)"
    with pytest.raises(BudgetExceeded, match=r"asks 0\.2501\. Lower epsilon to 0\.25,"):  # never "0.25 left; asks 0.25"
        ledger.reserve("our people", claim(Pure(0.25 + 1e-8)))
    ledger.reserve("our people", claim(Pure(0.25)))


def test_noise_with_and_without_a_pure_epsilon_share_a_budget(ledger: Ledger) -> None:
    ledger.reserve("people", claim(Pure(0.5)))
    ledger.reserve("people", claim(Pure(0.25)))  # by their sum: the divergences are above their limit
    assert ledger.balance("people").left[:2] == (0, 250_000_000)
    with pytest.raises(BudgetExceeded, match="people has about epsilon 0 left of 1 for one more question that has no") as told:
        ledger.reserve("people", claim(Gaussian(1000.0)))
    assert told.value.asked > told.value.left == 0
    ledger.reserve("people", claim(Pure(0.25)))
    ledger.open("visits", unit=record(), epsilon=1.0, delta=1e-6)
    ledger.reserve("visits", claim(Gaussian(40.0)))
    assert 0.2 < ledger.left("visits") < 0.9  # what is left by divergence
    with pytest.raises(BudgetExceeded):
        ledger.reserve("visits", claim(Pure(0.9)))
    ledger.verify()


def test_a_refusal_says_whether_the_account_or_the_source_is_short(ledger: Ledger) -> None:
    """Ann spends divergences, so that the source can go by divergences only; then bob cannot go by his epsilons."""
    for name in ("ann", "bob"):
        ledger.share("people", name, 0.5, by="owner")
    ledger.reserve("people", claim(Gaussian(10.0)), account="ann")
    bob = ledger.balance("people", "bob")
    assert bob.holds(Amount(10**18, 500_000_000, 0))
    assert bob.epsilon_left == ledger.left("people") < 0.5
    with pytest.raises(BudgetExceeded, match=r"people as a whole has about epsilon 0\.\d+ left of 1 for one") as told:
        ledger.reserve("people", claim(Pure(0.5)), account="bob")
    assert told.value.left == bob.epsilon_left
    with pytest.raises(BudgetExceeded, match=r"people \(account bob\) has about epsilon .* left of its 50 % of 1 for"):
        ledger.reserve("people", claim(Pure(0.6)), account="bob")
    ledger.reserve("people", claim(Pure(bob.epsilon_left)), account="bob")
    assert str(ledger.balance("people", "bob")) == "people (account bob): epsilon 0 left of its 50 % of 1 (delta 1e-6)"
    ledger.verify()


def test_half_of_delta_is_for_events_that_may_fail_unless_said_otherwise(ledger: Ledger) -> None:
    found = ledger.open("visits", unit=record(), epsilon=1.0, delta=1e-6)
    assert (found.failure, found.limit.failure) == (5e-7, 5 * 10**11)  # 5e-7 is a little less than it says
    ledger.reserve("visits", claim(Approximate(0.1, 4e-7)))
    assert ledger.balance("visits").failure_part == pytest.approx(0.8)
    assert ledger.open("visits", unit=record(), epsilon=1.0, delta=1e-6, failure=5e-7).spent.failure > 0
    ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)  # open with 1e-7, and nothing else was said
    ledger.open("none", unit=record(), epsilon=1.0, delta=1e-6, failure=0.0)
    with pytest.raises(BudgetExceeded, match="none has failure probability 0 left of 0"):
        ledger.reserve("none", claim(Approximate(0.1, 1e-12)))
    raised = ledger.raise_budget("visits", epsilon=1.0, delta=1e-5, by="owner", reason="more")
    assert raised.failure == pytest.approx(5e-6)
    assert ledger.open("visits", unit=record(), epsilon=1.0, delta=1e-5).failure == raised.failure


def test_all_limits_are_raised_and_none_is_lowered(ledger: Ledger) -> None:
    before = ledger.open("visits", unit=record(), epsilon=50.0, delta=1e-6)
    for _ in range(3):
        ledger.reserve("visits", claim(Pure(16.5)))
    assert ledger.balance("visits").spent.divergence > before.limit.divergence
    after = ledger.raise_budget("visits", epsilon=150.0, delta=1e-5, by="owner", reason="beyond what epsilons are added up to")
    assert after.limit.divergence > before.limit.divergence
    assert after.limit.failure > before.limit.failure
    assert after.limit.epsilon == before.limit.epsilon
    with pytest.raises(InvalidValue, match="can only be raised"):
        ledger.raise_budget("visits", epsilon=149.0, delta=1e-3, by="owner", reason="less of one and more of another")
    ledger.verify()


def test_sums_beyond_counting_are_refused_kindly(ledger: Ledger) -> None:
    """As after 46 million charges; what is noted of them is put there by hand, so that nothing else adds up."""
    ledger.open("visits", unit=record(), epsilon=1.0, delta=1e-6)
    full = MOST - 10**11 + 1
    ledger._store.write(
        lambda transaction: transaction.execute("UPDATE source SET epsilon_spent = ? WHERE name = 'visits'", (full,))
    )
    with pytest.raises(BudgetExceeded, match=r"more than a ledger counts .* about 4\.6e\+07 charges without"):
        ledger.reserve("visits", SMALL)
    ledger.reserve("visits", claim(Pure(0.01)))
    with pytest.raises(BudgetExceeded, match="more than a ledger counts"):
        ledger.reserve("visits", SMALL)
    assert ledger.history()[-1].kind == "refuse"
