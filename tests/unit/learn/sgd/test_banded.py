"""Correlated noise: the matrix, the noise against a dense solve, the sampling and the event that belongs to it."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from discreet.accounting import calibrate, curve  # noqa: E402
from discreet.core import event as events  # noqa: E402
from discreet.errors import InvalidValue  # noqa: E402
from discreet.learn.sgd.banded import Banded, best  # noqa: E402
from discreet.learn.sgd.sampling import Poisson  # noqa: E402
from discreet.learn.sgd.stream import Stream  # noqa: E402

KEY = bytes(range(32))


def dense(banded: Banded) -> np.ndarray:
    matrix = np.zeros((banded.steps, banded.steps))
    for step in range(banded.steps):
        for back in range(min(banded.bands, step + 1)):
            matrix[step, step - back] = banded.matrix[step, back]
    return matrix


def sums(steps: int, momentum: float) -> np.ndarray:
    """What each gradient is worth in the weights after each step, by running the optimizer."""
    out = np.zeros((steps, steps))
    for one in range(steps):
        weight = velocity = 0.0
        for step in range(steps):
            velocity = momentum * velocity + (step == one)
            weight += velocity
            out[step, one] = weight
    return out


CASES = [(20, 2, 0.0), (33, 5, 0.0), (40, 40, 0.0), (24, 6, 0.9)]


@pytest.mark.parametrize(("steps", "bands", "momentum"), CASES)
def test_columns_have_length_one_and_those_a_band_apart_share_no_row(steps, bands, momentum):
    matrix = dense(Banded(1 / bands, steps=steps, bands=bands, momentum=momentum))
    lengths = np.linalg.norm(matrix, axis=0)
    assert lengths.max() <= 1
    assert lengths.min() > 1 - 1e-9
    assert np.all(np.triu(matrix, 1) == 0)
    for step in range(steps - bands):
        assert not np.any((matrix[:, step] != 0) & (matrix[:, step + bands] != 0))


@pytest.mark.parametrize(("steps", "bands", "momentum"), CASES)
def test_noise_is_that_of_a_dense_solve(steps, bands, momentum):
    banded, stream = Banded(1 / bands, steps=steps, bands=bands, momentum=momentum), Stream(KEY)
    plain = np.stack([stream.fill(torch.empty(50), step=step).numpy() for step in range(steps)]).astype(float)
    truth = np.linalg.solve(dense(banded), plain)
    for step in range(steps):
        found = banded.fill(stream, torch.empty(50), step=step, scale=2.0).numpy()
        assert np.allclose(found, 2 * truth[step], atol=1e-4)


@pytest.mark.parametrize(("steps", "bands", "momentum"), CASES)
def test_errors_are_those_of_the_dense_matrix(steps, bands, momentum):
    banded = Banded(1 / bands, steps=steps, bands=bands, momentum=momentum)
    rows = sums(steps, momentum) @ np.linalg.inv(dense(banded))
    assert np.allclose(banded.errors(), np.linalg.norm(rows, axis=1), rtol=1e-8)


def test_one_band_is_plain_descent_bit_for_bit():
    banded, stream = Banded(0.1, steps=30, bands=1), Stream(KEY)
    for step in (0, 7, 29):
        assert torch.equal(
            banded.fill(stream, torch.empty(99), step=step, scale=0.3), stream.fill(torch.empty(99), step=step, scale=0.3)
        )
        assert np.array_equal(banded.draw(KEY, step, 1000), Poisson(0.1).draw(KEY, step, 1000))
    noise = events.Gaussian(1.0)
    assert banded.event(noise, 30) == Poisson(0.1).event(noise, 30)


def test_shards_restarts_and_repeats_give_the_same_bits():
    stream = Stream(KEY)
    whole, parts = Banded(0.1, steps=30, bands=4), Banded(0.1, steps=30, bands=4)
    for step in range(20):
        row = whole.fill(stream, torch.empty(100), step=step, scale=0.5)
        made = [
            parts.fill(stream, torch.empty(size), step=step, offset=at, scale=0.5) for at, size in ((0, 37), (37, 63), (37, 0))
        ]
        assert torch.equal(torch.cat(made), row)
    assert torch.equal(whole.fill(stream, torch.empty(100), step=19, scale=0.5), row)  # the same step again
    assert torch.equal(Banded(0.1, steps=30, bands=4).fill(Stream(KEY), torch.empty(100), step=19, scale=0.5), row)  # resumed
    before = whole.fill(stream, torch.empty(100), step=3)  # back in time
    assert torch.equal(Banded(0.1, steps=30, bands=4).fill(stream, torch.empty(100), step=3), before)
    added = whole.noise(stream, torch.ones(100), step=3)
    assert torch.equal(added, before + 1)


def test_more_bands_leave_less_noise_in_sums():
    found = [Banded(0.01, steps=128, bands=bands).error() for bands in (1, 2, 4, 8, 16, 64)]
    assert found[0] == pytest.approx(math.sqrt(np.mean(np.arange(1, 129))))
    assert found == sorted(found, reverse=True)
    assert found[3] < found[0] / 2


def test_one_repeated_column_is_nearly_the_best_banded_matrix():
    """The best banded C, by gradient descent on X = C'C with a diagonal of ones, over which the error is convex."""
    from scipy.optimize import minimize

    steps, bands = 32, 4
    gram = sums(steps, 0.0).T @ sums(steps, 0.0)
    upper = np.where(np.triu(np.abs(np.subtract.outer(np.arange(steps), np.arange(steps))) < bands, 1))

    def error(x):
        matrix = np.eye(steps)
        matrix[upper] = matrix.T[upper] = x
        if np.linalg.eigvalsh(matrix)[0] < 1e-9:
            return 1e3, np.zeros_like(x)
        inverse = np.linalg.inv(matrix)
        total = np.sum(inverse * gram)
        return math.log(total), -2 * (inverse @ gram @ inverse)[upper] / total

    ours = Banded(0.1, steps=steps, bands=bands)
    start = dense(ours).T @ dense(ours)
    found = minimize(error, start[upper], jac=True, method="L-BFGS-B", options={"maxiter": 500})
    least = math.sqrt(math.exp(found.fun) / steps)
    assert least <= ours.error() <= 1.02 * least


