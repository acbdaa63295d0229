"""Training audited by gradient canaries: the floor comes close to the claim, and every broken twin is refuted.

The observer sees every update (the view that the claim is about) and knows all of the data but one unit, whose gradient
is a canary: all of the clip norm, along one number of the model. Weights stand still (learning rate 0), so steps are
independent trials of the same step; or one run holds many canaries, each with a number of the model of its own, whose
noise is independent of all others and so, where sampling is Poisson, is everything that was seen of it.

Noise is seeded. Each judgement of a right engine would go wrong under a fresh seed with probability at most ALPHA, fewer
than 30 of them here: the file's false-alarm rate is below 3e-6.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import discreet
from discreet.accounting import curve
from discreet.audit import Pair, epsilon_lower_bound, replay, verdict
from discreet.audit.binomial import rate_floor
from discreet.core import Claim
from discreet.errors import ClaimRefuted, InvalidValue
from discreet.learn import Adaptive, Automatic, BallsInBins, BandMF, Encoded, FixedPoint, Flat, Performance, PerLayer
from discreet.learn.sgd import clipped_sum
from discreet.learn.sgd.banded import Banded
from discreet.learn.sgd.canary import Aligned, Training, replay_run
from discreet.learn.sgd.engine import engine as engines
from discreet.learn.sgd.engine.tape import Record
from discreet.learn.sgd.path import Path
from discreet.learn.sgd.run import Run
from discreet.learn.sgd.sampling import Poisson
from discreet.learn.sgd.stream import Stream
from discreet.noise.source import seeded_for_tests
from unit.learn.tools import RECORD, rows, seen_by, start, trials, updates

torch.set_num_threads(1)

ALPHA = 1e-7
PULL = 100.0  # of a canary: far over the clip norm


@pytest.fixture(autouse=True)
def _seeded(request):
    with seeded_for_tests(request.node.name.encode()):
        yield


def claim_of(run, steps):
    """What so many steps claim."""
    whole = run.plan.claim()
    return Claim(game=whole.game, event=run.plan.event(steps), assumptions=whole.assumptions)


def judged(run, evidence, *, steps=1, delta=None):
    return verdict(claim_of(run, steps), evidence, confidence=1 - ALPHA, delta=delta)


# Many canaries in one run


def many(count, score=lambda seen: seen.sum(0), *, seed=1, **options):
    """One run with canaries, each inside by its own coin and pulling its own number; the run, and what was seen of each."""
    inside = np.random.default_rng(seed).random(count) < 0.5
    chosen = np.flatnonzero(inside)
    run = start((torch.from_numpy(chosen), torch.full((len(chosen),), PULL)), numbers=count, **options)
    return run, seen_by(score(updates(run)), inside, run.plan.unit)


def likelihood(rate, noise):
    """How much likelier these updates are with a canary that takes part at `rate`."""
    return lambda seen: np.log1p(rate * np.expm1((seen - 0.5) / noise**2)).sum(0)


@pytest.mark.parametrize(("epsilon", "clipping"), [(1.0, Flat), (2.0, Flat), (4.0, Flat), (2.0, PerLayer)])
def test_the_floor_is_within_a_quarter_of_the_claim(epsilon, clipping):
    """No family of mechanisms is assumed by this bound, and it holds at every threshold."""
    delta = 0.01
    run, evidence = many(400_000, epsilon=epsilon, delta=delta, clip_norm=None, clipping=clipping(1.0))
    floor = epsilon_lower_bound(evidence.score, evidence.inside, evidence.run, delta, 1 - ALPHA)
    assert 0.75 * epsilon <= floor <= run.plan.epsilon() <= epsilon
    assert judged(run, evidence).outcome == "holds"


def test_the_floor_at_a_small_delta():
    """At delta 1e-5 by the bound for Gaussian noise, which one step of everybody is."""
    _, evidence = many(200_000, epsilon=2.0, delta=1e-5)
    floor = epsilon_lower_bound(evidence.score, evidence.inside, evidence.run, 1e-5, 1 - ALPHA, method="gaussian")
    assert 0.75 * 2.0 <= floor <= 2.0


def test_the_floor_of_sampled_steps():
    """Four steps at rate a half: scores are likelihood ratios of all four updates, and only members can be told surely."""
    noise = start(rows((0, 1)), rate=0.5, steps=4, epsilon=2.0).plan.noise_multiplier
    run, evidence = many(400_000, likelihood(0.5, noise), rate=0.5, steps=4, epsilon=2.0)
    floor = epsilon_lower_bound(evidence.score, evidence.inside, evidence.run, 0.01, 1 - ALPHA, method="clopper_pearson")
    assert 0.75 * 2.0 <= floor <= 2.0
    assert judged(run, evidence, steps=4).outcome == "holds"


def test_the_floor_of_balls_in_bins():
    """One step of each four, nobody knows which: scores are likelihood ratios of all four updates."""
    options = {"rate": None, "steps": 4, "epsilon": 2.0, "sampling": BallsInBins(4)}
    noise = start(rows((0, 1)), **options).plan.noise_multiplier
    run, evidence = many(400_000, lambda seen: np.logaddexp.reduce((seen - 0.5) / noise**2, axis=0), **options)
    floor = epsilon_lower_bound(evidence.score, evidence.inside, evidence.run, 0.01, 1 - ALPHA, method="clopper_pearson")
    assert 0.75 * 2.0 <= floor <= 2.0
    assert judged(run, evidence, steps=4).outcome == "holds"


def through_bands(run, inside):
    """What is seen of each canary once correlated noise is made plain again; groups of canaries are taken to be known."""
    seen, sampler, steps = updates(run), run.plan.sampler, run.plan.steps
    matrix = np.zeros((steps, steps))
    for back in range(sampler.bands):
        matrix += np.diag(sampler.matrix[back:, back], -back)
    group = np.random.default_rng(3).integers(sampler.bands, size=len(inside))
    group[inside] = sampler._group(run._state.key, int(inside.sum()))
    moved = matrix.T @ (matrix @ seen)
    ratio = likelihood(sampler.rate * sampler.bands, run.plan.noise_multiplier)
    return sum(np.where(group == step % sampler.bands, ratio(moved[step : step + 1]), 0.0) for step in range(steps))


def many_in_bands(count):
    inside = np.random.default_rng(1).random(count) < 0.5
    chosen = torch.from_numpy(np.flatnonzero(inside))
    data = (chosen, torch.full((len(chosen),), PULL))
    run = start(data, numbers=count, epsilon=2.0, rate=None, sampling=BandMF(0.25, bands=4), steps=4)
    return run, seen_by(through_bands(run, inside), inside)


def test_the_floor_of_correlated_noise():
    run, evidence = many_in_bands(200_000)
    floor = epsilon_lower_bound(evidence.score, evidence.inside, evidence.run, 0.01, 1 - ALPHA)
    assert 0.75 * 2.0 <= floor <= 2.0
    assert judged(run, evidence, steps=4).outcome == "holds"


def test_a_unit_in_neighbouring_steps_under_correlated_noise(monkeypatch):
    """Its columns overlap: what it adds to one it adds to the next as well."""
    monkeypatch.setattr(Banded, "draw", lambda self, key, step, units: np.arange(units))
    twin, told = many_in_bands(2000)
    assert judged(twin, told, steps=4).outcome == "refuted"


def test_sums_on_a_grid():
    right, seen = worlds([(1, 0.0)], (0, PULL), 500, clip_norm=None, clipping=FixedPoint(1.0), noise_multiplier=1.5)
    assert judged(right, seen, delta=0.1).outcome == "holds"


def test_the_floor_where_units_are_people():
    """Three rows each, which together are worth one clip norm; microbatches, and the others' rows in between."""
    count = 200_000
    person = discreet.user("who", rows=3)
    inside = np.random.default_rng(2).random(count) < 0.5
    chosen = np.repeat(np.flatnonzero(inside), 3)
    run = start(
        (torch.from_numpy(chosen), torch.full((len(chosen),), PULL)), numbers=count, unit=person, owners=chosen, epsilon=2.0,
        performance=Performance(microbatch=30_000),
    )  # fmt: skip
    evidence = seen_by(updates(run).sum(0), inside, person)
    floor = epsilon_lower_bound(evidence.score, evidence.inside, evidence.run, 0.01, 1 - ALPHA)
    assert 0.75 * 2.0 <= floor <= 2.0


