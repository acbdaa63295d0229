"""Private training as a user meets it: iterate, ask what was spent, release; own loops, checkpoints, ledgers, kills."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import discreet
from discreet.core.event import DiscreteLaplace, Gaussian, Group, Poisson, PoissonReplace, RandomAllocation, Repeat, Sequence
from discreet.errors import BudgetExceeded, DiscreetError, InvalidDocument, InvalidValue
from discreet.learn import (
    Adaptive,
    Augment,
    Automatic,
    BallsInBins,
    BandMF,
    Checkpoint,
    Performance,
    Postprocess,
    Step,
    read,
    shrink,
    train,
)
from discreet.noise.source import seeded_for_tests

torch.set_num_threads(1)

SRC = Path(discreet.__file__).parents[1]
EACH = nn.CrossEntropyLoss(reduction="none")
ADAPTIVE = {"clip_norm": None, "clipping": Adaptive(1.0)}


def data(count=60):
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, 6, generator=generator), torch.randint(3, (count,), generator=generator)


def net():
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Dropout(0.25), nn.Linear(8, 3))


def begin(rows=None, model=None, **options):
    model = model or net()
    given = {"unit": discreet.record(), "delta": 1e-5, "rate": 0.3, "steps": 12, "clip_norm": 1.0, "divisor": 18.0} | options
    if "epsilon" not in given:
        given.setdefault("noise_multiplier", 1.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    return train(model, optimizer, rows or data(), EACH, **given)


def finish(run):
    for _ in run:
        pass
    return weights(run.model)


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def near(one, other):
    return all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


@pytest.fixture
def seeded():
    with seeded_for_tests(b"a test of training"):
        yield


# Iteration and what it tells


def test_iterating_trains_and_shows_nothing_but_numbers():
    run = begin(steps=5)
    before = weights(run.model)
    steps = list(run)
    assert steps == [Step(number, 5) for number in range(1, 6)]
    assert {field.name for field in fields(Step)} == {"number", "steps"}
    assert len(run) == 5
    assert list(run) == []
    assert not same(before, weights(run.model))


def test_the_model_is_the_users_own():
    model = net()
    names, kinds = list(model.state_dict()), [type(module) for module in model.modules()]
    run = begin(model=model)
    finish(run)
    assert run.model is model
    assert list(model.state_dict()) == names
    assert [type(module) for module in model.modules()] == kinds
    assert all("forward" not in module.__dict__ for module in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_spent_grows_to_the_budget_and_not_over_it():
    run = begin(epsilon=3.0)
    assert run.spent() == 0.0
    found = [run.spent() for _ in run]
    assert found == sorted(found)
    assert found[0] > 0
    assert 2.9 < found[-1] <= 3.0


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("divisor", [18.0, None])
def test_the_noise_found_for_a_budget_keeps_it(epsilon, divisor):
    plan = begin(epsilon=epsilon, divisor=divisor).plan
    assert 0.95 * epsilon < plan.epsilon() <= epsilon


def test_the_event_is_what_runs():
    assert begin().plan.event() == Repeat(Poisson(0.3, Gaussian(1.0)), 12)
    assert begin(divisor=None).plan.event() == Sequence([DiscreteLaplace(50), Repeat(Poisson(0.3, Gaussian(1.0)), 12)])


@pytest.mark.parametrize(
    ("relation", "sampling", "event"),
    [
        ("replace", {}, Repeat(PoissonReplace(0.25, Gaussian(1.0)), 12)),
        ("zero_out", {}, Repeat(Poisson(0.25, Gaussian(1.0)), 12)),
        ("replace", {"sampling": BandMF(0.25, bands=2)}, Repeat(PoissonReplace(0.5, Gaussian(1.0)), 6)),
        ("replace", {"sampling": BallsInBins(4)}, Repeat(Group(RandomAllocation(Gaussian(1.0), 4), 2), 3)),
        ("zero_out", {"sampling": BallsInBins(4)}, Repeat(RandomAllocation(Gaussian(1.0), 4), 3)),
    ],
)
def test_the_unit_decides_which_event_is_claimed(relation, sampling, event):
    run = begin(unit=discreet.record(relation), **({"rate": None} | sampling if sampling else {"rate": 0.25}))
    finish(run)
    assert run.release().claims[0].event == run.plan.event() == event


def test_a_replaced_unit_takes_more_noise_for_the_same_budget():
    removed, replaced = (begin(unit=discreet.record(each), epsilon=2.0).plan for each in ("add_remove", "replace"))
    assert replaced.noise_multiplier > 1.2 * removed.noise_multiplier
    assert 1.9 < replaced.epsilon() <= 2.0


def test_a_dataset_and_its_tensors_train_alike(seeded):
    x, y = data()
    with seeded_for_tests(b"twice"):
        first = finish(begin((x, y)))
    with seeded_for_tests(b"twice"):
        assert same(first, finish(begin(TensorDataset(x, y))))


# A loop of one's own, and microbatches


def test_a_loop_of_ones_own_is_the_same_training():
    with seeded_for_tests(b"loop"):
        wanted = finish(begin())
    with seeded_for_tests(b"loop"):
        run = begin()
        for x, y in run.batches():
            run.step(EACH(run.model(x), y))
    assert run.number == 12
    assert same(wanted, weights(run.model))


@pytest.mark.parametrize("microbatch", [1, 4, 1000])
def test_microbatches_change_speed_only(microbatch):
    """Dropout draws per piece, so it is off here."""
    with seeded_for_tests(b"pieces"):
        wanted = finish(begin(model=net().eval()))
    with seeded_for_tests(b"pieces"):
        assert near(wanted, finish(begin(model=net().eval(), performance=Performance(microbatch=microbatch))))


class Inplace(nn.Module):
    """Changes the rows that it is given."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x.mul_(2.0))