def test_a_unit_takes_part_at_most_once_in_as_many_steps_as_there_are_bands():
    banded = Banded(0.1, steps=200, bands=5)
    when: dict[int, list[int]] = {unit: [] for unit in range(60)}
    for step in range(200):
        for unit in banded.draw(KEY, step, 60).tolist():
            when[unit].append(step)
    assert all(len({step % 5 for step in steps}) <= 1 for steps in when.values())
    taken = sum(map(len, when.values()))
    assert abs(taken - 60 * 200 * 0.1) < 5.5 * math.sqrt(60 * 40 * 0.5 * 0.5)  # false alarms below 1e-7
    groups = {steps[0] % 5 for steps in when.values() if steps}
    assert groups == set(range(5))  # some group of 60 units is empty with probability below 1e-5: seeded


def test_the_event_counts_how_often_a_unit_may_take_part():
    banded = Banded(0.02, steps=100, bands=8)
    noise = events.Gaussian(2.0)
    assert banded.event(noise, 100) == events.Repeat(events.Poisson(0.16, noise), 13)
    assert banded.event(noise, 8) == events.Repeat(events.Poisson(0.16, noise), 1)
    with pytest.raises(InvalidValue, match="Gaussian noise only"):
        banded.event(events.Laplace(1.0), 10)


def test_the_best_number_of_bands_is_never_worse_than_one():
    def least(epsilon):
        return lambda banded: calibrate(lambda noise: banded.event(events.Gaussian(noise), 100), epsilon=epsilon, delta=1e-6)

    few, many = best(0.05, 100, least(0.5)), best(0.05, 100, least(10.0))
    assert few.bands <= many.bands
    assert many.bands > 1
    plain = Banded(0.05, steps=100, bands=1)
    for epsilon, found in ((0.5, few), (10.0, many)):
        assert least(epsilon)(found) * found.error() <= least(epsilon)(plain) * plain.error()
        assert curve(found.event(events.Gaussian(least(epsilon)(found)), 100)).epsilon(1e-6) <= epsilon


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda: Banded(0.3, steps=100, bands=4), "Use at most 3 bands"),
        (lambda: Banded(0.0, steps=100, bands=4), "above 0"),
        (lambda: Banded(0.01, steps=3, bands=4), "at most the number of steps"),
        (lambda: Banded(0.01, steps=30, bands=4, momentum=1.0), "momentum"),
        (lambda: Banded(0.01, steps=30, bands=4).fill(Stream(KEY), torch.empty(3), step=30), "step must be at most 29"),
        (lambda: Banded(0.01, steps=30, bands=4).event(events.Gaussian(1.0), 31), "steps must be at most 30"),
    ],
)
def test_what_makes_no_sense_is_refused(act, says):
    with pytest.raises(InvalidValue, match=says):
        act()
