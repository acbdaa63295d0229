"""What a run pays: its plan before the first draw, and the rounds that it takes again. Nothing is ever given back.

Each charge starts as soon as it is made, so that it cannot be cancelled, and is settled when the run has ended, by whichever
process ends it: a run that was killed goes on in another one, which knows the charges by their ids.
"""

from __future__ import annotations

from typing import Any

from discreet.accounting import curve
from discreet.core import Claim, Event
from discreet.errors import BudgetExceeded
from discreet.learn.sgd.plan import Plan

FINEST = 1e18  # a ledger keeps probabilities of failure in units of 1 / FINEST


class Payments:
    """The charges of one run, by the ids of their ledger entries."""

    def __init__(self, ledger: Any, source: str, account: str | None) -> None:
        self.ledger, self.source, self.account = ledger, source, account
        self.entries: tuple[str, ...] = ()

    def first(self, plan: Plan) -> tuple[str, ...]:
        """Pay for the whole plan."""
        return self._pay(plan.claim(), plan.asked())

    def again(self, plan: Plan, rounds: int) -> tuple[str, ...]:
        """Pay for rounds beside the plan, where there is room for them; else nothing happens."""
        claim = plan.claim()
        event = plan.again(rounds)
        try:
            return self._pay(Claim(game=claim.game, event=event, assumptions=claim.assumptions), self._pair(plan, event))
        except BudgetExceeded as error:
            error.add_note(
                "discreet: Steps that were released are to be taken again with fresh noise, and the budget does not hold them. "
                'Nothing was drawn: the run can still go on just as it began (resume="exact"), or when the budget was raised.'
            )
            raise

    def settle(self) -> None:
        """The run has ended. What was settled before stays so."""
        for entry in self.entries:
            self.ledger.settle(entry)

    def _pay(self, claim: Claim, asked: tuple[float, float]) -> tuple[str, ...]:
        charge = self.ledger.reserve(self.source, claim, account=self.account, asked=asked)
        charge.started()
        self.entries = (*self.entries, charge.id)
        return self.entries

    def _pair(self, plan: Plan, event: Event) -> tuple[float, float]:
        """The (epsilon, delta) to charge repeated rounds as, where they do not fit otherwise: at the plan's delta, or at what
        is left for pairs, of which the first charge may have taken most.
        """
        balance = self.ledger.balance(self.source, self.account)
        left = min(each.left.failure for each in (balance, balance.whole) if each is not None) / FINEST
        delta = min(plan.delta, left * (1 - 1e-12)) if left > 0 else plan.delta  # with nothing left it is refused as it is
        return float(curve(event).epsilon(delta)), delta
