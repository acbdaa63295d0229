"""Was this row in the training set? Many models like the target answer, attack by attack."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.membership import given, label, ratios, signals
from discreet.attack.membership.controls import Controls, controlled
from discreet.attack.membership.posterior import student
from discreet.attack.membership.quantile import quantile
from discreet.attack.membership.shadows import train_shadows
from discreet.attack.membership.shokri import shokri
from discreet.core import Evidence, Game, check, record
from discreet.errors import InvalidValue
from discreet.models import Recipe, Shadows, predict, splits
from discreet.models.frames import framed

Array = NDArray[Any]


@dataclass(frozen=True)
class Population:
    """Other rows, on which the shadows were trained: what these say of them, and which rows each was trained on."""

    y: Array
    shadows: Shadows


@dataclass(frozen=True)
class Seen:
    """All that an attack may use: the target's scores and its shadows', on the rows in question."""

    y: Array
    target: Array  # [rows, classes]
    shadows: Shadows | None  # scores [models, rows, classes]
    population: Population | None = None
    seed: int = 0
    model: Any = None  # the target itself
    X: Array | None = None
    truth: Array | None = None  # for attacks that learn from known rows: no row is judged by what its own truth taught
    _kept: dict[Any, Array] = field(default_factory=dict, init=False, repr=False, compare=False)

    def of_target(self, signal: Callable[..., Array], **how: Any) -> Array:
        return signal(self.target, self.y, **how)

    def of_shadows(self, signal: Callable[..., Array], **how: Any) -> Array:
        """Of every shadow; model by model, which stays in cache, and once for all attacks that ask for it."""
        assert self.shadows is not None
        key = signal, *sorted(how.items())
        if key not in self._kept:
            self._kept[key] = np.stack([signal(scores, self.y, **how) for scores in self.shadows.scores])
        return self._kept[key]


def _student(seen: Seen) -> Array:
    assert seen.shadows is not None
    tempered = np.log(seen.of_target(signals.tempered, temperature=2.0))
    others = np.log(seen.of_shadows(signals.tempered, temperature=2.0))
    return student(seen.of_target(signals.margin), seen.of_shadows(signals.margin), tempered, others, seen.shadows.inside)


def _lira(seen: Seen) -> Array:
    assert seen.shadows is not None
    return ratios.lira(seen.of_target(signals.margin), seen.of_shadows(signals.margin), seen.shadows.inside)


def _lira_fixed(seen: Seen) -> Array:
    assert seen.shadows is not None
    return ratios.lira(seen.of_target(signals.margin), seen.of_shadows(signals.margin), seen.shadows.inside, fixed=True)


def _lira_offline(seen: Seen) -> Array:
    assert seen.shadows is not None
    return ratios.lira_offline(seen.of_target(signals.margin), seen.of_shadows(signals.margin), seen.shadows.inside)


def _calibrated(seen: Seen) -> Array:
    assert seen.shadows is not None
    signal = signals.log_probability
    return ratios.calibrated(seen.of_target(signal), seen.of_shadows(signal), seen.shadows.inside)


def _rmia(seen: Seen, temperature: float = 2.0, order: int | None = None, gamma: float = 1.0) -> Array:
    """The population is the rows themselves: half of them, not known which, are outside."""
    assert seen.shadows is not None
    how: dict[str, Any] = {"temperature": temperature, "order": order}
    target, shadows = seen.of_target(signals.tempered, **how), seen.of_shadows(signals.tempered, **how)
    return ratios.rmia(target, shadows, seen.shadows.inside, target, shadows, gamma=gamma)


def _shokri(seen: Seen) -> Array:
    assert seen.shadows is not None
    y, known = (seen.y, seen.shadows) if seen.population is None else (seen.population.y, seen.population.shadows)
    return shokri(seen.target, seen.y, known.scores, y, known.inside, seed=seen.seed)


def _loss(seen: Seen) -> Array:
    return seen.of_target(signals.log_probability)


def _confidence(seen: Seen) -> Array:
    scores = np.asarray(seen.target, np.float64)
    return signals.log_probability(scores, scores.argmax(1))


def _entropy(seen: Seen) -> Array:
    scores = np.asarray(seen.target, np.float64)
    logs = scores - np.logaddexp.reduce(scores, 1, keepdims=True)
    return (np.exp(logs) * logs).sum(1)


def _right(seen: Seen) -> Array:
    """The gap attack: a row is inside if the label alone is right."""
    return (np.asarray(seen.target).argmax(1) == seen.y).astype(np.float64)


def _kept(seen: Seen) -> Array:
    assert seen.X is not None
    return label.kept(seen.model, seen.X, seen.y, seed=seen.seed)


def _boundary(seen: Seen) -> Array:
    assert seen.X is not None
    return label.boundary(seen.model, seen.X, seen.y, seed=seen.seed)


def _quantile(seen: Seen) -> Array:
    assert seen.X is not None
    assert seen.truth is not None
    return quantile(seen.of_target(signals.margin), seen.X, seen.y, ~seen.truth, seed=seen.seed)


def _gradient(seen: Seen) -> Array:
    from discreet.attack.membership import whitebox

    assert seen.X is not None
    return whitebox.gradient(seen.model, seen.X, seen.y)


def _whitebox(seen: Seen) -> Array:
    from discreet.attack.membership import whitebox

    assert seen.X is not None
    assert seen.truth is not None
    return whitebox.whitebox(seen.model, seen.X, seen.y, seen.truth, seed=seen.seed)


# name: what it needs to see of the target, whether it needs shadows, how it scores
ATTACKS: dict[str, tuple[str, bool, Callable[[Seen], Array]]] = {
    "student": ("scores", True, _student),
    "lira": ("scores", True, _lira),
    "lira_fixed": ("scores", True, _lira_fixed),
    "lira_offline": ("scores", True, _lira_offline),
    "rmia": ("logits", True, _rmia),
    "calibrated": ("scores", True, _calibrated),
    "shokri": ("scores", True, _shokri),
    "loss": ("scores", False, _loss),
    "confidence": ("scores", False, _confidence),
    "entropy": ("scores", False, _entropy),
    "label": ("labels", False, _right),
    "noise": ("labels", False, _kept),
    "boundary": ("labels", False, _boundary),
    "quantile": ("scores", False, _quantile),
    "gradient": ("weights", False, _gradient),
    "whitebox": ("weights", False, _whitebox),
}
ONLINE = ("student", "lira", "lira_fixed")  # compare with models trained on the very rows in question
TWINS = 8  # shadows of the leaky twin: they are trained for longer, so there are few
QUESTIONS = {"noise": 33, "boundary": 145}  # for each row
MANY = 2e9  # numbers in all questions: beyond, "all" leaves such an attack out, and says so
LEARNING = {"quantile": 50, "whitebox": 20}  # rows on each side without which nothing is learned


class Found(dict[str, Evidence]):
    """Evidence by the name of the attack; `controls` where they were asked for."""

    controls: Controls | None = None


def membership(
    target: Any, recipe: Recipe | None, members: Any, nonmembers: Any, *, attacks: Iterable[str] = ("student", "lira", "loss"),
    shadows: int = 64, population: Any = None, seed: int = 0, device: str = "cpu", folder: str | Path | None = None,
    processes: int = 1, ray: str | None = None, progress: Callable[[int, int], None] | None = None, group: int | None = None,
    controls: bool = False,
) -> Found:  # fmt: skip
    """What each attack says of rows that were in the training set of `target` and rows that were not.

    `members` and `nonmembers` are pairs (inputs, labels); labels are whole numbers from 0, or the classes that a scikit-learn
    target names. Inputs may be data frames, text and categories among their columns, for a pipeline that takes such.
    `recipe` says how models like the target are trained; without one
    only attacks that need no shadows run. `attacks` may be "all". Shadows are trained on random halves of the rows in question,
    or, where the attacker has only other rows, of `population` (a pair too): then attacks that need models trained on the rows
    themselves are left out. With `controls` the same attacks also run on a leaky twin and on a model that saw none of the rows:
    `found.controls`. Evidence from a finished model is `post_hoc`: it warns, and cannot refute a claim.

    >>> rng = np.random.default_rng(0)
    >>> inside, outside = (rng.normal(size=(50, 3)), np.zeros(50, int)), (rng.normal(size=(50, 3)), np.zeros(50, int))
    >>> found = membership(lambda X: np.zeros((len(X), 2)), None, inside, outside, attacks=["loss"])
    >>> found["loss"].auc()
    0.5
    """
    if recipe is not None and not isinstance(recipe, Recipe):
        more = "; of a defence give its .recipe" if hasattr(recipe, "recipe") else ""
        raise InvalidValue(f"recipe must be a Recipe; got {type(recipe).__name__}{more}.")
    target, recipe, (members, nonmembers, population) = framed(target, recipe, members, nonmembers, population)
    (X_in, y_in), (X_out, y_out) = given.pair("members", members, target), given.pair("nonmembers", nonmembers, target)
    population = None if population is None else given.pair("population", population, target)
    given.apart(X_in, y_in, X_out, y_out)
    rows = min(len(X_in), len(X_out)) // (2 if controls else 1)
    if not rows:
        raise InvalidValue("controls are trained on half of the members and half of the others: give at least two of each.")
    chosen = _chosen(attacks, target, recipe, population, rows, X_in.dtype.kind in "biuf")
    if attacks == "all":
        chosen = _affordable(chosen, X_in.size + X_out.size)
    if controls and recipe is None:
        raise InvalidValue("controls are trained as the target was; say how: recipe=Recipe(…).")
    X, y = np.concatenate([X_in, X_out]), np.concatenate([y_in, y_out])
    inside = np.arange(len(X)) < len(X_in)
    scores = given.asked(target, X, y)
    trained = others = None
    how: dict[str, Any] = {"device": device, "group": group, "processes": processes, "ray": ray}
    if any(ATTACKS[name][1] for name in chosen):
        assert recipe is not None
        models = check.whole("shadows", shadows, least=0)
        if models < 2:
            free = ", ".join(name for name in ATTACKS if not ATTACKS[name][1])
            raise InvalidValue(
                f"shadows must be at least 2, one that saw a row and one that did not; got {shadows}. "
                f"Without any: attacks={free}."
            )
        trained, others = _shadowed(recipe, X, y, population, models, seed, how | {"folder": folder, "progress": progress})
        known, labels = (trained, y) if others is None else (others.shadows, others.y)
        given.converged(known)
        given.resembles(known, labels, scores, y, inside)
    seen = Seen(y, scores, trained, others, seed, target, X, inside)
    found = _attacked(seen, chosen)
    if controls:
        assert recipe is not None

        def attacked(model: Any, rows: NDArray[np.bool_], its: Recipe | None) -> dict[str, Evidence]:
            again = None if its is None or trained is None else _shadowed(its, X, y, population, TWINS, seed, how)
            names = [name for name in chosen if ATTACKS[name][0] != "weights" or predict.is_module(model)]
            return _attacked(_other(seen, model, rows, again), names)

        found.controls = controlled(attacked, recipe, X, y, inside, seed=seed, device=device)
    return found


def _shadowed(
    recipe: Recipe, X: Array, y: Array, population: Any, models: int, seed: int, how: dict[str, Any]
) -> tuple[Shadows, Population | None]:
    """Shadows of the rows in question, or of other rows."""
    if population is not None:
        return _elsewhere(recipe, X, population, models, seed, how)
    marks = splits(len(X), models, check.whole("seed", seed, least=0))
    return train_shadows(recipe, X, y, marks, seed=seed, **how), None


def _attacked(seen: Seen, chosen: Iterable[str]) -> Found:
    assert seen.truth is not None
    return Found({name: _evidence(name, ATTACKS[name][2](seen), seen.truth) for name in chosen})


def _other(seen: Seen, model: Any, rows: NDArray[np.bool_], again: tuple[Shadows, Population | None] | None) -> Seen:
    """Another target, for some of the rows; with the same shadows, or with its own."""
    assert seen.X is not None
    assert seen.truth is not None
    shadows, others = (seen.shadows, seen.population) if again is None else again
    X, y = seen.X[rows], seen.y[rows]
    some = None if shadows is None else Shadows(shadows.scores[:, rows], shadows.inside[:, rows])
    scores = given.asked(model, X, y)
    return replace(seen, y=y, target=scores, shadows=some, population=others, model=model, X=X, truth=seen.truth[rows])


def _chosen(attacks: Iterable[str], target: Any, recipe: Recipe | None, population: Any, rows: int, numbers: bool) -> list[str]:
    """The attacks asked for; "all" means all that what was given allows."""
    needing = [name for name in ATTACKS if recipe is None and ATTACKS[name][1]]
    left_out = dict.fromkeys(needing, "needs models like the target; say how they are trained: recipe=Recipe(…).")
    if population is not None:
        left_out |= dict.fromkeys(ONLINE, "needs models trained on the rows in question; leave population out.")
    if not predict.is_module(target):
        weights = [name for name in ATTACKS if ATTACKS[name][0] == "weights"]
        left_out |= dict.fromkeys(weights, "needs to see the weights: give the target as a torch module.")
    if predict.is_module(target) and any(hasattr(layer, "num_embeddings") for layer in target.modules()):
        left_out |= dict.fromkeys(QUESTIONS, "disturbs inputs by noise; this target looks its inputs up by whole numbers.")
    if not numbers:
        left_out |= dict.fromkeys((*QUESTIONS, "quantile"), "needs inputs that are numbers; these hold text or objects.")
    for name, least in LEARNING.items():
        if rows < least:
            left_out.setdefault(name, f"learns from known rows: it needs at least {least} inside and outside; got {rows}.")
    if attacks == "all":
        return [name for name in ATTACKS if name not in left_out]
    chosen = [check.word("attacks", name, tuple(ATTACKS)) for name in _listed(attacks)]
    refused = [name for name in chosen if name in left_out]
    if refused:
        raise InvalidValue(f"{', '.join(refused)} {left_out[refused[0]]}")
    return chosen


def _affordable(chosen: list[str], numbers: int) -> list[str]:
    """Without attacks that would ask the target for hours; by name they still run."""
    dear = [name for name in chosen if numbers * QUESTIONS.get(name, 0) > MANY]
    if dear:
        told = " and ".join(f"{name} ({QUESTIONS[name]} questions for each row)" for name in dear)
        warnings.warn(f'{told} left out of "all" for so many rows; ask for it by name.', stacklevel=3)
    return [name for name in chosen if name not in dear]


def _elsewhere(
    recipe: Recipe, X: Array, population: Any, models: int, seed: int, how: dict[str, Any]
) -> tuple[Shadows, Population]:
    """Shadows of other rows: what they say of the rows in question, and of their own."""
    Z, labels = population
    if Z.shape[1:] != X.shape[1:]:
        raise InvalidValue(f"population has inputs of shape {Z.shape[1:]}, members of {X.shape[1:]}; they must be alike.")
    marks = splits(len(Z), models, check.whole("seed", seed, least=0))
    made = train_shadows(recipe, Z, labels, marks, seed=seed, query=np.concatenate([Z, X]), **how)
    here = Shadows(made.scores[:, len(Z) :], given.trained_on(Z, X, marks))
    return here, Population(labels, Shadows(made.scores[:, : len(Z)], marks))


def _listed(attacks: Iterable[str]) -> list[str]:
    return [attacks] if isinstance(attacks, str) else list(attacks)


def _evidence(name: str, score: Array, inside: NDArray[np.bool_]) -> Evidence:
    view = ATTACKS[name][0]
    return Evidence(
        game=Game(record(), {view}),
        attack=name,
        score=score,
        inside=inside,
        run=np.zeros(len(score), np.int64),
        design="post_hoc",
    )
