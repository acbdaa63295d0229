"""Which attacks can run: what the attacker has, against what each attack needs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from discreet.attack.membership.attacks import ATTACKS, BY_NAME, MembershipAttack, Needs
from discreet.core import check
from discreet.errors import InvalidValue
from discreet.models import predict

MOST_QUERIED = 2e9  # numbers in all queries: beyond, "all" leaves an attack out, and says so
Attacks = Iterable[str | MembershipAttack[Any]] | str


@dataclass(frozen=True)
class Access:
    """What the attacker has: the target, a recipe for models like it, the rows in question or only other rows."""

    target: Any
    recipe: bool
    population: bool  # shadows are trained on other rows
    rows: int  # of known membership, on each side
    numeric: bool  # inputs are numbers
    size: int  # numbers in all inputs

    def lacks(self, needs: Needs) -> str | None:
        """Why an attack with these needs cannot run; None where it can."""
        gradients = predict.is_module(self.target)
        if (needs.numeric or needs.queries) and not self.numeric:
            return "needs inputs that are numbers; these hold text or objects."
        if needs.queries and gradients and any(hasattr(layer, "num_embeddings") for layer in self.target.modules()):
            return "disturbs inputs by noise; this target looks its inputs up by whole numbers."
        if needs.gradients and not gradients:
            return "needs to see the weights: give the target as a torch module."
        if needs.online and self.population:
            return "needs models trained on the rows in question; leave population out."
        if needs.shadows and not self.recipe:
            return "needs models like the target; say how they are trained: recipe=Recipe(…)."
        if self.rows < needs.known:
            return f"learns from known rows: it needs at least {needs.known} inside and outside; got {self.rows}."
        return None

    def choose(self, attacks: Attacks) -> list[MembershipAttack[Any]]:
        """The attacks asked for, by name or as objects; "all" means all that this access allows, but for very slow ones."""
        if attacks == "all":
            return self._affordable([attack for attack in ATTACKS if self.lacks(attack.needs) is None])
        chosen = [_attack(each) for each in ([attacks] if isinstance(attacks, str) else attacks)]
        refused = [attack for attack in chosen if self.lacks(attack.needs) is not None]
        if refused:
            raise InvalidValue(f"{', '.join(attack.name for attack in refused)} {self.lacks(refused[0].needs)}")
        return chosen

    def _affordable(self, chosen: list[MembershipAttack[Any]]) -> list[MembershipAttack[Any]]:
        """Without attacks that would query the target for hours; by name they still run."""
        slow = [attack for attack in chosen if self.size * attack.needs.queries > MOST_QUERIED]
        if slow:
            names = " and ".join(f"{attack.name} ({attack.needs.queries} questions for each row)" for attack in slow)
            warnings.warn(f'{names} left out of "all" for so many rows; ask for it by name.', stacklevel=4)
        return [attack for attack in chosen if attack not in slow]


def _attack(attack: str | MembershipAttack[Any]) -> MembershipAttack[Any]:
    if not isinstance(attack, str) and isinstance(attack, MembershipAttack):
        return attack
    return BY_NAME[check.word("attacks", attack, tuple(BY_NAME))]