def test_a_batch_of_all_rows_is_no_copy_unless_somebody_changes_it(monkeypatch):
    x, y = data()
    seen = []
    run = begin((x, y), rate=1.0, steps=2)
    plain = run._sum.proven_losses
    monkeypatch.setattr(run._sum, "proven_losses", lambda batch: (seen.append(batch[0].data_ptr()), plain(batch))[1])
    monkeypatch.setattr(run, "_check_rows", lambda: None)
    finish(run)
    assert seen.count(x.data_ptr()) == 2
    own = begin((x, y), rate=1.0, steps=2)
    for rows, target in own.batches():  # a loop of one's own may do with them what it likes
        assert rows.data_ptr() != x.data_ptr()
        own.step(EACH(own.model(rows), target))


def test_a_model_that_changes_its_input_changes_a_copy():
    x, y = data()
    before = x.clone()
    finish(begin((x, y), model=Inplace(), rate=1.0, steps=2))
    assert torch.equal(x, before)


def test_rows_that_ask_for_a_gradient_get_none():
    x, y = data()
    x.requires_grad_()
    finish(begin((x, y), rate=1.0, steps=2))
    assert x.grad is None


def test_other_rows_may_be_looked_at_inside_a_loop_of_ones_own():
    """Without gradients, of any number: layers, and modules that are copied for every example."""

    def trained(look):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(6, 8), nn.PReLU(8), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(12, 3))
        model.insert(2, nn.Unflatten(1, (1, 8)))
        run = begin(model=model)
        with seeded_for_tests(b"look"):
            for x, y in run.batches():
                losses = EACH(model(x), y)
                if look:
                    with torch.no_grad():
                        model(torch.randn(7, 6))
                run.step(losses)
        return weights(model)

    assert same(trained(True), trained(False))


def test_a_loop_that_forgets_its_losses_or_gives_them_twice():
    run = begin()
    with pytest.raises(InvalidValue, match="belongs inside"):
        run.step(torch.zeros(3))
    with pytest.raises(InvalidValue, match=r"without run\.step"):
        for _ in run.batches():
            pass
    run = begin(rate=1.0)
    for x, y in run.batches():
        run.step(EACH(run.model(x), y))
        with pytest.raises(InvalidValue, match="once for every batch"):
            run.step(torch.zeros(len(y)))
        break
    assert run.number == 0


def test_losses_of_another_shape_are_refused_in_a_loop_of_ones_own():
    run = begin(rate=1.0)
    loop = run.batches()
    x, y = next(loop)
    with pytest.raises(InvalidValue, match=r"one number for each example.*; got a single number"):
        run.step(EACH(run.model(x), y).mean())
    loop.close()
    assert all("forward" not in module.__dict__ for module in run.model.modules())


