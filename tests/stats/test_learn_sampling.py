"""Samplers of private training: the law of their draws, and the game played against what they claim.

Keys are fixed, so every test either passes always or fails always. Were the keys fresh, each test of a law would fail for a
right sampler with probability at most 1e-6 (p-values below it, shared among the parts of a test); verdicts are asked at
confidence 1 - 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import discreet
from discreet.audit import Pair, Readout, verdict
from discreet.core import Claim, Event, Game, Gaussian, Repeat, record
from discreet.core import event as events
from discreet.learn.sgd.sampling import BallsInBins, Poisson
from discreet.noise.sampling import placed

KEY = b"a key of thirty-two bytes, fixed"
ALARM = 1e-6
CONFIDENCE = 1 - 1e-6


def taken(sampler, steps: int, units: int) -> np.ndarray:
    """Who took part in which step: [steps, units]."""
    out = np.zeros((steps, units), bool)
    for step in range(steps):
        out[step, sampler.draw(KEY, step, units)] = True
    return out


def surely_not(successes: int, trials: int, rate: float, parts: int = 1) -> bool:
    """An exact binomial test at the file's alarm, shared among `parts`."""
    return stats.binomtest(int(successes), int(trials), rate).pvalue < ALARM / parts


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.5, 0.97])
def test_units_take_part_at_the_rate_each_on_its_own_in_every_step(rate):
    steps, units = 1500, 96
    who = taken(Poisson(rate), steps, units)
    assert not surely_not(who.sum(), who.size, rate)
    for unit in range(units):
        assert not surely_not(who[:, unit].sum(), steps, rate, parts=units)
    for apart in (1, 8, 64):  # the next unit, the next block of the cipher, one far away: disjoint pairs in one step
        first = (
            np.arange(units).reshape(-1, 2 * apart)[:, :apart].ravel() if units % (2 * apart) == 0 else np.arange(apart // 2)
        )
        both = who[:, first] & who[:, first + apart]
        assert not surely_not(both.sum(), both.size, rate**2, parts=3)
    both = who[0::2] & who[1::2]  # one unit in two steps
    assert not surely_not(both.sum(), both.size, rate**2)


def test_batch_sizes_are_binomial():
    steps, units, rate = 4000, 12, 0.25
    sizes = np.bincount(taken(Poisson(rate), steps, units).sum(1), minlength=units + 1)
    expected = steps * stats.binom.pmf(np.arange(units + 1), units, rate)
    last = int(np.flatnonzero(expected >= 5)[-1])  # rarer sizes together, as the test needs
    observed, wanted = np.append(sizes[:last], sizes[last:].sum()), np.append(expected[:last], expected[last:].sum())
    assert stats.chisquare(observed, wanted).pvalue > ALARM
    assert sizes[0] > 0  # empty batches are among them


@pytest.mark.parametrize("bins", [2, 7, 64])
def test_bins_are_chosen_uniformly_by_each_unit_on_its_own_in_every_pass(bins):
    passes, units = 300, 256
    where = np.stack([placed(KEY, b"bins", number, units, bins) for number in range(passes)])
    assert stats.chisquare(np.bincount(where.ravel(), minlength=bins)).pvalue > ALARM
    together = where[:, 0::2] == where[:, 1::2]
    assert not surely_not(together.sum(), together.size, 1 / bins)
    again = where[0::2] == where[1::2]
    assert not surely_not(again.sum(), again.size, 1 / bins)


def test_a_shuffle_would_be_caught_by_the_law_alone():
    """Batches of a fixed size have no spread: the tests above can tell."""
    steps, units = 400, 12
    random = np.random.default_rng(0)
    sizes = np.bincount([len(part) for _ in range(steps // 4) for part in np.array_split(random.permutation(units), 4)])
    expected = steps * stats.binom.pmf(np.arange(units + 1), units, 0.25)
    assert stats.chisquare(np.append(sizes, np.zeros(units + 1 - len(sizes))), expected).pvalue < ALARM


# ---- the game --------------------------------------------------------------------------------------------------------


class Steps:
    """Noisy sums over the units of each step, all of them seen: training with a gradient of one number."""

    steps = 4

    def __init__(self, sampler, sigma: float, claimed: Event | None = None) -> None:
        self.sampler, self.sigma, self.random = sampler, sigma, np.random.default_rng(11)
        self.claimed = sampler.event(Gaussian(self.sigma), self.steps) if claimed is None else claimed

    def claims(self):
        return (Claim(game=Game(record(), frozenset({"transcript"})), event=self.claimed),)

    def run(self, data: np.ndarray) -> np.ndarray:
        key = self.random.bytes(32)
        return np.array([self.step(data, self.sampler.draw(key, step, len(data))) for step in range(self.steps)])

    def step(self, data: np.ndarray, chosen: np.ndarray) -> float:
        return float(np.clip(data[chosen], -1, 1).sum() + self.sigma * self.random.normal())


class Shuffled:
    """One pass over the shuffled units, cut into batches."""

    def draw(self, key: bytes, step: int, units: int) -> np.ndarray:
        order = np.random.default_rng(list(key)).permutation(units)
        return np.sort(np.array_split(order, Steps.steps)[step])


class Redrawn(Poisson):
    """Empty batches are drawn again until someone is there, as loaders do that skip them."""

    def draw(self, key: bytes, step: int, units: int) -> np.ndarray:
        number = step
        while not (drawn := super().draw(key, number, units)).size:
            number += 10**6
        return drawn


class WithoutNoiseWhenEmpty(Steps):
    """An empty batch is no step: nothing is added to the weights, noise neither."""

    def step(self, data: np.ndarray, chosen: np.ndarray) -> float:
        return super().step(data, chosen) if len(chosen) else 0.0


def played(mechanism, score, *, delta: float, others: int, runs: int = 4000):
    worlds = Pair(np.array([0.0] * others + [1.0]), np.array([0.0] * others), seed=5)
    attack = Readout(lambda seen, target: float(score(np.asarray(seen))), view="transcript", name="steps")
    evidence = discreet.audit(mechanism, attack, worlds, runs=runs)
    return verdict(mechanism.claims()[0], evidence, confidence=CONFIDENCE, delta=delta).outcome


POISSON = Repeat(events.Poisson(1 / 4, Gaussian(0.25)), 4)


@pytest.mark.parametrize(
    ("sampler", "claimed", "delta", "outcome"),
    [
        (Poisson(1 / 4), None, 0.7, "holds"),
        (Shuffled(), POISSON, 0.7, "refuted"),
        (BallsInBins(4), POISSON, 0.7, "refuted"),
    ],
    ids=["poisson", "shuffled claimed as poisson", "balls in bins claimed as poisson"],
)
def test_each_sampler_under_its_own_claim_and_no_other(sampler, claimed, delta, outcome):
    """A Poisson sample leaves the unit out of all steps with probability 0.32, others never do: seen at a large delta."""
    assert played(Steps(sampler, 0.25, claimed), np.max, delta=delta, others=7) == outcome


@pytest.mark.parametrize("delta", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("sampler", [Poisson(1 / 4), BallsInBins(4)], ids=repr)
def test_the_right_samplers_hold_at_other_deltas(sampler, delta):
    assert played(Steps(sampler, 1.0), np.sum, delta=delta, others=7) == "holds"


def test_empty_batches_drawn_again_are_refuted():
    """With one other unit a batch drawn until it is not empty holds the canary half of the time, not a twentieth."""
    claim = Repeat(events.Poisson(1 / 20, Gaussian(0.5)), 4)
    assert played(Steps(Redrawn(1 / 20), 0.5, claim), np.sum, delta=0.1, others=1, runs=1500) == "refuted"
    assert played(Steps(Poisson(1 / 20), 0.5), np.sum, delta=0.1, others=1, runs=1500) == "holds"


def test_empty_batches_without_noise_are_refuted():
    """Nobody else is there, so any number that is not zero shows the canary."""
    assert played(WithoutNoiseWhenEmpty(Poisson(1 / 4), 2.0), np.count_nonzero, delta=1e-3, others=0, runs=1500) == "refuted"
    assert played(Steps(Poisson(1 / 4), 2.0), np.count_nonzero, delta=1e-3, others=0, runs=1500) == "holds"


class BandedSteps(Steps):
    """Correlated noise, decoded by whoever sees all steps."""

    steps = 12

    def run(self, data: np.ndarray) -> np.ndarray:
        banded = self.sampler.banded
        key = self.random.bytes(32)
        matrix = np.zeros((self.steps, self.steps))
        for back in range(banded.bands):
            matrix[np.arange(back, self.steps), np.arange(self.steps - back)] = banded.matrix[back:, back]
        sums = [np.clip(data[self.sampler.draw(key, step, len(data))], -1, 1).sum() for step in range(self.steps)]
        return np.array(sums) + self.sigma * np.linalg.solve(matrix, self.random.normal(size=self.steps))


class Own:
    """The sampling that belongs to the noise."""

    def __init__(self, banded) -> None:
        self.banded, self.event, self.draw = banded, banded.event, banded.draw


class Everyone(Own):
    """Every unit in every step: it takes part again before its noise has been paid for."""

    def __init__(self, banded) -> None:
        super().__init__(banded)
        self.draw = lambda key, step, units: np.arange(units)


@pytest.mark.parametrize(("sampling", "outcome"), [(Own, "holds"), (Everyone, "refuted")])
def test_correlated_noise_needs_its_own_sampling(sampling, outcome):
    """Three bands, everyone taken in turn: four Gaussian steps. Taken in every step, the sums say much more."""
    from discreet.learn.sgd.banded import Banded

    mechanism = BandedSteps(sampling(Banded(1 / 3, steps=12, bands=3)), 3.0)
    assert mechanism.claimed == Repeat(events.Poisson(1.0, Gaussian(3.0)), 4)
    assert played(mechanism, np.sum, delta=0.01, others=2, runs=1500) == outcome
