"""A budget that remembers: answers until it is spent, a refusal, and a check of the whole history."""

import tempfile
from pathlib import Path

import discreet
from discreet.errors import BudgetExceeded
from discreet.ledger import question_key
from discreet.noise import GaussianNoise

ages = {"ann": 34, "bob": 51, "cat": 29, "dan": 67, "eve": 45}
person = discreet.user("name", rows=1)


def ask(ledger: discreet.Ledger, older_than: int) -> str:
    """How many are older? Charged before the ages are looked at."""
    count = GaussianNoise(sigma=10, sensitivity=1, size=1, unit=person)
    charge = ledger.reserve("ages", count.claims(), key=question_key({"older than": older_than}))
    with charge as entry:
        if not charge.repeated:
            charge.settle(answer=int(count.run(sum(age > older_than for age in ages.values()))))
    return f"older than {older_than}: {charge.answer:4} (entry {entry}{', again' if charge.repeated else ''})"


with tempfile.TemporaryDirectory() as folder, discreet.Ledger(Path(folder) / "ledger.db") as ledger:
    ledger.open("ages", unit=person, epsilon=1.0, delta=1e-6)
    try:
        for older_than in (30, 30, 40, 50, 60, 70):
            print(ask(ledger, older_than))
            print(f"    {ledger.balance('ages')}")
    except BudgetExceeded as refusal:
        print(refusal)
    ledger.raise_budget("ages", epsilon=2.0, delta=1e-6, by="the owner", reason="a second study")
    print(ask(ledger, 70))
    print(f"{len(ledger.history())} entries; the last is {ledger.verify()}")
