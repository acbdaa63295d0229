"""How far a run is: its plan, its key, and what was paid. A checkpoint keeps this beside model and optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from discreet.accounting import curve
from discreet.learn.sgd.plan import Plan


@dataclass
class State:
    """The numbers of a run that change while it goes on.

    A run has one key at a time, which draws batches and noise from step `start` on (see resume.py). Until a run is paid for it
    has no key.
    """

    plan: Plan
    divisor: float = 0.0  # by which sums are divided; 0: units will be counted with noise when the run begins
    number: int = 0  # steps taken
    key: bytes = b""
    repeatable: bool = False  # whether the key came from a seeded source, which only tests may use
    entries: tuple[str, ...] = ()  # of the ledger that paid
    start: int = 0  # the first step under the present key
    used: int = 0  # rounds that were released under earlier keys
    extra: int = 0  # rounds beside the plan
    noted: int = 0  # lines that the journal had when the checkpoint was written

    @property
    def begun(self) -> bool:
        """Whether the run was paid for and has its key."""
        return bool(self.key)

    @property
    def done(self) -> bool:
        return self.number >= self.plan.steps

    def spent(self) -> float:
        """Epsilon at the plan's delta for the steps taken so far."""
        if not self.begun:
            return 0.0
        rounds = self.used + self.plan.sampler.rounds(self.start, self.number)
        return float(curve(self.plan.of_rounds(rounds)).epsilon(self.plan.delta))

    def state(self) -> dict[str, Any]:
        """In the form in which a checkpoint holds it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "plan": self.plan.document(), "entries": list(self.entries)}

    def restore(self, document: Mapping[str, Any]) -> None:
        """Take over what a checkpoint of the same plan holds."""
        for field in fields(self):
            if field.name != "plan":
                setattr(self, field.name, document[field.name])
        self.entries = tuple(document["entries"])
