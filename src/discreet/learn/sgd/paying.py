"""The charges of a run: its plan before the first draw, and the rounds that it repeats. Nothing is ever refunded.

Each charge starts as soon as it is made, so that it cannot be cancelled, and is settled when the run has ended, in whichever
process that happens: an interrupted run resumes in another one, which knows the charges by their ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from discreet.accounting import curve
from discreet.core import Claim, Event
from discreet.errors import BudgetExceeded
from discreet.learn.sgd.plan import Plan
from discreet.ledger import open_charge
from discreet.noise import discrete_laplace
from discreet.noise.source import open_source

FINEST = 1e18  # a ledger keeps probabilities of failure in units of 1 / FINEST


class Payments:
    """Charges a ledger for one run; without a ledger nothing is charged."""

    def __init__(self, ledger: Any, source: str, account: str | None) -> None:
        self.ledger, self.source, self.account = ledger, source, account

    def begin(self, plan: Plan, units: int, divisor: float) -> tuple[bytes, bool, float, tuple[str, ...]]:
        """Pay for the whole plan, then draw the key and, where the plan says so, count the units with noise.

        Returns the key, whether its source is repeatable, the divisor, and the ids of the ledger's entries.
        """
        entries = () if self.ledger is None else self._pay(plan.claim(), plan.asked())
        source = open_source()
        key = source.take(32)
        if plan.count_scale is not None:
            noisy = units + int(discrete_laplace(plan.count_scale, 1)[0])
            divisor = max(1.0, plan.sampler.rate * max(noisy, 1))
        return key, source.repeatable, divisor, entries

    def again(self, plan: Plan, rounds: int) -> tuple[str, ...]:
        """Pay for rounds beside the plan, where there is room for them; else nothing happens."""
        if self.ledger is None or not rounds:
            return ()
        claim, event = plan.claim(), plan.again(rounds)
        try:
            return self._pay(Claim(game=claim.game, event=event, assumptions=claim.assumptions), self._pair(plan, event))
        except BudgetExceeded as error:
            error.add_note(
                "discreet: Steps that were released are to be taken again with fresh noise, and the budget does not hold them. "
                'Nothing was drawn: the run can still go on just as it began (resume="exact"), or when the budget was raised.'
            )
            raise

    def settle(self, entries: Iterable[str], rank: int) -> None:
        """The run has ended: the first process settles its charges, which gives nothing back. What was settled stays so."""
        if self.ledger is not None and rank == 0:
            for entry in entries:
                self.ledger.settle(entry)

    def _pay(self, claim: Claim, asked: tuple[float, float]) -> tuple[str, ...]:
        charge = open_charge((claim,), source=self.source, ledger=self.ledger, account=self.account, asked=asked)
        charge.started()
        return (charge.id,)

    def _pair(self, plan: Plan, event: Event) -> tuple[float, float]:
        """The (epsilon, delta) as which repeated rounds are charged if they do not fit otherwise: at the plan's delta, or at
        the delta left for pairs, most of which the first charge may have used.
        """
        balance = self.ledger.balance(self.source, self.account)
        failure_left = min(part.left.failure for part in (balance, balance.whole) if part is not None) / FINEST
        delta = (
            min(plan.delta, failure_left * (1 - 1e-12)) if failure_left > 0 else plan.delta
        )  # with nothing left it is refused as it is
        return float(curve(event).epsilon(delta)), delta
