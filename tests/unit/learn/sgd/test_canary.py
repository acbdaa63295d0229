"""Training as a mechanism: its updates are its output, and an attack reads a direction off them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import discreet
from discreet.audit import Pair
from discreet.core import Attack, Mechanism
from discreet.errors import InvalidValue
from discreet.learn import Aligned, Training, replay_run
from discreet.learn.sgd.canary import watch
from discreet.noise.source import seeded_for_tests
from unit.learn.tools import rows, start, updates

torch.set_num_threads(1)

BASE, MORE = rows((1, 1.0), (2, -1.0)), rows((1, 1.0), (2, -1.0), (0, 100.0))


def test_the_output_is_the_update_of_every_step():
    training = Training(lambda data: start(data, lr=0.5, steps=3), BASE)
    assert isinstance(training, Mechanism)
    assert isinstance(Aligned(), Attack)
    assert training.claims() == (start(BASE, steps=3).plan.claim(),)
    with seeded_for_tests(b"updates"):
        found = training.run(MORE)
    with seeded_for_tests(b"updates"):
        run = start(MORE, lr=0.5, steps=3)
        before = run.model.weight.detach().clone()
        seen = updates(run)
    assert found.shape == (3, 4)
    assert np.array_equal(found, seen)
    moved = (before - run.model.weight.detach()).flatten().numpy()
    assert np.allclose(moved, 0.5 * found.sum(0), atol=1e-5)


def test_a_direction_is_a_number_or_a_vector():
    seen = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    assert Aligned().score(seen, [0, np.int64(1), [1.0, -1.0]]).tolist() == [4.0, 6.0, -2.0]


def test_a_claim_that_depends_on_the_data_is_no_claim():
    training = Training(lambda data: start(data, noise_multiplier=1.0 + len(data[0])), BASE)
    with pytest.raises(InvalidValue, match="depends on its data"):
        training.run(MORE)


def test_evidence_is_about_the_unit_and_the_view_of_the_claim():
    evidence = discreet.audit(Training(start, BASE), Aligned(), Pair(MORE, BASE, target=0, seed=1), runs=3)
    assert evidence.game == start(BASE).plan.claim().game
    assert evidence.attack == "gradient canary"


def test_an_update_can_be_put_in_the_place_of_another():
    run = start(MORE, lr=1.0)
    before = run.model.weight.detach().clone()
    watch(run, lambda number, update: torch.full_like(update, 2.0))
    for _ in run:
        pass
    assert torch.allclose(before - run.model.weight.detach(), torch.tensor(2.0))


def test_a_replay_leaves_the_users_generator_alone():
    torch.manual_seed(6)
    wanted = torch.rand(3)
    torch.manual_seed(6)
    questions = replay_run(lambda data: start(data, steps=2), MORE, BASE)
    assert [question.distance for question in questions] == pytest.approx([1.0, 1.0], rel=1e-3)
    assert torch.equal(torch.rand(3), wanted)