def test_the_game_as_others_play_it():
    """The same through `discreet.audit`: whole trainings of a moving model, one canary by a fair coin."""
    base, more = rows((1, 1), (2, -1)), rows((1, 1), (2, -1), (0, PULL))
    make = lambda data: start(data, lr=0.1, noise_multiplier=1.2)  # noqa: E731
    training = Training(make, base)
    evidence = discreet.audit(training, Aligned(), Pair(more, base, target=0, seed=5), runs=300)
    judgement = verdict(training.claims()[0], evidence, confidence=1 - ALPHA, delta=0.1)
    assert judgement.outcome == "holds", judgement
    assert epsilon_lower_bound(evidence.score, evidence.inside, evidence.run, 0.0, 0.95) > 0.1


# Broken twins


def scaled_noise(monkeypatch, share):
    """Noise of a part of the size, as where every rank adds its part and only one of them is kept."""
    right = Stream.fill
    monkeypatch.setattr(Stream, "fill", lambda self, out, *, scale, **at: right(self, out, scale=scale * share, **at))


@pytest.mark.parametrize("ranks", [2, 4])
def test_noise_divided_by_ranks_that_do_not_add_theirs(ranks, monkeypatch):
    right, seen = many(20_000, epsilon=2.0)
    scaled_noise(monkeypatch, ranks**-0.5)
    twin, less = many(20_000, epsilon=2.0)
    assert judged(right, seen).outcome == "holds"
    assert judged(twin, less).outcome == "refuted"


