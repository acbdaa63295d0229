"""Every attack on a finished model: those that do not fit say why, and those that give up do not stop the others."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.attack.everything import PARTS, Case, Found, everything
from discreet.errors import InvalidValue, ModelUnreachable

RNG = np.random.default_rng(0)


def rows(count):
    return RNG.normal(size=(count, 4)).astype(np.float32), np.arange(count) % 2


def case(model, **more):
    return Case(model=model, members=rows(40), nonmembers=rows(80), access="scores", **more)


def why(found, name):
    (reason,) = (each for each in found.left_out if each.lower().startswith(name))
    return reason


def test_a_model_that_gives_one_class_to_all() -> None:
    found = everything(case(lambda X: np.tile([0.9, 0.1], (len(X), 1))))
    assert not found.tried
    assert "one class" in why(found, "stealing by a learned copy")
    assert "no column has 2 to 8 values" in why(found, "attribute inference")
    assert "recipe" in why(found, "property inference")
    assert "no pictures" in why(found, "model inversion")
    assert len(found.left_out) == len(PARTS)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (lambda X: np.full((len(X), 2), np.nan), "NaN or infinity"),
        (lambda X: np.ones((len(X) + 1, 2)), "line of numbers"),
    ],
)
def test_answers_that_are_none(model, says) -> None:
    assert says in why(everything(case(model)), "stealing by a learned copy")


def test_one_that_gives_up_does_not_stop_the_others() -> None:
    class Broken:
        name, view = "broken", frozenset({"labels"})

        def lacks(self, case):
            return None

        def run(self, case):
            raise ModelUnreachable("it did not answer")

    class Weights(Broken):
        name, view = "weights in hand", frozenset({"weights"})

    class Works(Broken):
        name = "works"

        def run(self, case):
            return Found({"stealing": [{"method": "a", "queries": 1}]})

    said = []
    found = everything(case(lambda X: X[:, :2]), parts=[Broken(), Weights(), Works(), Works()], say=said.append)
    assert found.tried == ("works", "works")
    assert found.left_out == (
        "Broken: it was tried and gave up: it did not answer", "Weights in hand: needs more than scores.",
    )  # fmt: skip
    assert len(found.facts["stealing"]) == 2
    assert len(said) == 3


def test_a_shape_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidValue, match="another size"):
        case(lambda X: X[:, :2], shape=(3, 3, 1))
    with pytest.raises(InvalidValue, match="access"):
        Case(model=None, members=rows(4), nonmembers=rows(4), access="everything")
