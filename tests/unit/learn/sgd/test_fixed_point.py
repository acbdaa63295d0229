from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import discreet
from discreet.accounting import curve
from discreet.accounting.profile import gaussian_delta
from discreet.core.event import Gaussian, Poisson
from discreet.errors import InvalidValue
from discreet.learn import BandMF, FixedPoint, Flat
from discreet.learn.sgd.fixed_point import Grid
from discreet.learn.sgd.run import Run
from discreet.learn.sgd.train import train
from discreet.noise.source import seeded_for_tests
from discreet.noise.vectors import ROUNDING, TILE

KEY = bytes(range(32))


def square(steps: np.ndarray) -> int:
    return sum(int(step) ** 2 for step in steps)


vectors = st.lists(st.floats(-(2.0**100), 2.0**100, width=32) | st.floats(-2, 2, width=32), min_size=1, max_size=40)


@given(vectors, st.floats(1e-6, 1e6), st.integers(200, 1 << 24))
def test_no_contribution_is_longer_than_the_radius(values: list[float], clip_norm: float, radius: int) -> None:
    grid = Grid(clip_norm=clip_norm, noise_multiplier=1.0, size=len(values), radius=radius)
    assert square(grid.rounded(torch.tensor(values))) <= radius**2


@given(vectors, st.floats(1e-3, 1e3))
def test_rounding_moves_a_clipped_gradient_by_a_step_or_so(values: list[float], clip_norm: float) -> None:
    grid = Grid(clip_norm=clip_norm, noise_multiplier=1.0, size=len(values))
    x = np.array(values, np.float32).astype(float)
    clipped = x * min(1, clip_norm / max(np.linalg.norm(x), 1e-300))
    moved = grid.rounded(torch.tensor(values)) * (clip_norm / grid.radius) - clipped
    step = clip_norm / grid.radius
    assert np.abs(moved).max() <= 4 * step  # half a step, and a little more where it had to be shortened
    if np.linalg.norm(x) < 0.999 * clip_norm:
        assert np.abs(moved).max() <= 0.5001 * step


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_counts_as_nothing(bad: float) -> None:
    assert not Grid(clip_norm=1.0, noise_multiplier=1.0, size=3).rounded(torch.tensor([1.0, bad, 2.0])).any()


def test_where_rounding_up_would_be_too_long() -> None:
    """300 equal coordinates of 57.7 steps each would all become 58: the twin that does not look again is too long."""
    grid = Grid(clip_norm=1.0, noise_multiplier=1.0, size=300, radius=1000)
    gradient = torch.ones(300)
    twin = np.rint(gradient.double().numpy() * 1000 / math.sqrt(300)).astype(np.int64)
    assert square(twin) > 1000**2
    assert 0.9 * 1000**2 < square(grid.rounded(gradient)) <= 1000**2


@given(st.floats(0.01, 100), st.integers(200, 1 << 24))
def test_sigma_leaves_the_claimed_noise_after_rounding(noise_multiplier: float, radius: int) -> None:
    grid = Grid(clip_norm=1.0, noise_multiplier=noise_multiplier, size=9, radius=radius)
    wanted = (Fraction(noise_multiplier) * radius) ** 2 + ROUNDING**2
    assert (grid.sigma - 1) ** 2 < wanted <= grid.sigma**2
    assert grid.event() == Gaussian(noise_multiplier)


@settings(max_examples=10)
@given(st.integers(0, 3 * TILE), st.integers(0, 3 * TILE), st.integers(0, 2**40))
def test_any_part_of_the_noise_is_a_part_of_the_whole(a: int, b: int, step: int) -> None:
    grid = Grid(clip_norm=1.0, noise_multiplier=1.0, size=3 * TILE)
    start, end = min(a, b), max(a, b)
    assert np.array_equal(grid.noise(KEY, step=step, offset=start, count=end - start), grid.noise(KEY, step=step)[start:end])


def test_key_step_and_position_each_matter() -> None:
    grid = Grid(clip_norm=1.0, noise_multiplier=1.0, size=2 * TILE)
    base = grid.noise(KEY, step=0)
    for other in (grid.noise(KEY, step=1), grid.noise(bytes(32), step=0), np.roll(base, TILE)):
        assert (base == other).mean() < 0.01
    assert abs(base.std() / grid.sigma - 1) < 0.012  # 6 standard deviations of it: false alarm below 1e-8


# ---- the event -------------------------------------------------------------------------------------------------------


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def discrete(sigma: float, shift: int, reach: int) -> np.ndarray:
    weight = np.exp(-((np.arange(-reach, reach + 1) - shift) ** 2) / 2 / sigma**2)
    return weight / np.exp(-(np.arange(-40 * reach, 40 * reach + 1) ** 2) / 2 / sigma**2).sum()


