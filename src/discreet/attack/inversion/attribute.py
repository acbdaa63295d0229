"""Attribute inference: a hidden column of a person, from a model, the person's other columns and their outcome.

Fredrikson et al. 2014 ("Privacy in pharmacogenetics"): try every value of what is not known, ask the model what it would
predict, and weigh values by how common they are and how well the prediction fits the outcome. No attacker who knows the same
does better where the columns are independent and the error is as stated.

Most of what such an attack finds it finds on people the model has never seen: it reads the population, not the person. So
`infer` attacks members and a control group alike, and only the difference is what the model gives away about its training rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.attack.tables.risks import Risk, compared
from discreet.columns import columns
from discreet.core import Evidence, Game, Roc, check, record
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
Table = Mapping[str, Any]
Model = Callable[[dict[str, NDArray[Any]]], Any]
SMALLEST = 1e-300


@dataclass(frozen=True)
class AttributeInference:
    """Which value of the column `hidden` explains a person's outcome best.

    `values` are the values that can occur with their frequencies in the population; `by` says other frequencies for people
    with some value of a known column: {"race": {"Asian": {"AA": .8, "GG": .2}}}. `unknown` are further columns that the
    attacker does not know, with theirs. A model is a function of a table (a dictionary of columns). It gives a number for each
    row, whose error has standard deviation `error`, or probabilities [rows, classes] of `classes`.

    >>> dose = lambda table: np.where(table["gene"] == "AA", 20.0, 40.0) + table["age"] * 0.0
    >>> attack = AttributeInference("gene", {"AA": 0.3, "GG": 0.7}, error=5.0)
    >>> attack.guess(dose, {"age": [50, 60]}, [22.0, 41.0]).tolist()
    ['AA', 'GG']
    """

    hidden: str
    values: Mapping[Any, float]
    error: float | None = None
    classes: tuple[Any, ...] = ()
    unknown: Mapping[str, Mapping[Any, float]] = field(default_factory=dict)
    by: Mapping[str, Mapping[Any, Mapping[Any, float]]] = field(default_factory=dict)
    name: str = "attribute inference"
    view: frozenset[str] = frozenset({"scores"})

    def __post_init__(self) -> None:
        check.word("hidden", self.hidden)
        for column, known in ({self.hidden: self.values} | dict(self.unknown)).items():
            weights = [check.nonnegative(f"the frequency of a value of {column}", weight) for weight in known.values()]
            if len(weights) < 1 + (column == self.hidden) or not sum(weights) > 0:
                raise InvalidValue(f"{column} needs the values that it can have, with frequencies: {{'AA': 0.4, 'AG': 0.6}}.")
        if (self.error is None) == (not self.classes):
            raise InvalidValue(
                "Say how the model is wrong: error=… is the standard deviation of a regression, classes=… names the columns of "
                "a classifier's probabilities. One of the two."
            )
        if self.error is not None:
            check.positive("error", self.error)

    def posterior(self, model: Model, people: Table, outcome: ArrayLike) -> Floats:
        """How likely each of `values` is for each person, [people, values]; `people` need not have the hidden column."""
        outcome = np.asarray(outcome)
        known = {name: column for name, column in columns(people).items() if name != self.hidden and name not in self.unknown}
        if any(len(column) != len(outcome) for column in known.values()):
            raise InvalidValue(f"There are {len(outcome)} outcomes, and columns of another length.")
        weight, common = np.zeros((len(outcome), len(self.values))), self._frequencies(known, len(outcome))
        others = list(self.unknown)
        for place, value in enumerate(self.values):
            for rest in product(*(self.unknown[name].items() for name in others)):
                share = common[:, place] * float(np.prod([each[1] for each in rest]))
                guess = {self.hidden: value} | {name: each[0] for name, each in zip(others, rest)}
                table = known | {name: _column(each, len(outcome)) for name, each in guess.items()}
                weight[:, place] += share * self._fit(model(table), outcome)
        weight += SMALLEST * common  # where no value fits, what is common decides
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))

    def _frequencies(self, known: dict[str, NDArray[Any]], count: int) -> Floats:
        """How common each value is among people like each person, [people, values]."""
        out = np.tile([float(share) for share in self.values.values()], (count, 1))
        for column, groups in self.by.items():
            if column not in known:
                raise InvalidValue(f"Frequencies are given by {column}, which is not among the known columns.")
            for group, shares in groups.items():
                out[known[column] == group] = [float(shares.get(value, 0.0)) for value in self.values]
        return out

    def _fit(self, said: Any, outcome: NDArray[Any]) -> Floats:
        """How likely the outcomes are where the model says this, up to a factor."""
        predicted = np.asarray(said, np.float64)
        if self.error is not None:
            if predicted.shape != outcome.shape:
                raise InvalidValue(f"The model must give a number for each of {len(outcome)} rows; got {predicted.shape}.")
            return np.asarray(np.exp(-((outcome - predicted) ** 2) / (2 * self.error**2)))
        if predicted.shape != (len(outcome), len(self.classes)):
            wanted = f"[{len(outcome)}, {len(self.classes)}]"
            raise InvalidValue(f"The model must give {wanted} probabilities; got {predicted.shape}.")
        return np.asarray(predicted[np.arange(len(outcome)), _places(outcome, self.classes, "an outcome", "classes")])

    def guess(self, model: Model, people: Table, outcome: ArrayLike) -> NDArray[Any]:
        """The likeliest value for each person."""
        return np.asarray(np.array(list(self.values))[self.posterior(model, people, outcome).argmax(axis=1)])

    def prior_guess(self) -> Any:
        """What is guessed without a model."""
        return max(self.values, key=lambda value: self.values[value])


@dataclass(frozen=True)
class Inference:
    """How often the hidden value was guessed: of members, of people who were not in the training data, and without a model.

    `auc` is the mean over values of how well the posterior tells who has a value from who has not. `risk` compares members with
    the control group; `evidence` is the game: does the model find the truth more surely for its members?
    """

    hidden: str
    risk: Risk
    prior: float
    auc_members: float
    auc_control: float
    evidence: Evidence

    def __str__(self) -> str:
        return (
            f"{self.hidden}: right on {self.risk.members:.1%} of members, {self.risk.control:.1%} of people outside, "
            f"{self.prior:.1%} without a model; AUC {self.auc_members:.3f} and {self.auc_control:.3f}"
        )

    def to_json(self) -> dict[str, Any]:
        """The fact `inference` of a release."""
        return {**self.risk.to_json(), "auc_members": self.auc_members, "auc_control": self.auc_control}


def infer(
    attack: AttributeInference, model: Model, people: Table, outcome: ArrayLike, inside: ArrayLike, *, design: str = "post_hoc",
    run: ArrayLike | None = None, confidence: float = 0.95,
) -> Inference:  # fmt: skip
    """Attack people of whom `inside` says who was in the training data. All need the hidden column, to tell what was right.

    `design` is "canary" where each person was put in by a fair coin of their own and the model trained after that.
    """
    truth_inside = np.asarray(inside, np.bool_)
    if not truth_inside.any() or truth_inside.all():
        raise InvalidValue(
            "The attack needs people who were in the training data and people who were not: the honest baseline."
        )
    belief = attack.posterior(model, people, outcome)
    values = tuple(attack.values)
    truth = _places(columns(people, [attack.hidden])[attack.hidden], values, f"a value of {attack.hidden}", "values")
    right = belief.argmax(axis=1) == truth
    blind = float((truth == values.index(attack.prior_guess())).mean())
    members, control = (_area(belief[part], truth[part]) for part in (truth_inside, ~truth_inside))
    seen = Evidence(
        game=Game(record(), attack.view), attack=attack.name, score=belief[np.arange(len(belief)), truth], inside=truth_inside,
        run=np.zeros(len(belief), np.int64) if run is None else run, design=design,
    )  # fmt: skip
    risk = compared(f"inference of {attack.hidden}", right[truth_inside], right[~truth_inside], blind, confidence)
    return Inference(attack.hidden, risk, blind, members, control, seen)


def _area(belief: Floats, truth: NDArray[np.int64]) -> float:
    areas = [
        Roc.of(belief[:, place], truth == place).area()
        for place in range(belief.shape[1]) if 0 < (truth == place).sum() < len(truth)
    ]  # fmt: skip
    return float(np.mean(areas)) if areas else 0.5


def _column(value: Any, count: int) -> NDArray[Any]:
    return np.repeat(np.array([value], dtype=None if isinstance(value, (int, float, bool)) else object), count)


def _places(found: NDArray[Any], known: tuple[Any, ...], what: str, where: str) -> NDArray[np.int64]:
    table = {value: place for place, value in enumerate(known)}
    places = np.array([table.get(value, -1) for value in found.tolist()], np.int64)
    if (places < 0).any():
        raise InvalidValue(
            f"{int((places < 0).sum())} rows hold {what} that {where} does not list. List it, or leave them out."
        )
    return places