def test_a_layer_that_is_fixed_meanwhile_stays_where_it_is():
    """Noise is for what is trained; without a gradient below it, it would be all that moves a layer."""
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    run = train(
        model, torch.optim.SGD(model.parameters(), 0.5, momentum=0.9), data(), EACH, unit=discreet.record(),
        noise_multiplier=1.0, delta=1e-5, rate=0.3, steps=4, clip_norm=1.0, divisor=10.0,
    )  # fmt: skip
    steps = iter(run)
    next(steps)
    model[0].requires_grad_(False)
    fixed, other = model[0].weight.clone(), model[2].weight.clone()
    next(steps)
    assert torch.equal(model[0].weight, fixed)
    assert not torch.equal(model[2].weight, other)


def test_a_broken_off_loop_takes_the_same_step_again():
    """Nothing was released of it, so the same batch and the same noise tell nothing new."""
    with seeded_for_tests(b"broken off"):
        wanted = finish(begin(model=net().eval()))
    with seeded_for_tests(b"broken off"):
        run = begin(model=net().eval())
        for x, y in run.batches():
            run.step(EACH(run.model(x), y))
            break
        assert run.number == 0
        assert near(wanted, finish(run))


def test_two_loops_at_once_are_refused():
    """One would add its sums to the noise of the other: the noise of a step would be released twice."""
    run = begin(rate=1.0, performance=Performance(microbatch=20))
    one, other = run.batches(), run.batches()
    next(one)
    x, y = next(other)
    run.step(EACH(run.model(x), y))
    with pytest.raises(InvalidValue, match="Another loop"):
        next(one)
    run = begin(rate=1.0)
    loop = run.batches()
    x, y = next(loop)
    next(iter(run))
    with pytest.raises(InvalidValue, match="belongs inside"):
        run.step(torch.zeros(len(y)))


# Release


def test_a_release_has_model_and_claim(tmp_path):
    run = begin(epsilon=3.0, source="people")
    trained = finish(run)
    made = run.release(tmp_path / "model")
    assert made.value is run.model
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["model.safetensors", "release.json"]
    other = net()
    again = read(tmp_path / "model", other)
    assert same(trained, weights(other))
    assert again.claims == made.claims == (run.plan.claim(),)
    assert again.source == "people"
    assert run.plan.claim().game.view == frozenset({"transcript"})


def test_a_release_tells_what_it_cost_along_the_way_and_which_weights_it_means(tmp_path):
    run = begin(epsilon=3.0)
    finish(run)
    facts = run.release(tmp_path / "model").facts
    digest = hashlib.sha256((tmp_path / "model" / "model.safetensors").read_bytes()).hexdigest()
    assert facts["hashes"] == {"model.safetensors": f"sha256:{digest}"}
    assert facts == read(tmp_path / "model", net()).facts
    steps, epsilons = zip(*facts["spending"])
    assert list(steps) == sorted(set(steps))
    assert (steps[0], steps[-1]) == (0, run.plan.steps)
    assert list(epsilons) == sorted(epsilons)
    assert epsilons[-1] == run.plan.epsilon()


def test_a_run_that_stops_early_claims_its_whole_plan():
    """When it stopped may have depended on the data."""
    run = begin(epsilon=3.0)
    for step in run:
        if step.number == 2:
            break
    assert run.release().claims[0].event == run.plan.event()
    assert run.spent() < 3.0


