"""Was this row in the training set? The attacks that can run on one target, with models like it and controls beside it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.membership import validation
from discreet.attack.membership.attacks import ATTACKS, BY_NAME, MembershipAttack, Needs
from discreet.attack.membership.controls import Controls, overfit_control, stream, unseen_control
from discreet.attack.membership.observation import Observation, Population, compare
from discreet.core import Evidence, Game, check, record
from discreet.errors import InvalidValue
from discreet.models import Recipe, Shadows, Trainer, predict, splits
from discreet.models.frames import framed

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


Array = NDArray[Any]
CONTROL_SHADOWS = 8  # of the overfit control: they are trained for longer, so there are few


@dataclass(frozen=True, eq=False)
class MembershipResult(Mapping[str, Evidence]):
    """Evidence by the name of the attack; the shadows, where some were trained; controls, where they were asked for."""

    evidence: Mapping[str, Evidence]
    shadows: Shadows | None = None
    controls: Controls | None = None

    def __getitem__(self, attack: str) -> Evidence:
        return self.evidence[attack]

    def __iter__(self) -> Iterator[str]:
        return iter(self.evidence)

    def __len__(self) -> int:
        return len(self.evidence)


def membership(
    target: Any, recipe: Recipe | Trainer | None, members: Any, nonmembers: Any, *,
    attacks: Attacks = ("bayes_lira", "lira", "loss"), shadows: int = 64, population: Any = None, seed: int = 0,
    device: str = "cpu", folder: str | Path | None = None, progress: Callable[[int, int], None] | None = None,
    controls: bool = False,
) -> MembershipResult:  # fmt: skip
    """What each attack says of rows that were in the training set of `target` and rows that were not.

    `members` and `nonmembers` are pairs (inputs, labels); labels are whole numbers from 0, or the classes that a scikit-learn
    target names. Inputs may be data frames, text and categories among their columns, for a pipeline that takes such.
    `recipe` says how models like the target are trained, or is a `Trainer` that also says where; without one only attacks that
    need no shadows run. `attacks` are names, objects, or "all". Shadows are trained on random halves of the rows in question,
    or, where the attacker has only other rows, of `population` (a pair too): then attacks that need models trained on the rows
    themselves are left out. With `controls` the same attacks also run on an overfit control and on a model that saw none of the
    rows. Evidence from a finished model is `post_hoc`: it warns, and cannot refute a claim.

    >>> rng = np.random.default_rng(0)
    >>> inside, outside = (rng.normal(size=(50, 3)), np.zeros(50, int)), (rng.normal(size=(50, 3)), np.zeros(50, int))
    >>> result = membership(lambda X: np.zeros((len(X), 2)), None, inside, outside, attacks=["loss"])
    >>> result["loss"].auc()
    0.5
    """
    target, trainer, X, y, inside, others = _prepared(target, _trainer(recipe, device), members, nonmembers, population)
    rows = min(int(inside.sum()), int((~inside).sum())) // (2 if controls else 1)
    if not rows:
        raise InvalidValue("controls are trained on half of the members and half of the others: give at least two of each.")
    access = Access(target, trainer is not None, others is not None, rows, X.dtype.kind in "biuf", X.size)
    chosen = access.choose(attacks)
    if controls and trainer is None:
        raise InvalidValue("controls are trained as the target was; say how: recipe=Recipe(…).")
    seen = Observation(target, X, y, validation.scores(target, X, y), inside, seed)
    trained: tuple[Shadows, Population | None] | None = None
    if trainer is not None and any(attack.needs.shadows for attack in chosen):
        trained = _shadows(trainer, X, y, others, _count(shadows), seed, folder=folder, progress=progress)
        _validate(seen, *trained)
    evidence = _evidence(seen, trained, chosen)
    beside = _controls(seen, trained, chosen, trainer, others) if controls and trainer is not None else None
    return MembershipResult(evidence, trained[0] if trained else None, beside)


def _prepared(
    target: Any, trainer: Trainer | None, members: Any, nonmembers: Any, population: Any
) -> tuple[Any, Trainer | None, Array, Array, NDArray[np.bool_], tuple[Array, Array] | None]:
    """Data frames as rows; members and non-members as one table, with which rows are members; other rows."""
    recipe = trainer.recipe if trainer else None
    target, recipe, (members, nonmembers, population) = framed(target, recipe, members, nonmembers, population)
    X_in, y_in = validation.pair("members", members, target)
    X_out, y_out = validation.pair("nonmembers", nonmembers, target)
    others = None if population is None else validation.pair("population", population, target)
    validation.apart(X_in, y_in, X_out, y_out)
    X, y = np.concatenate([X_in, X_out]), np.concatenate([y_in, y_out])
    if trainer is not None and recipe is not None:
        trainer = replace(trainer, recipe=recipe)
    return target, trainer, X, y, np.arange(len(X)) < len(X_in), others


def _trainer(recipe: Recipe | Trainer | None, device: str) -> Trainer | None:
    if recipe is None or isinstance(recipe, Trainer):
        return recipe
    if not isinstance(recipe, Recipe):
        more = "; of a defence give its .recipe" if hasattr(recipe, "recipe") else ""
        raise InvalidValue(f"recipe must be a Recipe; got {type(recipe).__name__}{more}.")
    return Trainer(recipe, device)


def _count(shadows: int) -> int:
    if check.whole("shadows", shadows, least=0) < 2:
        without = ", ".join(attack.name for attack in ATTACKS if not attack.needs.shadows)
        raise InvalidValue(
            f"shadows must be at least 2, one that saw a row and one that did not; got {shadows}. "
            f"Without any: attacks={without}."
        )
    return shadows


def _shadows(
    trainer: Trainer, X: Array, y: Array, others: tuple[Array, Array] | None, models: int, seed: int, **options: Any
) -> tuple[Shadows, Population | None]:
    """Shadows trained on the rows in question; or on other rows, with their scores of both."""
    check.whole("seed", seed, least=0)
    if others is None:
        return trainer.many(X, y, splits(len(X), models, seed), seed=seed, **options), None
    Z, labels = others
    if Z.shape[1:] != X.shape[1:]:
        raise InvalidValue(f"population has inputs of shape {Z.shape[1:]}, members of {X.shape[1:]}; they must be alike.")
    inside = splits(len(Z), models, seed)
    both = trainer.many(Z, labels, inside, seed=seed, query=np.concatenate([Z, X]), **options).scores
    here = Shadows(both[:, len(Z) :], validation.trained_on(Z, X, inside))
    return here, Population(labels, Shadows(both[:, : len(Z)], inside))


def _validate(seen: Observation, shadows: Shadows, population: Population | None) -> None:
    """Refuse shadows that diverged; warn of shadows that do not resemble the target."""
    own = population or Population(seen.y, shadows)
    validation.converged(own.shadows)
    validation.resembles(own.shadows, own.y, seen.scores, seen.y, seen.inside)


def _evidence(
    seen: Observation, trained: tuple[Shadows, Population | None] | None, attacks: Iterable[MembershipAttack[Any]]
) -> dict[str, Evidence]:
    beside = seen if trained is None else compare(seen, *trained)
    return {attack.name: _scored(attack, beside) for attack in attacks}


def _scored(attack: MembershipAttack[Any], seen: Observation) -> Evidence:
    return Evidence(
        game=Game(record(), attack.view), attack=attack.name, score=attack.score(seen, range(len(seen))), inside=seen.inside,
        run=np.zeros(len(seen), np.int64), design="post_hoc",
    )  # fmt: skip


def _controls(
    seen: Observation, trained: tuple[Shadows, Population | None] | None, attacks: list[MembershipAttack[Any]],
    trainer: Trainer, others: tuple[Array, Array] | None,
) -> Controls:  # fmt: skip
    """The same attacks on the overfit control, with shadows as overfit as itself, and on one that saw none of the rows."""
    overfit, its_recipe = overfit_control(trainer, seen.X, seen.y, seen.inside, seed=seen.seed)
    long = replace(trainer, recipe=its_recipe)
    own = (
        None
        if trained is None
        else _shadows(long, seen.X, seen.y, others, CONTROL_SHADOWS, stream(seen.seed, "overfit shadows"))
    )
    unseen, asked = unseen_control(trainer, seen.X, seen.y, seen.inside, seed=seen.seed)
    everything = np.ones(len(seen), np.bool_)
    return Controls(
        _evidence(*_of_control(seen, overfit, everything, own), _possible(attacks, overfit)),
        _evidence(*_of_control(seen, unseen, asked, trained), _possible(attacks, unseen)),
    )


def _possible(attacks: list[MembershipAttack[Any]], model: Any) -> list[MembershipAttack[Any]]:
    """The attacks that can run on a control: gradients are only there in torch modules."""
    return [attack for attack in attacks if not attack.needs.gradients or predict.is_module(model)]


def _of_control(
    seen: Observation, model: Any, rows: NDArray[np.bool_], trained: tuple[Shadows, Population | None] | None
) -> tuple[Observation, tuple[Shadows, Population | None] | None]:
    """What is seen of a control for some of the rows."""
    X, y = seen.X[rows], seen.y[rows]
    observed = replace(seen, model=model, X=X, y=y, scores=validation.scores(model, X, y), inside=seen.inside[rows])
    if trained is None:
        return observed, None
    shadows, population = trained
    some = Shadows(shadows.scores[:, rows], shadows.inside[:, rows])
    return observed, (some, population)
