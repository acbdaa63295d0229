"""A clip norm that follows a quantile, audited: who sees updates and norms together learns no more than one Gaussian step.

The norm is put back after every step, so that steps are independent trials. The observer knows the canary, which is always
clipped: it adds the whole clip norm to one number, and takes one half off the count behind the norm. Noise is seeded; each
judgement would go wrong under a fresh seed with probability at most ALPHA: the file's false-alarm rate is below 1e-6.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from discreet.audit import epsilon_lower_bound, verdict
from discreet.core import Claim
from discreet.learn import Adaptive, Postprocess
from discreet.learn.sgd import draws
from discreet.noise.source import seeded_for_tests
from unit.learn.tools import rows, start, trials

torch.set_num_threads(1)

ALPHA = 1e-7
STEPS, DIVISOR, PULL = 6000, 20.0, 100.0


def seen(data):
    """Updates and counts as the observer sees them, each over its own noise, [steps, 2]; and the run."""
    found, updates = [], []
    run = start(
        data, steps=STEPS, divisor=DIVISOR, clip_norm=None, clipping=Adaptive(1.0), noise_multiplier=1.0,
        postprocess=Postprocess(gradient=lambda gradients, noise: updates.append(float(gradients[0][0, 0]) / noise)),
    )  # fmt: skip
    for _ in run:
        norm, speed = run._sum.clipping.norm, run._sum.clipping.speed
        moved = -math.log(norm) / speed  # the noisy share of the unclipped, less the quantile
        found.append((updates[-1], moved * DIVISOR / run._noise.count_noise()))
        run._sum.clipping.norm = 1.0
    return np.array(found), run


def evidence():
    """Scores are likelihood ratios of what a step shows with the canary and without."""
    (inside, run), (outside, _) = seen(rows((1, 0.0), (0, PULL))), seen(rows((1, 0.0)))
    means = inside.mean(0) - outside.mean(0)
    return trials(inside, outside, lambda step: step @ means), run


def judged(found, run):
    whole = run.plan.claim()
    claim = Claim(game=whole.game, event=run.plan.event(1), assumptions=whole.assumptions)
    return verdict(claim, found, confidence=1 - ALPHA, delta=0.01).outcome


def test_sum_and_count_together_cost_what_is_claimed():
    with seeded_for_tests(b"quantile"):
        found, run = evidence()
    floor = epsilon_lower_bound(found.score, found.inside, found.run, 0.01, 1 - ALPHA)
    assert 0.6 * run.plan.epsilon(1) < floor
    assert judged(found, run) == "holds"


@pytest.mark.parametrize("twin", ["nothing is paid for the count", "the count has hardly any noise"])
def test_a_count_that_is_not_paid_for_is_refuted(twin, monkeypatch):
    """The noise of the sum stays the plan's, as if the norm came for nothing; or the count is shown nearly as it is."""
    monkeypatch.setattr(draws, "split", lambda noise, count_noise: noise)
    small = 0.25 if twin == "nothing is paid for the count" else 0.05
    monkeypatch.setattr(draws.StepNoise, "count_noise", lambda self: small)
    with seeded_for_tests(twin.encode()):
        found, run = evidence()
    assert judged(found, run) == "refuted"