def test_noise_on_one_rank_alone(monkeypatch):
    """Every rank updates its own shard, but only the first draws noise."""
    right = Stream.fill

    def first_shard_only(self, out, **at):
        right(self, out, **at)
        out[len(out) // 2 :] = 0
        return out

    monkeypatch.setattr(Stream, "fill", first_shard_only)
    twin, seen = many(2000, epsilon=2.0)
    assert judged(twin, seen).outcome == "refuted"


def test_half_the_noise_is_seen_by_a_few_thousand_canaries(monkeypatch):
    scaled_noise(monkeypatch, 0.5)
    twin, seen = many(4000, epsilon=1.0)
    assert judged(twin, seen).outcome == "refuted"


class Shuffled(Poisson):
    """A loader that shuffles all units once per pass, under the name of Poisson sampling."""

    def draw(self, key, step, units):
        batches = round(1 / self.rate)
        order = np.random.default_rng([7, step // batches]).permutation(units)
        return np.sort(order[step % batches :: batches])


def test_a_shuffled_loader_is_not_poisson_sampling(monkeypatch):
    """Who is shuffled takes part once for sure; under Poisson sampling more than a third of them never do."""
    rate, noise = 0.1, 0.35
    options = {"rate": rate, "steps": 10, "noise_multiplier": noise}
    right, seen = many(20_000, likelihood(rate, noise), **options)
    monkeypatch.setattr("discreet.learn.sgd.train.Poisson", Shuffled)
    twin, shuffled = many(20_000, likelihood(rate, noise), **options)
    assert judged(right, seen, steps=10, delta=0.5).outcome == "holds"
    assert judged(twin, shuffled, steps=10, delta=0.5).outcome == "refuted"


class Last(Record):
    """Uses of one parameter with the norm of the last alone."""

    def __init__(self, records):
        self.records, self.parameters = records, records[0].parameters

    def squared_norms(self):
        return self.records[-1].squared_norms()

    def add(self, factors, into):
        for record in self.records:
            record.add(factors, into)


class Twice(nn.Module):
    """One table read twice by every example."""

    def __init__(self, numbers):
        super().__init__()
        self.table = nn.Embedding(numbers, 1)

    def forward(self, x):
        return self.table(x) + self.table(x.clone())


def test_tied_weights_counted_once(monkeypatch):
    right, seen = many(20_000, model=Twice(20_000), epsilon=1.0)
    monkeypatch.setattr(engines, "joined", lambda records, *_: [Last(records)])
    for look in ("probe", "check_training_mode"):  # which refuse such an engine
        monkeypatch.setattr(clipped_sum, look, lambda *_, **__: None)
    twin, longer = many(20_000, model=Twice(20_000), epsilon=1.0)
    assert judged(right, seen).outcome == "holds"
    assert judged(twin, longer).outcome == "refuted"


def test_the_probe_refuses_tied_weights_counted_once(monkeypatch):
    monkeypatch.setattr(engines, "joined", lambda records, *_: [Last(records)])
    with pytest.raises(InvalidValue, match="cannot tell which part"):
        start(rows((0, 1.0)), model=Twice(4))


# Twins about the batch as a whole: many steps of one canary


def worlds(base, canary, steps, *, score=lambda update: update[0], **options):
    """A run without the canary and one with it, as trials; the numbers of the model are few and stand still."""
    without = start(rows(*base), steps=steps, **options)
    seen = updates(start(rows(*base, canary), steps=steps, **options))
    return without, trials(seen, updates(without), score)


def spread(update):
    return float(np.square(update).sum())


def private_divisor(monkeypatch):
    """Batches of 4 rows: 64 rows make 16 of them, 65 make 17, and the batch size is rounded down."""
    right = Run._begin

    def begin(self):
        right(self)
        units = self._parts.rows.units
        self._state.divisor = float(units // math.ceil(units / 4))

    monkeypatch.setattr(Run, "_begin", begin)


def test_a_divisor_from_the_number_of_rows(monkeypatch):
    base, canary = [(0, 0.0)] * 64, (0, 0.0)
    options = {"score": spread, "numbers": 60, "rate": 1 / 16, "noise_multiplier": 10.0, "divisor": 4.0}
    right, seen = worlds(base, canary, 800, **options)
    private_divisor(monkeypatch)
    twin, told = worlds(base, canary, 800, **options)
    assert judged(right, seen).outcome == "holds"
    assert judged(twin, told).outcome == "refuted"
    with pytest.raises(ClaimRefuted, match="depends on the unit"):
        replay_run(lambda data: begun(start(data, divisor=4.0)), rows(*base, canary), rows(*base))


def begun(run):
    run._begin()
    return run


def empty_batches(monkeypatch, fill):
    """What happens where nobody was drawn: `fill(run)` gives the pieces instead."""
    right = Run._pieces

    def pieces(self, own=True):
        found = list(right(self))
        yield from found or fill(self)

    monkeypatch.setattr(Run, "_pieces", pieces)


def drop(run):
    """No step: nothing moves, and there is no noise."""
    run._sum.buffer.zero_()
    return []


def dummy(run):
    """A made-up record, which pulls the other way."""
    return [(rows((0, -PULL)), None)]


def test_empty_batches_dropped(monkeypatch):
    options = {"score": lambda update: float(update[0] != 0), "rate": 0.5, "noise_multiplier": 5.0}
    right, seen = worlds([(1, 0.0)], (0, PULL), 1500, **options)
    empty_batches(monkeypatch, drop)
    twin, told = worlds([(1, 0.0)], (0, PULL), 1500, **options)
    assert judged(right, seen, delta=0.05).outcome == "holds"
    assert judged(twin, told, delta=0.05).outcome == "refuted"


def right_more_often_than(claim, evidence, centre):
    """Whether guesses are right more often than any could be: (1 + delta) / 2, delta that of the claim at epsilon 0."""
    right = int(((evidence.score > centre) == evidence.inside).sum())
    return rate_floor(right, len(evidence), ALPHA) > (1 + curve(claim.event).delta(0.0)) / 2


def test_empty_batches_filled_with_a_dummy(monkeypatch):
    """A dummy pulls back where the canary pulls on: twice the distance that the noise is for."""
    options = {"rate": 0.5, "noise_multiplier": 1.2}
    right, seen = worlds([(1, 0.0)], (0, PULL), 3000, **options)
    empty_batches(monkeypatch, dummy)
    twin, told = worlds([(1, 0.0)], (0, PULL), 6000, **options)
    assert not right_more_often_than(claim_of(right, 1), seen, 0.5)
    assert right_more_often_than(claim_of(twin, 1), told, 0.25)
    with pytest.raises(ClaimRefuted, match=r"moves by 1\.999 "):
        replay_run(lambda data: start(data, rate=0.2, steps=20), rows((1, 0.0), (0, PULL)), rows((1, 0.0)))


class Coupled(nn.Module):
    """Every example is seen relative to the mean of its batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)

    def forward(self, x):
        return self.layer(x - x.mean(0))


def in_batch(values):
    return torch.tensor([[v] for v in values]), torch.ones(len(values))


def test_examples_that_interact(monkeypatch):
    """One outlier turns the gradients of 20 others around; noise is for one."""
    base, more = in_batch([1e-3, -1e-3] * 10), in_batch([1e-3, -1e-3] * 10 + [1e3])
    make = lambda data, steps: start(data, model=Coupled(), steps=steps, noise_multiplier=4.0)  # noqa: E731
    with pytest.raises(InvalidValue, match="changes when another example"):
        make(base, 1)
    monkeypatch.setattr(clipped_sum, "probe", lambda *_, **__: None)
    alone = make(base, 300)  # nothing was proven of it, so each example is computed by itself
    told = trials(updates(make(more, 300)), updates(alone), lambda update: -update[0])
    assert judged(alone, told).outcome == "holds"
    monkeypatch.setattr(Path, "fast", lambda self, batch: True)
    twin = make(base, 300)
    told = trials(updates(make(more, 300)), updates(twin), lambda update: -update[0])
    assert judged(twin, told).outcome == "refuted"
    with pytest.raises(ClaimRefuted, match=r"moves by 1[0-9]\.|moves by 2[0-9]"):
        replay_run(lambda data: make(data, 2), more, base)


def clip_pieces(monkeypatch):
    """Gradient accumulation that clips what each microbatch adds, not what each unit does."""
    right = clipped_sum.ClippedSum._add

    def add(self, engine, losses, weight, scale):
        tape = engine.tape
        tape.rows = tape.examples  # the whole piece as if it were one unit
        right(self, engine, losses, weight, scale)
        tape.rows = self.rows.rows

    monkeypatch.setattr(clipped_sum.ClippedSum, "_add", add)


def test_accumulation_that_clips_the_microbatch(monkeypatch):
    base, canary, options = [(0, -0.5)] * 4, (0, PULL), {"performance": Performance(microbatch=8), "noise_multiplier": 2.0}
    right, seen = worlds(base, canary, 1500, **options)
    clip_pieces(monkeypatch)
    twin, told = worlds(base, canary, 1500, **options)
    assert judged(right, seen).outcome == "holds"
    assert judged(twin, told).outcome == "refuted"
    with pytest.raises(ClaimRefuted, match=r"moves by 1\.999 "):
        replay_run(lambda data: start(data, **options), rows(*base, canary), rows(*base))


# Replay on a neighbour


class Text(nn.Module):
    """Tied table and head, a layer called twice, dropout."""

    def __init__(self):
        super().__init__()
        self.table, self.again, self.norm = nn.Embedding(7, 6), nn.Linear(6, 6), nn.LayerNorm(6)
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(6, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        hidden = self.again(torch.relu(self.again(self.table(x))))
        return self.head(self.drop(self.norm(hidden))).mean(1)


@pytest.mark.parametrize("clipping", [Flat, PerLayer, Automatic, Encoded])
@pytest.mark.parametrize("microbatch", [None, 3])
def test_one_unit_moves_no_update_by_more_than_its_sensitivity(clipping, microbatch):
    """Same batches, same noise, same weights: no trial, no chance. At rate a half the unit takes part in some steps only."""
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randint(7, (12, 5), generator=generator), torch.randint(7, (12,), generator=generator)

    def make(data):
        torch.manual_seed(4)
        model = Text().eval()
        return start(
            data, model=model, loss=nn.CrossEntropyLoss(reduction="none"), lr=0.5, rate=0.5, steps=12, divisor=6.0,
            clip_norm=None, clipping=clipping(0.05), performance=Performance(microbatch=microbatch),
        )  # fmt: skip

    questions = replay_run(make, (x, y), (x[:-1], y[:-1]))
    assert len(questions) == 12
    moved = [question.distance for question in questions if question.distance > 1e-6]
    assert 2 <= len(moved) <= 10
    assert max(moved) <= 0.05 / 6 * (1 + 1e-3)
    assert clipping is Automatic or max(moved) > 0.5 * 0.05 / 6


def test_a_replay_needs_a_public_divisor_and_one_clip_norm():
    with pytest.raises(InvalidValue, match="public divisor"):
        replay_run(lambda data: start(data, divisor=None), rows((0, 1), (1, 1)), rows((0, 1)))
    with pytest.raises(InvalidValue, match="clip norm that stays"):
        replay_run(lambda data: start(data, clip_norm=None, clipping=Adaptive(1.0)), rows((0, 1), (1, 1)), rows((0, 1)))


def test_replay_sees_a_sum_that_one_row_spoils():
    with pytest.raises(ClaimRefuted, match="not a finite number"):
        replay(lambda data, tell: tell("sum", sum(data), sensitivity=1), [1.0, math.inf], [1.0])


def test_units_of_the_audit_are_those_of_the_claim():
    assert start(rows((0, 1))).plan.claim().game.unit == RECORD