def test_nothing_is_released_before_training_or_with_a_seed(tmp_path):
    with pytest.raises(InvalidValue, match="Nothing has been trained"):
        begin().release(tmp_path / "model")
    with seeded_for_tests(b"known"):
        run = begin()
        finish(run)
    with pytest.raises(InvalidValue, match="anyone can repeat"):
        run.release(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_weights_that_diverged_are_not_released(tmp_path):
    model = net()
    run = begin(model=model, steps=3)
    next(iter(run))
    with torch.no_grad():
        model[0].weight.fill_(float("nan"))
    with pytest.raises(DiscreetError, match="no longer finite"):
        run.release(tmp_path / "model")
    assert not (tmp_path / "model").exists()


# Checkpoints


@pytest.mark.parametrize("stop", [1, 5, 11])
@pytest.mark.parametrize("more", [{}, ADAPTIVE, {"divisor": None}, {"rate": None, "sampling": BallsInBins(4)}])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tmp_path, stop, more):
    """Dropout and momentum included."""
    with seeded_for_tests(b"resumed"):
        wanted = finish(begin(**more))
    with seeded_for_tests(b"resumed"):
        run = begin(checkpoint=Checkpoint(tmp_path / "run", every=4), **more)
        for step in run:
            if step.number == stop:
                break
    torch.manual_seed(99)
    again = begin(checkpoint=Checkpoint(tmp_path / "run", every=4), **more)
    assert again.number == stop // 4 * 4
    assert same(wanted, finish(again))
    assert again.spent() == run.plan.epsilon()


def test_a_checkpoint_by_hand_goes_on_elsewhere(tmp_path):
    with seeded_for_tests(b"by hand"):
        run = begin()
        steps = iter(run)
        next(steps)
        assert oct(run.save(tmp_path / "run").stat().st_mode)[-3:] == "600"
        wanted = finish(run)
    assert same(wanted, finish(begin(checkpoint=tmp_path / "run")))


@pytest.mark.parametrize(
    "other",
    [
        {"noise_multiplier": 0.5}, {"rate": 0.2}, {"steps": 13}, {"clip_norm": 2.0}, {"divisor": None}, {"divisor": 9.0},
        {"clip_norm": None, "clipping": Automatic(1.0)},
        {"rate": None, "sampling": BallsInBins(3)}, {"unit": discreet.user("who", rows=2)},
        {"rate": None, "sampling": BandMF(0.3, bands=2)},
    ],
)  # fmt: skip
def test_a_checkpoint_of_another_plan_is_refused(tmp_path, other):
    run = begin(checkpoint=Checkpoint(tmp_path / "run", every=1))
    next(iter(run))
    if "unit" in other:
        other = {**other, "owners": list(range(60))}
    with pytest.raises(InvalidDocument, match=r"another plan|another way|the divisor"):
        begin(checkpoint=tmp_path / "run", **other)


def turned(x):
    return x.flip(1)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"postprocess": Postprocess(radius=2.0)}, "another radius"), ({"augment": turned}, "another augment"),
        ({"postprocess": Postprocess(gradient=shrink)}, "another postprocessing"),
        ({"augment": Augment(turned, copies=2)}, "another copies, another augment"),
    ],
)  # fmt: skip
def test_a_checkpoint_of_other_gradients_is_refused(tmp_path, other, what):
    """Two versions of one step, with the same noise, would tell the difference of their gradients without any."""
    next(iter(begin(checkpoint=Checkpoint(tmp_path / "run", every=1))))
    with pytest.raises(InvalidDocument, match=what):
        begin(checkpoint=tmp_path / "run", **other)


def test_a_checkpoint_of_another_loss_is_refused(tmp_path):
    next(iter(begin(checkpoint=Checkpoint(tmp_path / "run", every=1))))
    model = net()
    with pytest.raises(InvalidDocument, match="another loss"):
        train(
            model, torch.optim.SGD(model.parameters(), 0.5), data(), lambda output, target: 2 * EACH(output, target),
            unit=discreet.record(), delta=1e-5, rate=0.3, steps=12, clip_norm=1.0, divisor=18.0, noise_multiplier=1.0,
            checkpoint=tmp_path / "run",
        )  # fmt: skip


def test_a_checkpoint_of_other_data_or_of_another_model_is_refused(tmp_path):
    run = begin(checkpoint=Checkpoint(tmp_path / "run", every=1))
    next(iter(run))
    with pytest.raises(InvalidDocument, match="another number of units"):
        begin(data(61), checkpoint=tmp_path / "run")
    with pytest.raises(InvalidDocument, match="does not fit this model"):
        begin(model=nn.Linear(6, 3), checkpoint=tmp_path / "run")


