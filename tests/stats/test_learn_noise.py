"""What a step draws: the size and the law of its noise, the number of units in its batch, the steps nobody takes part in.

Noise is seeded. Each check of a right engine would fail under a fresh seed with probability at most 1e-6; there are fewer
than 20 of them.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from discreet.learn import Automatic, Flat, PerLayer
from discreet.learn.sgd import sampling
from discreet.noise.source import seeded_for_tests
from unit.learn.tools import rows, start, updates

torch.set_num_threads(1)

ALPHA = 1e-6


@pytest.fixture(autouse=True)
def _seeded(request):
    with seeded_for_tests(request.node.name.encode()):
        yield


def of_size(noise, scale):
    """Whether the sum of squares is that of independent normal numbers of this scale; two-sided."""
    total = float(np.square(noise / scale).sum())
    return 2 * min(stats.chi2.cdf(total, noise.size), stats.chi2.sf(total, noise.size)) > ALPHA


def normal(noise, scale):
    """Whether the numbers are normal: Kolmogorov and Smirnov's test of the whole law."""
    return stats.kstest(noise.ravel() / scale, "norm").pvalue > ALPHA


@pytest.mark.parametrize(("sigma", "clip", "divisor"), [(1.0, 1.0, 1.0), (0.7, 0.1, 64.0), (12.0, 3.0, 1000.0)])
@pytest.mark.parametrize("clipping", [Flat, PerLayer, Automatic])
def test_noise_has_its_scale_to_a_third_of_a_percent(sigma, clip, divisor, clipping):
    """Over 4 million numbers a wrong scale of 0.4 % would be noticed."""
    run = start(
        rows((0, 0.0)),
        numbers=1_000_000,
        steps=4,
        noise_multiplier=sigma,
        divisor=divisor,
        clip_norm=None,
        clipping=clipping(clip),
    )
    seen, scale = updates(run), sigma * clip / divisor
    assert of_size(seen, scale)
    assert not of_size(seen, 1.004 * scale)
    assert not of_size(seen, 0.996 * scale)
    assert normal(seen[:, ::20], scale)


def test_noise_of_a_budget_has_the_scale_that_was_accounted():
    run = start(rows((0, 0.0)), numbers=400_000, steps=2, rate=0.5, epsilon=1.5, divisor=7.0)
    assert of_size(updates(run), run.plan.noise_multiplier / 7.0)
    assert run.plan.epsilon() <= 1.5


def test_noise_of_steps_is_independent():
    """Neighbouring numbers and neighbouring steps do not know of each other."""
    seen = updates(start(rows((0, 0.0)), numbers=200_000, steps=4))
    for one, other in ((seen[0], seen[1]), (seen[:, :-1].ravel(), seen[:, 1:].ravel()), (seen[0, :100_000], seen[0, 100_000:])):
        together = float((one * other).mean() * np.sqrt(one.size))
        assert abs(together) < stats.norm.isf(ALPHA / 2)


def test_an_empty_batch_is_pure_noise_of_the_same_size():
    """Steps that nobody takes part in cannot be told from those of units without a gradient."""
    run = start(rows((0, 50.0)), rate=0.02, steps=60, numbers=5000)
    seen = updates(run)
    taken = np.array([len(run.plan.sampler.draw(run._state.key, step, 1)) for step in range(60)])
    assert 0 < (taken == 0).sum() < 60 or taken.sum() == 0
    assert of_size(seen[taken == 0], 1.0)
    assert of_size(seen[:, 1:], 1.0)
    assert normal(seen[taken == 0][:, 0], 1.0)


@pytest.mark.parametrize(("rate", "units"), [(0.01, 400), (0.3, 40), (0.5, 7), (1.0, 5)])
def test_the_batch_of_a_poisson_step_is_binomial(rate, units):
    """Drawn by the sampler that a run has; a chi-square test over the sizes that are not rare."""
    sampler, steps = start(rows((0, 1.0)), rate=rate, steps=100).plan.sampler, 4000
    sizes = np.bincount([len(sampler.draw(bytes(32), step, units)) for step in range(steps)], minlength=units + 1)
    law = stats.binom.pmf(np.arange(units + 1), units, rate) * steps
    often = law >= 5
    seen = np.append(sizes[often], sizes[~often].sum())
    wanted = np.append(law[often], law[~often].sum())
    if len(wanted) == 2 and wanted[1] < 1e-9:
        assert seen[1] == 0
        return
    kept = wanted > 1e-9
    assert not seen[~kept].any()
    assert stats.chisquare(seen[kept], wanted[kept] * seen.sum() / wanted[kept].sum()).pvalue > ALPHA


def test_units_are_drawn_alike_and_on_their_own():
    """Every unit as often as its rate says; pairs as often as the product; batches of neighbouring steps share nothing."""
    rate, units, steps = 0.2, 50, 4000
    sampler = sampling.Poisson(rate)
    taken = np.zeros((steps, units), bool)
    for step in range(steps):
        taken[step, sampler.draw(b"k" * 32, step, units)] = True
    each = taken.sum(0)
    level = ALPHA / units / 2
    assert (each >= stats.binom.ppf(level, steps, rate)).all()
    assert (each <= stats.binom.isf(level, steps, rate)).all()
    centred = (taken - rate) / np.sqrt(rate * (1 - rate))
    beside = float((centred[:, :-1] * centred[:, 1:]).sum() / np.sqrt(steps * (units - 1)))
    after = float((centred[:-1] * centred[1:]).sum() / np.sqrt((steps - 1) * units))
    assert max(abs(beside), abs(after)) < stats.norm.isf(ALPHA / 2) * 1.05
