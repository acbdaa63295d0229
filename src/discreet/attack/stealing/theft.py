"""Was this model fine-tuned from ours? A test of two sets of weights with a bounded rate of false accusations.

Hidden units have no order: their first weights are drawn alike, and training treats them alike. So whoever trained a network
of their own, on whatever data, has units whose order says nothing about ours: against the suspect, our layer is as likely in
any other order of its units. The sum of similarities of unit 1 with unit 1, 2 with 2, … is compared with the same sum in
random orders; its rank is a p-value that is exact, whatever the suspect is (a permutation test; Zhu et al. 2025 test language
models so).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
LEAST_UNITS = 8


@dataclass(frozen=True)
class Descent:
    """`accused` where p is at most `level`: an independent suspect is accused no more often than that.

    `similarity` is the mean cosine of units in the same place, by layer.
    """

    accused: bool
    p: float
    level: float
    similarity: Mapping[str, float]

    def __str__(self) -> str:
        told = ", ".join(f"{name} {value:.3f}" for name, value in self.similarity.items())
        if self.accused:
            return f"made from ours (p = {self.p:.2g}, at most {self.level:g} of independent models are accused): {told}"
        return f"no sign that it was made from ours (p = {self.p:.2g}): {told}"


def descended(
    ours: Any, suspect: Any, *, layers: Iterable[str] | None = None, level: float = 1e-3, orders: int = 9_999, seed: int = 0
) -> Descent:
    """Compare two torch modules, or two sets of weights by name, of the same shapes.

    `layers` names the weights whose first axis are hidden units; by default every weight of two or more axes but the last,
    whose units are classes. The p-value is the least over layers, times their number. A thief who changes the order of units,
    or who trained a student on answers, is not seen. Two models that were both made from a third, public one are found as
    well.

    >>> random = np.random.default_rng(0)
    >>> ours, other = ({"a.weight": random.normal(size=(32, 9)), "b.weight": random.normal(size=(3, 32))} for _ in range(2))
    >>> tuned = {name: each + 0.3 * random.normal(size=each.shape) for name, each in ours.items()}
    >>> descended(ours, tuned).accused, descended(ours, other).accused
    (True, False)
    """
    one, two = _weights(ours), _weights(suspect)
    names = list(layers) if layers is not None else [name for name in one if one[name].ndim >= 2][:-1]
    check.open_fraction("level", level)
    names = [name for name in names if name not in one or len(one[name]) >= LEAST_UNITS or layers is not None]
    if not names:
        raise InvalidValue(f"No layer of {LEAST_UNITS} hidden units or more was found to compare; name them: layers=[…].")
    for name in names:
        if name not in one or name not in two or one[name].shape != two[name].shape:
            found = [each[name].shape if name in each else "none" for each in (one, two)]
            raise InvalidValue(f"Both models need weights {name!r} of one shape; they have {found[0]} and {found[1]}.")
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
