"""Budgets that survive crashes and concurrent use: reserve before reading, settle after, verify at any time."""

from discreet.ledger.amount import Amount
from discreet.ledger.balance import Balance
from discreet.ledger.chain import Entry
from discreet.ledger.charge import Charge
from discreet.ledger.ledger import Ledger, question_key
from discreet.ledger.opening import LedgerLike, as_ledger, opened
from discreet.ledger.payment import Payment
from discreet.ledger.seam import Replay, open_charge, release

__all__ = [
    "Amount",
    "Balance",
    "Charge",
    "Entry",
    "Ledger",
    "LedgerLike",
    "Payment",
    "Replay",
    "as_ledger",
    "open_charge",
    "opened",
    "question_key",
    "release",
]