def test_a_checkpoint_of_changed_rows_or_of_another_optimizer_is_refused(tmp_path):
    """Steps that are taken again have the same noise; with other rows, or another path, it could be taken away."""
    run = begin(checkpoint=Checkpoint(tmp_path / "run", every=1))
    next(iter(run))
    x, y = data()
    x[7] += 1
    with pytest.raises(InvalidDocument, match="other rows"):
        begin((x, y), checkpoint=tmp_path / "run")
    model = net()
    with pytest.raises(InvalidDocument, match="made with SGD, not Adam"):
        train(
            model, torch.optim.Adam(model.parameters(), 0.1), data(), EACH, unit=discreet.record(), delta=1e-5, rate=0.3,
            steps=12, clip_norm=1.0, divisor=18.0, noise_multiplier=1.0, checkpoint=tmp_path / "run",
        )  # fmt: skip
    document = torch.load(tmp_path / "run")
    torch.save({name: it for name, it in document.items() if name != "key"}, tmp_path / "run")
    with pytest.raises(InvalidDocument, match="not a checkpoint of this version"):
        begin(checkpoint=tmp_path / "run")


def test_a_run_is_not_copied():
    run = begin()
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InvalidValue, match="same noise twice"):
            copied(run)


@pytest.mark.parametrize("left", [0, 10, -1])
def test_a_damaged_checkpoint_is_refused(tmp_path, left):
    run = begin(checkpoint=Checkpoint(tmp_path / "run", every=1))
    next(iter(run))
    content = (tmp_path / "run").read_bytes()
    (tmp_path / "run").write_bytes(content[:left] if left >= 0 else content[: len(content) // 2])
    with pytest.raises(InvalidDocument, match="cannot be read as a checkpoint"):
        begin(checkpoint=tmp_path / "run")


def test_a_checkpoint_is_never_half_written(tmp_path, monkeypatch):
    run = begin(checkpoint=Checkpoint(tmp_path / "run", every=1))
    steps = iter(run)
    next(steps)
    before = (tmp_path / "run").read_bytes()
    monkeypatch.setattr(torch, "save", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        next(steps)
    assert (tmp_path / "run").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "run.steps"]


# The ledger


@pytest.fixture
def ledger(tmp_path):
    made = discreet.Ledger(tmp_path / "ledger.db")
    made.open("people", unit=discreet.record(), epsilon=5.0, delta=1e-4)
    return made


def kinds(ledger):
    return [entry.kind for entry in ledger.history("people")]


def test_the_ledger_is_charged_before_the_first_draw(ledger, monkeypatch):
    run = begin(epsilon=2.0, ledger=ledger, source="people")
    assert kinds(ledger) == ["open"]
    seen = []
    right = run.plan.sampler.draw
    monkeypatch.setattr(type(run.plan.sampler), "draw", lambda self, *a: seen.append(kinds(ledger)) or right(*a))
    finish(run)
    assert seen[0] == ["open", "reserve"]
    made = run.release()
    assert kinds(ledger) == ["open", "reserve", "settle"]
    assert made.entry is not None
    assert ledger.spent("people") > 0


def test_a_budget_that_does_not_hold_the_plan(ledger):
    run = begin(epsilon=50.0, ledger=ledger, source="people")
    before = weights(run.model)
    with pytest.raises(BudgetExceeded):
        next(iter(run))
    assert kinds(ledger) == ["open", "refuse"]
    assert ledger.spent("people") == 0
    assert same(before, weights(run.model))
    assert run.spent() == 0.0


@pytest.mark.parametrize(
    "way",
    [{"rate": 0.25}, {"rate": None, "sampling": BallsInBins(4)}, {"rate": None, "sampling": BandMF(0.25, bands=3)}],
    ids=["poisson", "balls in bins", "banded"],
)
def test_a_budget_holds_one_run_of_exactly_its_size(tmp_path, way):
    """With half of its delta set aside, as budgets are opened; and nothing after it."""
    with discreet.Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=discreet.record(), epsilon=1.0, delta=1e-5)
        finish(begin(epsilon=1.0, delta=1e-5, ledger=ledger, source="people", **way))
        assert ledger.spent("people") == 1.0
        assert ledger.left("people") == 0.0
        with pytest.raises(BudgetExceeded, match="asks epsilon 1 at delta 1e-5"):
            finish(begin(epsilon=1.0, delta=1e-5, ledger=ledger, source="people", **way))
        with pytest.raises(BudgetExceeded):
            ledger.reserve("people", begin(noise_multiplier=1e3, delta=1e-5).plan.claim())
        ledger.verify()


def test_a_run_is_shown_as_it_was_asked(ledger):
    finish(begin(epsilon=3.0, delta=1e-4, ledger=ledger, source="people"))
    found = ledger.balance("people")
    assert found.epsilon_spent == 3.0
    assert "by basic composition" in found.total_in_words()


def test_a_ledger_of_another_unit_refuses(ledger):
    run = begin(epsilon=1.0, unit=discreet.user("who", rows=2), owners=list(range(60)), ledger=ledger, source="people")
    with pytest.raises(DiscreetError, match=r"unit|user|record"):
        next(iter(run))
    assert ledger.spent("people") == 0


def test_seeded_noise_is_never_charged(ledger):
    with seeded_for_tests(b"known"), pytest.raises(InvalidValue, match="seeded source"):
        next(iter(begin(epsilon=1.0, ledger=ledger, source="people")))
    assert ledger.spent("people") == 0


def test_a_failure_inside_the_run_keeps_the_charge(ledger):
    """Whether it came may depend on the data."""
    broken = False

    def loss(output, target):
        if broken:
            raise RuntimeError("of the user's own")
        return EACH(output, target)

    model = net()
    run = train(
        model, torch.optim.SGD(model.parameters(), 0.1), data(), loss, unit=discreet.record(), epsilon=2.0, delta=1e-5,
        rate=0.3, steps=30, clip_norm=1.0, ledger=ledger, source="people",
    )  # fmt: skip
    steps = iter(run)
    for _ in range(4):
        next(steps)
    broken = True
    with pytest.raises(RuntimeError, match=r"RuntimeError at test_train\.py"):
        next(steps)
    broken = False
    assert kinds(ledger) == ["open", "reserve"]
    spent = ledger.spent("people")
    assert spent > 0
    ledger.verify()
    finish(run)  # the same run goes on, and pays nothing more
    run.release()
    assert ledger.spent("people") == spent


def test_a_checkpoint_that_no_ledger_paid_for_is_refused(ledger, tmp_path):
    run = begin(epsilon=1.0, checkpoint=Checkpoint(tmp_path / "run", every=1))
    next(iter(run))
    with pytest.raises(InvalidDocument, match="paid for by no ledger"):
        begin(epsilon=1.0, checkpoint=tmp_path / "run", ledger=ledger, source="people")


KILLED = """
import os, signal, sys, torch
sys.path[:0] = {path!r}
import discreet
from unit.learn.sgd.test_train import Checkpoint, begin, weights
from discreet.learn.sgd.sampling import Poisson
ledger = discreet.Ledger({place!r} + "/ledger.db")
run = begin(epsilon=2.0, ledger=ledger, source="people", checkpoint=Checkpoint({place!r} + "/run", every=2))
if {stop} == 0:
    Poisson.draw = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
for step in run:
    if step.number == {stop}:
        torch.save(weights(run.model), {place!r} + "/seen")
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("stop", [0, 5])
def test_a_killed_run_has_paid_once_and_goes_on(ledger, tmp_path, stop):
    """Killed before its first draw, and between two checkpoints: it replays what it lost, bit for bit."""
    script = KILLED.format(path=[str(SRC), str(Path(__file__).parents[3])], place=str(tmp_path), stop=stop)
    ended = subprocess.run([sys.executable, "-c", script], timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert ended.returncode == -signal.SIGKILL
    spent = ledger.spent("people")
    assert spent > 0
    assert kinds(ledger) == ["open", "reserve"]
    ledger.verify()
    run = begin(epsilon=2.0, ledger=ledger, source="people", checkpoint=Checkpoint(tmp_path / "run", every=2))
    assert run.number == stop // 2 * 2
    for step in run:
        if step.number == stop:
            assert same(torch.load(tmp_path / "seen"), weights(run.model))
    made = run.release(tmp_path / "model")
    assert made.entry == run._state.entries[0] is not None
    assert ledger.spent("people") == spent
