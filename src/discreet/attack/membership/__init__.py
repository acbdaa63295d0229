"""Membership inference: was this row in the training set?

    run.py               attacks on one target, with shadows and controls
    attacks.py           the attacks, each an object; run.py says which can run
    observation.py       what an attack may look at
    shadows.py           models like the target
    signals.py           what scores say about one label, and likelihood ratios against shadows
    bayes_lira.py        the default attack
    shokri.py            attack models learned from shadows; rows drawn from marginals
    query_synthesis.py   rows made by querying the target alone
    label.py             attacks that see labels alone
    quantile.py          how sure a model would be of a row it had not seen
    whitebox.py          attacks that see gradients; probes.py: what each layer knows of a row's label
    high_loss_screen.py  a screen without shadows
    per_record_risk.py   the risk of every record and group over many models
    controls.py          an overfit control, and a model that saw none of the rows
    canaries.py          a recipe audited in one training run
    federated.py         what servers and clients of a federation learn from rounds
    validation.py        what an attack is given, checked

`discreet.attack.membership` is this package and also the function: `discreet.attack.membership(target, recipe, …)`.
"""

import sys
from types import ModuleType
from typing import Any

from discreet.attack.membership.attacks import ATTACKS, MembershipAttack, Needs
from discreet.attack.membership.controls import Controls
from discreet.attack.membership.high_loss_screen import Screen, high_loss_screen
from discreet.attack.membership.observation import Comparison, Observation
from discreet.attack.membership.per_record_risk import RecordRisks, Share, groups_of, per_record_risk
from discreet.attack.membership.query_synthesis import Synthesised, query_synthesis
from discreet.attack.membership.run import MembershipResult, membership
from discreet.attack.membership.shadows import train_shadows
from discreet.attack.membership.shokri import from_marginals, marginals
from discreet.models import Recipe as Recipe
from discreet.models import Shadows as Shadows
from discreet.models import splits as splits

__all__ = [
    "ATTACKS",
    "Comparison",
    "Controls",
    "MembershipAttack",
    "MembershipResult",
    "Needs",
    "Observation",
    "RecordRisks",
    "Screen",
    "Share",
    "Synthesised",
    "from_marginals",
    "groups_of",
    "high_loss_screen",
    "marginals",
    "membership",
    "per_record_risk",
    "query_synthesis",
    "train_shadows",
]


class _Callable(ModuleType):
    """So that `discreet.attack.membership(…)` attacks."""

    def __call__(self, *args: Any, **named: Any) -> MembershipResult:
        return membership(*args, **named)


sys.modules[__name__].__class__ = _Callable
