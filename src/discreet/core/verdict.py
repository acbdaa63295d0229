"""A verdict: one claim against one piece of evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from discreet.core import check
from discreet.errors import InvalidValue

OUTCOMES = ("holds", "refuted", "warning", "no ceiling", "incomparable", "inconclusive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the evidence says of the claim, at a confidence.

    `ceiling` is the claimed epsilon and `floor` the measured lower bound, both at `delta`: that at which the claim was
    refuted, or one at which perfect guesses would have refuted it. `reason` is one sentence. A `warning` is evidence above the
    claim from a design that cannot refute; `inconclusive` means too few targets, and nothing else.
    """

    outcome: str
    reason: str
    confidence: float
    delta: float
    ceiling: float
    floor: float

    def __post_init__(self) -> None:
        check.word("outcome", self.outcome, OUTCOMES)
        check.word("reason", self.reason)
        check.open_fraction("confidence", self.confidence)
        check.small_fraction("delta", self.delta)
        for name in ("ceiling", "floor"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise InvalidValue(f"{name} must be an epsilon; got {check.shown(value)}.")

    def to_json(self) -> dict[str, Any]:
        """The verdict as data; an epsilon that is infinite or was not computed is null."""
        document: dict[str, Any] = {"outcome": self.outcome, "reason": self.reason, "confidence": self.confidence}
        document["delta"] = self.delta
        for name in ("ceiling", "floor"):
            value = float(getattr(self, name))
            document[name] = value if math.isfinite(value) else None
        return document

    def __str__(self) -> str:
        return f"{self.outcome}: {self.reason}"

    def __bool__(self) -> bool:
        raise TypeError("A verdict is not true or false; compare its outcome: verdict.outcome == 'holds'.")
