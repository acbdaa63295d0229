"""Membership inference: was this row in the training set?

    recipe.py    how a model is built and trained
    shadow/      many models at once, each on its own half
    signals.py   what scores say about one label
    ratios.py    scores for membership from a target and its shadows
    shokri.py    attack models learned from shadows; rows drawn from marginals
    climb.py     rows made by asking the target alone
    label.py     what labels alone tell, of rows disturbed
    quantile.py  how sure a model would be of a row it had not seen
    tail.py      the cheapest screen, without a shadow
    whitebox.py  what gradients tell
    pulls.py     the gradient of every row at once
    probes.py    what each layer knows of a row's label
    exposed.py   who is exposed: the risk of every record and group over many models
    controls.py  a leaky twin, and a model that saw none of the rows
    learned.py   small networks for attacks that learn, many at once
    given.py     what an attack is given, checked
    frames.py    data frames: a pipeline is given its columns by name
    ask.py       what a target says
    posterior.py the default attack: a prior of levels inside and outside, learned from all rows
    play.py      all of it on one target

`discreet.attack.membership` is this package and also the function: `discreet.attack.membership(target, recipe, …)`.
"""

import sys
from types import ModuleType
from typing import Any

from discreet.attack.membership.climb import Climbed, climb
from discreet.attack.membership.controls import Controls
from discreet.attack.membership.exposed import Exposure, Share, exposed, groups_of
from discreet.attack.membership.play import ATTACKS, Found, membership
from discreet.attack.membership.shadows import train_shadows
from discreet.attack.membership.shokri import from_marginals, marginals
from discreet.attack.membership.tail import Tail, tail
from discreet.models import Recipe as Recipe
from discreet.models import Shadows as Shadows
from discreet.models import splits as splits

__all__ = [
    "ATTACKS",
    "Climbed",
    "Controls",
    "Exposure",
    "Found",
    "Share",
    "Tail",
    "climb",
    "exposed",
    "from_marginals",
    "groups_of",
    "marginals",
    "membership",
    "tail",
    "train_shadows",
]


class _Callable(ModuleType):
    """So that `discreet.attack.membership(…)` attacks."""

    def __call__(self, *args: Any, **named: Any) -> dict[str, Any]:
        return membership(*args, **named)


sys.modules[__name__].__class__ = _Callable
