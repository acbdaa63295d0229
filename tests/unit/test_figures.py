"""Numbers for people: a loss is never rounded down, a floor never up."""

from __future__ import annotations

import math

import pytest

from discreet import figures


@pytest.mark.parametrize("value", [0.1, 1 / 3, 2 / 3, 1e-12, 123456.7, 9.9999e-5, 99999999.0, 0.0])
def test_losses_are_rounded_up_and_floors_down(value: float) -> None:
    assert float(figures.down(value)) <= value <= float(figures.up(value))
    assert float(figures.up(value)) <= value * 1.001
    assert float(figures.percent_down(value)[:-2]) / 100 <= value * (1 + 1e-15)


def test_what_is_not_a_number_is_said() -> None:
    assert [figures.up(value) for value in (math.inf, -math.inf, math.nan)] == ["∞", "-∞", "unknown"]
