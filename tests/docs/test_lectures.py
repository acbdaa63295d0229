"""Every figure in the table of docs/theory/lectures.md, computed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from discreet.accounting import (
    Gaussian,
    Laplace,
    Poisson,
    Pure,
    RandomizedResponse,
    Repeat,
    WithoutReplacement,
    calibrate,
    closed,
    curve,
)

PAGE = (Path(__file__).parents[2] / "docs/theory/lectures.md").read_text()


def row(name: str) -> list[str]:
    return [cell.strip() for cell in next(line for line in PAGE.splitlines() if line.startswith(f"| {name}")).split(" | ")]


def run(noise: float) -> Repeat:
    return Repeat(WithoutReplacement(1 / 1000, Gaussian(noise / 2)), 1000)


def hair() -> float:
    """The least chance of the right answer: every other colour as common as the second."""
    return 1 / (1 + 3 * math.exp(-0.05 * 101))


CELLS = {
    "Laplace noise": (f"scale {closed.laplace_scale(1.0, 0.5):g}", f"{calibrate(Laplace, 0.5, 0.0):.0f}"),
    "Gaussian noise": (f"σ = {closed.gaussian_sigma_classic(1.0, 0.5, 1e-5):.2f}", f"{calibrate(Gaussian, 0.5, 1e-5):.2f}"),
    "group privacy": (f"{closed.group_epsilon(0.1, 5):g}", "0.5"),
    "α-privacy": (f"ε = {closed.epsilon_of_alpha(2.0):.3f}", "the coin with 3/4"),
    "sampling": (f"{closed.sampled_epsilon(1.0, 0.01):.4f}", f"{curve(Poisson(0.01, Pure(1.0))).epsilon(0):.4f}"),
    "advanced composition": (
        f"{closed.advanced_composition(0.1, 0.0, 100, 1e-5)[0]:.2f}",
        f"{curve(Repeat(Pure(0.1), 100)).epsilon(1e-5):.2f}",
    ),
    "SGD": (f"σ = {closed.sgd_sigma(1.0, 1000, 1000, 1.0, 1e-5):.2f}", f"{calibrate(run, 1.0, 1e-5):.2f}"),
    "exponential mechanism": (f"≥ {1 - 4 * math.exp(-5):.3f}", f"≥ {hair():.3f}"),
    '"broken"': (f"{closed.broken_probability(1.0, 0.0, 1e6):.1e}", f"{curve(Pure(1.0)).power(1e-6):.1e}"),
}


@pytest.mark.parametrize("name", CELLS)
def test_the_table_shows_what_is_computed(name: str) -> None:
    gives, tight = CELLS[name]
    *_, shown, last = row(name)
    assert shown == gives.replace("e-06", "e-6")
    assert last.removesuffix(" |").strip(" |") == tight.replace("e-06", "e-6")


def test_the_coin() -> None:
    assert curve(RandomizedResponse(closed.epsilon_of_alpha(2.0))).epsilon(0) == pytest.approx(math.log(3))


def test_the_classic_formula_beyond_one() -> None:
    assert f"{curve(Gaussian(math.sqrt(2 * math.log(1.25e5)) / 10)).delta(10.0):.1e}" == "2.3e-05"
