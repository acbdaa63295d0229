"""The table of beliefs in the guide to choosing epsilon is what the curves say."""

from __future__ import annotations

import pytest
from snippets import ROOT

from discreet.accounting import Gaussian, Pure, calibrate, curve
from discreet.figures import percent_up

PAGE = (ROOT / "docs/guides/epsilon.md").read_text()


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 8.0])
def test_beliefs_are_those_of_the_curve(epsilon: float) -> None:
    ceiling = curve(Pure(epsilon))
    cells = [
        f"{epsilon:g}",
        *(percent_up(ceiling.posterior(prior)) for prior in (0.01, 0.1, 0.5)),
        percent_up(ceiling.power(0.01)),
    ]
    assert f"| {' | '.join(cells)} |" in PAGE


def test_one_gaussian_is_better_than_its_epsilon() -> None:
    noise = calibrate(Gaussian, epsilon=8.0, delta=1e-6)
    assert 0.21 < curve(Gaussian(noise)).power(0.01) <= 0.22
    assert "22 % true positives" in PAGE