@pytest.mark.parametrize("shift", [(5, 0), (3, 4), (4, -3), (1, 1), (7, 1)])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_a_vector_is_never_worse_than_the_gaussian_of_its_event(shift: tuple[int, int], epsilon: float, rate: float) -> None:
    """Two numbers, both directions, also on a Poisson sample, by summing over all outputs."""
    sigma, reach = 6, 90
    without = np.multiply.outer(discrete(sigma, 0, reach), discrete(sigma, 0, reach)).ravel()
    moved = np.multiply.outer(discrete(sigma, shift[0], reach), discrete(sigma, shift[1], reach)).ravel()
    with_unit = (1 - rate) * without + rate * moved
    gaussian = Gaussian(math.sqrt(sigma**2 - ROUNDING**2) / math.hypot(*shift))
    allowed = curve(Poisson(rate, gaussian)).delta(epsilon)
    found = max(hockey_stick(with_unit, without, epsilon), hockey_stick(without, with_unit, epsilon))
    assert found <= allowed + 1e-12


def test_without_the_allowance_for_rounding_the_bound_would_fail() -> None:
    """The twin that claims the Gaussian of the same sigma: a coarse grid breaks it, if only just."""
    sigma, reach, shift = 0.6, 40, 1
    found = hockey_stick(discrete(sigma, shift, reach), discrete(sigma, 0, reach), 0.0)
    assert found > float(gaussian_delta(shift / sigma, np.array([0.0]))[0])


def test_sums_in_floats_move_by_more_than_the_clip_norm() -> None:
    """What the grid is for. Adding one contribution changes how all later ones round; whole numbers do not round."""
    rng = np.random.default_rng(5)
    units = rng.normal(size=2000).astype(np.float32)
    units *= np.float32(1) / np.abs(units).max()  # one coordinate, clip norm 1
    moves = []
    for left_out in range(200):
        rest = np.delete(units, left_out)
        moves.append(abs(float(np.cumsum(units)[-1]) - float(np.cumsum(rest)[-1])) - abs(float(units[left_out])))
    assert max(moves) > 0
    grid = Grid(clip_norm=1.0, noise_multiplier=1.0, size=1)
    steps = [grid.rounded(torch.tensor([u])) for u in units[:300]]
    assert all(square(sum(steps) - sum(steps[:i] + steps[i + 1 :])) <= grid.radius**2 for i in range(300))


# ---- training --------------------------------------------------------------------------------------------------------


def made(units: int, **options: object) -> Run:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    data = torch.randn(40, 4)[:units], torch.randint(2, (40,))[:units]
    arguments: dict[str, object] = {
        "unit": discreet.record(), "noise_multiplier": 1.0, "delta": 1e-5, "rate": 0.5, "steps": 3,
        "clipping": FixedPoint(0.1), "divisor": 20.0, **options,
    }  # fmt: skip
    return train(model, torch.optim.SGD(model.parameters(), 0.1), data, nn.CrossEntropyLoss(reduction="none"), **arguments)  # type: ignore[arg-type]


def first_total(units: int) -> np.ndarray:
    with seeded_for_tests(b"grid"):
        run = made(units)
        next(iter(run))
    return run._sum.engine.total  # type: ignore[attr-defined]


def test_a_neighbour_differs_by_one_contribution() -> None:
    """The same noise, the same draws, one unit less: the whole numbers differ by at most the radius, exactly."""
    moved = [square(first_total(40) - first_total(units)) for units in (39, 38)]
    assert moved[0] <= (1 << 40)
    assert moved[1] <= 4 * (1 << 40)
    assert max(moved) > 0.9 * (1 << 40)  # clip norm 0.1 clips all of them, and one of the two was drawn


def test_it_trains_and_says_so_in_its_claim() -> None:
    run = made(40)
    for step in run:
        assert step.number <= 3
    claim = run.release().claims[0]
    assert "computed by itself" in claim.assumptions[0]
    assert claim.event == made(40, clipping=Flat(0.1)).plan.event()
    assert "floating-point" in made(40, clipping=Flat(0.1)).plan.claim().assumptions[0]


def test_the_update_is_the_noisy_sum() -> None:
    with seeded_for_tests(b"update"):
        run = made(40, steps=2)
        before = torch.cat([p.detach().flatten() for p in run.model.parameters()]).clone()
        next(iter(run))
        after = torch.cat([p.detach().flatten() for p in run.model.parameters()])
    grid = run._sum.engine.grid  # type: ignore[attr-defined]
    assert torch.allclose(before - after, 0.1 * grid.values(run._sum.engine.total, 20.0), atol=1e-7)  # type: ignore[attr-defined]


def test_exact_noise_does_not_go_with_correlated_noise() -> None:
    """Another clipping beside it cannot be written: FixedPoint is one."""
    with pytest.raises(InvalidValue, match="BandMF correlated noise; use one"):
        made(40, rate=None, sampling=BandMF(0.5, bands=2))


def test_arguments_out_of_range() -> None:
    with pytest.raises(InvalidValue, match="rounded away"):
        Grid(clip_norm=1.0, noise_multiplier=1.0, size=10**6, radius=1000)
    with pytest.raises(InvalidValue, match="at most 3, the numbers there are"):
        Grid(clip_norm=1.0, noise_multiplier=1.0, size=3).noise(KEY, step=0, offset=2, count=2)
    with pytest.raises(InvalidValue, match="must hold 3 numbers"):
        Grid(clip_norm=1.0, noise_multiplier=1.0, size=3).rounded(torch.zeros(4))
