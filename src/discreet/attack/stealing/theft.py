"""Was this model fine-tuned from ours? Tests of sets of weights with a bounded rate of false accusations.

Hidden units have no order: their first weights are drawn alike, and training treats them alike. So whoever drew the first
weights of a network of their own, whatever data they trained it on, has units whose order says nothing about ours: against the
suspect, our layer is as likely in any other order of its units. The sum of similarities of unit 1 with unit 1, 2 with 2, … is
compared with the same sum in random orders; its rank is a p-value that is exact, whatever the suspect is (a permutation test;
Zhu et al. 2025 test language models so). Rows of an embedding, gates of a recurrent layer and heads of attention have an order
that networks share, so only layers are compared whose units feed the next one.

Two models that started from one third model, or from the same seed, are related, and this test finds that. Who made ours from
a public model can train siblings of it, from the same start by the same recipe with other seeds. Against a suspect that was
made without ours, ours is then one of them: its rank among them is a p-value, exact again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
LEAST_UNITS = 8


@dataclass(frozen=True)
class Descent:
    """`accused` where p is at most `level`: of suspects made without our weights no more than that are accused.

    Without `siblings` that holds for suspects whose first weights were drawn by coins of their own. `similarity` is the mean
    cosine of units in the same place, by layer; with siblings that of what sets both models apart from the mean of siblings.
    """

    accused: bool
    p: float
    level: float
    similarity: Mapping[str, float]
    siblings: int = 0

    def __str__(self) -> str:
        told = ", ".join(f"{name} {value:.3f}" for name, value in self.similarity.items())
        others = f"models that share our start with {self.siblings} siblings" if self.siblings else "models from another start"
        made = "made from ours" if self.siblings else "made from ours, or both from one start"
        if self.accused:
            return f"{made} (p = {self.p:.2g}, at most {self.level:g} of {others} are accused): {told}"
        return f"no sign that it was made from ours (p = {self.p:.2g}): {told}"


def descended(
    ours: Any, suspect: Any, *, siblings: Iterable[Any] = (), layers: Iterable[str] | None = None, level: float = 1e-3,
    orders: int = 9_999, seed: int = 0,
) -> Descent:  # fmt: skip
    """Compare two torch modules, or two sets of weights by name, of the same shapes.

    `layers` names the weights whose first axis are hidden units that could stand in any order; by default those are taken that
    feed the next weights, and are not square. The p-value is the least over layers, times their number. Whoever started from
    the weights that we started from (a public model, or a seed that is in common use) is accused too, unless `siblings` are
    given: models made as ours was, from the same start with other seeds. The p-value is then the rank of ours among them, so 19
    are needed for a level of 0.05. A thief who changes the order of units, or who trained a student on answers, is not seen.

    >>> random = np.random.default_rng(0)
    >>> ours, other = ({"a.weight": random.normal(size=(32, 9)), "b.weight": random.normal(size=(3, 32))} for _ in range(2))
    >>> tuned = {name: each + 0.3 * random.normal(size=each.shape) for name, each in ours.items()}
    >>> descended(ours, tuned).accused, descended(ours, other).accused
    (True, False)
    """
    one, two, others = _weights(ours), _weights(suspect), [_weights(each) for each in siblings]
    check.open_fraction("level", level)
    names = list(layers) if layers is not None else [name for name in one if one[name].ndim >= 2] if others else _units(one)
    if not names:
        raise InvalidValue(
            f"No layer of {LEAST_UNITS} hidden units or more was found that feeds the next one. Name weights whose first axis "
            "are units that could stand in any order, so no embedding, gates or attention: layers=[…]."
        )
    for name in names:
        shapes = [each[name].shape if name in each else "none" for each in (one, two, *others)]
        if len(set(shapes)) > 1 or shapes[0] == "none":
            raise InvalidValue(f"All models need weights {name!r} of one shape; they have {', '.join(map(str, shapes[:3]))}.")
    if others:
        return _ranked(one, two, others, names, level)
    if check.whole("orders", orders) + 1 < len(names) / level:
        raise InvalidValue(
            f"{orders} orders cannot show p <= {level:g} in {len(names)} layers; take {int(len(names) / level)}."
        )
    random = np.random.default_rng(check.whole("seed", seed, least=0))
    found_p, similar = 1.0, {}
    for name in names:
        p, similar[name] = _layer(one[name], two[name], orders, random)
        found_p = min(found_p, p * len(names))
    return Descent(found_p <= level, min(1.0, found_p), level, similar)


def _units(weights: Mapping[str, Floats]) -> list[str]:
    """Weights that the next ones are applied to; square ones may as well be projections of attention."""
    tall = [(name, each.shape) for name, each in weights.items() if each.ndim >= 2]
    return [
        name for (name, shape), (_, after) in pairwise(tall)
        if shape[0] >= LEAST_UNITS and shape[0] != shape[1]
        and (after[1] == shape[0] or (len(shape) > 2 and len(after) == 2 and after[1] % shape[0] == 0))
    ]  # fmt: skip


def _ranked(one: Any, two: Any, siblings: list[Any], names: list[str], level: float) -> Descent:
    """The rank of ours among its siblings by the similarity of what sets each, and the suspect, apart from their mean.

    Fine-tuning on other data moves weights far, but in few directions: so singular values of what sets the suspect apart are
    made equal. Any similarity is as exact that treats ours and its siblings alike.
    """
    group = [one, *siblings]
    if len(group) < (1 - 1e-9) / level:
        raise InvalidValue(f"{len(siblings)} siblings cannot show p <= {level:g}; train {math.ceil(1 / level) - 1}.")
    cosines = np.zeros((len(group), len(names)))
    for place, name in enumerate(names):
        middle = np.mean([each[name] for each in group], axis=0)
        left, sizes, right = np.linalg.svd((two[name] - middle).reshape(len(middle), -1), full_matrices=False)
        kept = sizes > 1e-9 * max(float(sizes[0]), 1e-300)
        toward = (left[:, kept] @ right[kept]).ravel()
        apart = np.array([(each[name] - middle).ravel() for each in group])
        cosines[:, place] = apart @ toward / np.maximum(np.linalg.norm(apart, axis=1) * np.linalg.norm(toward), 1e-300)
    total = cosines.sum(axis=1)
    p = float((total >= total[0] - 1e-12).mean())
    return Descent(p <= level, p, level, dict(zip(names, cosines[0].tolist())), len(siblings))


def _layer(one: Floats, two: Floats, orders: int, random: np.random.Generator) -> tuple[float, float]:
    """The p-value of one layer, and the mean cosine of its units."""
    cosine = _rows(one) @ _rows(two).T
    count, seen = len(cosine), float(np.trace(cosine))
    places = np.arange(count)
    others = np.array([cosine[random.permutation(count), places].sum() for _ in range(orders)])
    return float((1 + (others >= seen - 1e-12).sum()) / (1 + orders)), seen / count


def _rows(weights: Floats) -> Floats:
    flat = weights.reshape(len(weights), -1)
    flat = flat - flat.mean(axis=0)  # what all units share says nothing of their order
    return np.asarray(flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12))


def _weights(model: Any) -> dict[str, Floats]:
    found = model.state_dict() if hasattr(model, "state_dict") else model
    if not isinstance(found, Mapping):
        raise InvalidValue(f"A torch module or weights by name are compared; got {type(model).__name__}.")
    made = {}
    for name, each in found.items():
        array = each.detach().double().cpu().numpy() if hasattr(each, "detach") else np.asarray(each, np.float64)
        if not np.isfinite(array).all():
            raise InvalidValue(f"The weights {name!r} hold NaN or infinity.")
        made[name] = array
    return made
