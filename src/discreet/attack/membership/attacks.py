"""The membership attacks. Each is an object that says what it sees of the target and what else it needs, and scores rows.

To add one, write a class with `name`, `view`, `needs` and `score`, and put it into `ATTACKS`; or give an object of it to
`membership(attacks=[…])`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from discreet.attack.membership import label, signals
from discreet.attack.membership.bayes_lira import bayes_lira
from discreet.attack.membership.observation import Comparison, Observation
from discreet.attack.membership.quantile import quantile
from discreet.attack.membership.shokri import shokri

Array = NDArray[Any]
Rows = Sequence[int]
SCORES, LOGITS, LABELS, WEIGHTS = (frozenset({name}) for name in ("scores", "logits", "labels", "weights"))
S_contra = TypeVar("S_contra", bound=Observation, contravariant=True)


@dataclass(frozen=True)
class Needs:
    """What an attack needs beside the target's scores of the rows in question."""

    shadows: bool = False  # models like the target, so a recipe; `score` is then given a Comparison
    online: bool = False  # shadows trained on the very rows in question
    gradients: bool = False  # a torch module to look into
    queries: int = 0  # further queries for each row, about inputs with noise added
    numeric: bool = False  # inputs that are numbers
    known: int = 0  # rows of known membership on each side, to learn from


@runtime_checkable
class MembershipAttack(Protocol[S_contra]):
    """A `discreet.core.Attack` on a trained model: scores the rows numbered in `targets`, higher where more likely inside."""

    name: str
    view: frozenset[str]
    needs: Needs

    def score(self, seen: S_contra, targets: Rows) -> Array: ...


class BayesLira:
    """A Bayesian likelihood ratio from two signals, its prior learned from all rows; the default (once called student)."""

    name, view, needs = "bayes_lira", SCORES, Needs(shadows=True, online=True)

    def score(self, seen: Comparison, targets: Rows) -> Array:
        margin, margins = seen.target(signals.margin), seen.reference(signals.margin)
        tempered = np.log(seen.target(signals.tempered, temperature=2.0))
        references = np.log(seen.reference(signals.tempered, temperature=2.0))
        return bayes_lira(margin, margins, tempered, references, seen.shadows.inside)[targets]


class Lira:
    """The likelihood-ratio attack (Carlini et al. 2022): two Gaussians for each row; `fixed` pools their variance over rows."""

    view, needs = SCORES, Needs(shadows=True, online=True)

    def __init__(self, name: str = "lira", *, fixed: bool | None = None) -> None:
        self.name, self.fixed = name, fixed

    def score(self, seen: Comparison, targets: Rows) -> Array:
        margin, margins = seen.target(signals.margin), seen.reference(signals.margin)
        return signals.lira(margin, margins, seen.shadows.inside, fixed=self.fixed)[targets]


class LiraOffline:
    """How unusually sure the target is for a model that never saw the row (Carlini et al. 2022)."""

    name, view, needs = "lira_offline", SCORES, Needs(shadows=True)

    def score(self, seen: Comparison, targets: Rows) -> Array:
        margin, margins = seen.target(signals.margin), seen.reference(signals.margin)
        return signals.lira_offline(margin, margins, seen.shadows.inside)[targets]


class Rmia:
    """Robust membership inference (Zarifzadeh et al. 2024). The population is the rows themselves: half of them, not known
    which, are outside."""

    name, view, needs = "rmia", LOGITS, Needs(shadows=True)

    def __init__(self, temperature: float = 2.0, order: int | None = None, gamma: float = 1.0) -> None:
        self.temperature, self.order, self.gamma = temperature, order, gamma

    def score(self, seen: Comparison, targets: Rows) -> Array:
        options: dict[str, Any] = {"temperature": self.temperature, "order": self.order}
        target, shadows = seen.target(signals.tempered, **options), seen.reference(signals.tempered, **options)
        return signals.rmia(target, shadows, seen.shadows.inside, target, shadows, gamma=self.gamma)[targets]


class Calibrated:
    """How much surer the target is than models that never saw the row (Watson et al. 2022)."""

    name, view, needs = "calibrated", SCORES, Needs(shadows=True)

    def score(self, seen: Comparison, targets: Rows) -> Array:
        own, others = seen.target(signals.log_probability), seen.reference(signals.log_probability)
        return signals.calibrated(own, others, seen.shadows.inside)[targets]


