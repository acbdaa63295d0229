"""A recipe under a defence, with what can be claimed for it: nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from discreet.core import Claim, Game, NonPrivate, Unit, record
from discreet.errors import InvalidValue

R = TypeVar("R", bound="TrainingRecipe")
Fit = Callable[[Any, Any], Callable[[Any], Any]]


class TrainingRecipe(Protocol):
    """What is read of a recipe, such as discreet.attack.Recipe: how its torch module is built and trained."""

    build: Any
    epochs: int
    batch_size: int
    optimizer: str
    learning_rate: float
    momentum: float
    weight_decay: float
    label_smoothing: float
    augment: Any
    kind: Any

    def rate(self, epoch: int) -> float: ...
    def mixed(self, device: str) -> AbstractContextManager[Any]: ...
    def many(self, X: Any, y: Any, inside: Any, *, seed: int = 0, device: str = "cpu") -> Any: ...
    def one(self, X: Any, y: Any, *, seed: int = 0, device: str = "cpu") -> Any: ...


@dataclass(frozen=True)
class Defended(Generic[R]):
    """A recipe that trains with a defence. It may lower what attacks reach (the floor); it proves no ceiling, and says so.

    `recipe` goes wherever the undefended one went: to be attacked, or to train.
    """

    name: str
    recipe: R
    view: frozenset[str] = frozenset({"weights"})
    unit: Unit = field(default_factory=record)

    def claims(self) -> tuple[Claim, ...]:
        return (Claim(game=Game(self.unit, self.view), event=NonPrivate()),)


def of_torch(recipe: R) -> R:
    """The recipe, if it is one whose training can be changed."""
    if not is_dataclass(recipe) or isinstance(recipe, type) or getattr(recipe, "kind", None) != "torch":
        kind = getattr(recipe, "kind", None) or type(recipe).__name__
        twice = " One that a defence has changed already takes no other; l2 and label_smoothing may come first."
        raise InvalidValue(
            f"This defence changes how a torch module is trained; it needs a Recipe that builds one, not one of kind {kind!r}."
            + (twice if kind == "fit" else "")
        )
    return recipe


def fitted_by(recipe: R, fit: Fit) -> R:
    """The same recipe, trained by a function of its own, one model at a time."""
    return replace(recipe, build=fit, kind="fit")  # type: ignore[type-var]
