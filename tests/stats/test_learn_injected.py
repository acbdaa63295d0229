"""Gradient canaries beside a real training: the sound engine holds, and each planted bug is refuted in one run.

`bench/audit_training.py` has the bugs and counts how often each is found; here each is planted once. The noise of the engine is
seeded. A sound run is judged twice at a confidence of 1 - 1e-6: false alarms of 2e-6 under a fresh seed.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

import discreet
from benches import bench
from discreet.accounting import curve
from discreet.audit import epsilon_at_least
from discreet.errors import InvalidValue
from discreet.learn import inject_gradient_canaries, train
from discreet.learn.sgd.gradient_canaries import judged
from discreet.noise.source import seeded_for_tests

torch.set_num_threads(1)


BENCH = bench("audit_training")


@pytest.fixture(autouse=True)
def _seeded(request):
    with seeded_for_tests(request.node.name.encode()):
        yield


def audited(name, confidence):
    """One run of the bench with this bug, its coins seeded too."""
    bug = BENCH.BUGS[name]
    loss = nn.CrossEntropyLoss(reduction="none")
    injected = inject_gradient_canaries(
        nn.Linear(20, 2), BENCH.rows(), loss, canaries=BENCH.CANARIES, clip_norm=BENCH.CLIP, seed=5
    )
    said = BENCH.started(injected, BENCH.EPSILON).plan
    with bug.plant(0):
        injected.trained(BENCH.started(injected, bug.really))
    how = {"rate": BENCH.RATE, "noise_multiplier": said.noise_multiplier, "step": BENCH.CLIP / BENCH.DIVISOR}
    claim = said.claim()
    return judged(claim, injected.evidence(**how), confidence=confidence), injected.evidence(**how, together=True), claim


@pytest.mark.parametrize("name", [name for name in BENCH.BUGS if name != "sound"])
def test_a_planted_bug_is_refuted_in_one_run(name):
    found, _, _ = audited(name, 0.95)
    assert found.outcome == "refuted", found


def test_the_sound_engine_is_not():
    found, together, claim = audited("sound", 1 - 1e-6)
    assert found.outcome == "holds", found
    tiny = 1e-12  # in one run many canaries and so sure a bound leave room for no more
    assert 1.0 < epsilon_at_least(together, tiny, 1 - 1e-6) <= curve(claim.event).epsilon(tiny)


def test_the_model_learns_beside_its_canaries():
    """Two classes far apart, noise that hardly matters: nearly all rows are told apart after a few steps."""
    torch.manual_seed(0)
    y = torch.randint(2, (400,))
    x = torch.randn(400, 5) + 4.0 * (y[:, None] - 0.5)
    injected = inject_gradient_canaries(
        nn.Linear(5, 2), (x, y), nn.CrossEntropyLoss(reduction="none"), canaries=1000, clip_norm=1.0, seed=1
    )
    optimizer = torch.optim.SGD(injected.model.parameters(), 1.0)
    run = train(injected.model, optimizer, injected.data, injected.loss, unit=discreet.record(), delta=1e-5, rate=0.5, steps=20,
                clip_norm=1.0, noise_multiplier=1.0, divisor=200)  # fmt: skip
    injected.trained(run)
    assert (injected.model.model(x).argmax(1) == y).float().mean() > 0.95
    assert len(injected.seen) == 20


def test_what_cannot_be_planted_or_read():
    loss = nn.CrossEntropyLoss(reduction="none")
    with pytest.raises(InvalidValue, match="as tensors"):
        inject_gradient_canaries(nn.Linear(3, 2), [1, 2], loss, canaries=10, clip_norm=1.0)
    data = torch.randn(20, 3), torch.randint(2, (20,))
    injected, other = (inject_gradient_canaries(nn.Linear(3, 2), data, loss, canaries=10, clip_norm=1.0) for _ in range(2))
    with pytest.raises(InvalidValue, match="Nothing was seen"):
        injected.evidence(rate=0.5, noise_multiplier=1.0, step=1.0)
    run = train(other.model, torch.optim.SGD(other.model.parameters(), 0.1), other.data, other.loss, unit=discreet.record(),
                delta=1e-5, rate=0.5, steps=2, clip_norm=1.0, noise_multiplier=1.0, divisor=10)  # fmt: skip
    with pytest.raises(InvalidValue, match="trains another model"):
        injected.trained(run)