class ShokriNetworks:
    """A network for each class, taught by the shadows' scores of their own rows (Shokri et al. 2017)."""

    name, view, needs = "shokri", SCORES, Needs(shadows=True)

    def score(self, seen: Comparison, targets: Rows) -> Array:
        known = seen.population.shadows
        return shokri(seen.scores, seen.y, known.scores, seen.population.y, known.inside, seed=seen.seed)[targets]


class Loss:
    """The log-probability of the label (Yeom et al. 2018)."""

    name, view, needs = "loss", SCORES, Needs()

    def score(self, seen: Observation, targets: Rows) -> Array:
        return seen.target(signals.log_probability)[targets]


class Confidence:
    """The log-probability of the predicted label (Salem et al. 2019)."""

    name, view, needs = "confidence", SCORES, Needs()

    def score(self, seen: Observation, targets: Rows) -> Array:
        scores = np.asarray(seen.scores, np.float64)
        return signals.log_probability(scores, scores.argmax(1))[targets]


class Entropy:
    """Minus the entropy of the predicted distribution (Salem et al. 2019)."""

    name, view, needs = "entropy", SCORES, Needs()

    def score(self, seen: Observation, targets: Rows) -> Array:
        scores = np.asarray(seen.scores, np.float64)
        logs = scores - np.logaddexp.reduce(scores, 1, keepdims=True)
        return np.asarray((np.exp(logs) * logs).sum(1)[targets])


class Label:
    """The gap attack (Yeom et al. 2018): a row counts as inside if its predicted label is right."""

    name, view, needs = "label", LABELS, Needs()

    def score(self, seen: Observation, targets: Rows) -> Array:
        return (np.asarray(seen.scores).argmax(1) == seen.y).astype(np.float64)[targets]


class Noise:
    """The share of disturbed copies that keep the label (Choquette-Choo et al. 2021)."""

    name, view, needs = "noise", LABELS, Needs(queries=33, numeric=True)

    def score(self, seen: Observation, targets: Rows) -> Array:
        return label.kept(seen.model, seen.X, seen.y, seed=seen.seed)[targets]


class Boundary:
    """How far away from a row its label still holds (Choquette-Choo et al. 2021; Li and Zhang 2021)."""

    name, view, needs = "boundary", LABELS, Needs(queries=145, numeric=True)

    def score(self, seen: Observation, targets: Rows) -> Array:
        return label.boundary(seen.model, seen.X, seen.y, seed=seen.seed)[targets]


class Quantile:
    """The margin against that of rows outside with such inputs (Bertran et al. 2023); learns from known rows outside."""

    name, view, needs = "quantile", SCORES, Needs(numeric=True, known=50)

    def score(self, seen: Observation, targets: Rows) -> Array:
        return quantile(seen.target(signals.margin), seen.X, seen.y, ~seen.inside, seed=seen.seed)[targets]


class Gradient:
    """Minus the norm of the gradient of the row's loss (Nasr et al. 2019)."""

    name, view, needs = "gradient", WEIGHTS, Needs(gradients=True)

    def score(self, seen: Observation, targets: Rows) -> Array:
        from discreet.attack.membership import whitebox

        return whitebox.gradient(seen.model, seen.X, seen.y)[targets]


class WhiteBox:
    """Networks that see gradients and layers, taught by known rows (Nasr et al. 2019)."""

    name, view, needs = "whitebox", WEIGHTS, Needs(gradients=True, known=20)

    def score(self, seen: Observation, targets: Rows) -> Array:
        from discreet.attack.membership import whitebox

        return whitebox.whitebox(seen.model, seen.X, seen.y, seen.inside, seed=seen.seed)[targets]


ATTACKS: tuple[MembershipAttack[Any], ...] = (
    BayesLira(), Lira(), Lira("lira_fixed", fixed=True), LiraOffline(), Rmia(), Calibrated(), ShokriNetworks(), Loss(),
    Confidence(), Entropy(), Label(), Noise(), Boundary(), Quantile(), Gradient(), WhiteBox(),
)  # fmt: skip
BY_NAME: dict[str, MembershipAttack[Any]] = {attack.name: attack for attack in ATTACKS}
