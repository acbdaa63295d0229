"""Plays the game: worlds, canaries, bounds, verdict.

`discreet.audit` is this package and also the function: `discreet.audit(mechanism, attack, worlds, runs=…)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from discreet.audit.appraisal import Appraisal, appraise
from discreet.audit.bounds import METHODS, curve_refuted, epsilon_at_least, epsilon_lower_bound
from discreet.audit.conformance import check_attack, check_mechanism
from discreet.audit.distinguish import Witness, learn
from discreet.audit.judge import verdict
from discreet.audit.play import audit
from discreet.audit.power import canaries_needed
from discreet.audit.rates import RateAt, rate_at, rates, roc, tpr_interval
from discreet.audit.readout import Readout
from discreet.audit.replay import Question, replay
from discreet.audit.worlds import Canaries, Pair
from discreet.core import Evidence, Roc

__all__ = [
    "METHODS",
    "Appraisal",
    "Canaries",
    "Pair",
    "Question",
    "RateAt",
    "Readout",
    "Roc",
    "Witness",
    "appraise",
    "audit",
    "canaries_needed",
    "check_attack",
    "check_mechanism",
    "curve_refuted",
    "epsilon_at_least",
    "epsilon_lower_bound",
    "learn",
    "rate_at",
    "rates",
    "replay",
    "roc",
    "tpr_interval",
    "verdict",
]


class _Callable(ModuleType):
    """So that `discreet.audit(…)` plays the game."""

    def __call__(self, *args: Any, **named: Any) -> Evidence:
        return audit(*args, **named)


sys.modules[__name__].__class__ = _Callable
