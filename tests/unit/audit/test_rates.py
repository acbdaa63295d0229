"""Rates, power analysis, the distinguisher and the conformance suites' own errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from discreet.audit import Pair, Readout, canaries_needed, check_attack, check_mechanism, learn, rate_at, rates, roc
from discreet.audit.columns import Outputs
from discreet.audit.features import features
from discreet.audit.floats import Hints
from discreet.core import Claim, Game, Pure, record
from discreet.errors import ClaimRefuted, InvalidValue
from discreet.noise import LaplaceNoise

RNG = np.random.default_rng(4)
COUNT = LaplaceNoise(scale=1, sensitivity=1, unit=record())
VIEW = frozenset({"answers"})


def test_area_counts_pairs():
    score, inside = RNG.integers(0, 5, 60), RNG.random(60) < 0.5
    wins = [(a > b) + 0.5 * (a == b) for a in score[inside] for b in score[~inside]]
    assert roc(score, inside).area() == pytest.approx(np.mean(wins))


def test_one_sided_samples_do_not_crash():
    assert 0.0 <= roc([1.0, 2.0], [True, True]).area() <= 1.0
    assert not rate_at([1.0], [False], 0.01).resolvable


def test_low_levels_need_many_non_members():
    inside = np.arange(4000) % 2 == 0
    found = rates(inside + RNG.normal(size=4000), inside)
    assert [item.level for item in found] == [0.01, 0.001, 0.0001]
    assert [item.resolvable for item in found] == [True, False, False]
    assert found[0].low < found[0].rate < found[0].high
    assert "10,000 non-members would narrow this" in str(found[1])
    assert "%" in str(found[0])


def test_interval_covers():
    """Coverage of the 95 % interval over 300 draws; fails by chance less than once in a million."""
    held = 0
    for _ in range(300):
        found = rate_at(np.r_[RNG.random(100) < 0.3, np.zeros(1000)], np.r_[np.ones(100, bool), np.zeros(1000, bool)], 0.01)
        held += found.low <= 0.3 <= found.high
    assert held >= 265


def test_power_analysis_grows_as_it_should():
    ask = {"confidence": 0.95, "power": 0.9}
    assert canaries_needed(4.0, claimed=3.0, **ask) < canaries_needed(4.0, claimed=3.5, **ask)
    assert canaries_needed(4.0, claimed=2.0, **ask) < canaries_needed(4.0, claimed=2.0, confidence=0.999, power=0.9)
    assert canaries_needed(4.0, claimed=0, **ask) < 30
    assert canaries_needed(4.0, claimed=2.0, delta=1e-5, family="gaussian", **ask) > canaries_needed(4.0, claimed=2.0, **ask)


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ({"claimed": 5.0}, "above what is claimed"), ({"claimed": -1.0}, "claimed"), ({"confidence": 1.0}, "confidence"),
        ({"power": 0.0}, "power"), ({"delta": 1.0}, "delta"), ({"family": "weird"}, "family"),
        ({"family": "gaussian"}, "delta"),
        ({"epsilon": math.nan}, "epsilon"), ({"claimed": 4.0 - 1e-9}, "too close"),
    ],
)  # fmt: skip
def test_power_analysis_of_nonsense(bad, match):
    with pytest.raises(InvalidValue, match=match):
        canaries_needed(**{"epsilon": 4.0, "claimed": 2.0, "confidence": 0.95, "power": 0.9, **bad})


@pytest.mark.parametrize(
    "outputs",
    [
        [1, 2] * 50, [1.5, math.nan] * 50, ["a", "b"] * 50, [[1, 2], [3]] * 50, [None, 3.0] * 50, [{"a": 1.0}, {"b": 1}] * 50,
        [np.zeros((2, 2)), np.ones((2, 2))] * 50, [[], [1.0]] * 50, [True, False] * 50, [math.inf, -math.inf] * 50,
        [{1, 2}, {2}] * 50, [10**400, 5] * 50, [[1e308, -1e308, math.inf], [-1.7e308, 1.7e308, 0.0]] * 50,
    ],
    ids=str.split("ints floats words ragged none dicts arrays lengths bools infinities sets huge extremes"),
)  # fmt: skip
def test_any_output_can_be_told_apart(outputs):
    truth = np.arange(100) % 2 == 0
    truth[::10] ^= True
    witness = learn(outputs, truth, view=VIEW)
    score = witness.score_all(outputs)
    assert np.isfinite(score).all()
    assert score[truth].mean() > score[~truth].mean()
    assert witness.score(outputs[0], [None]) == score[0]


def test_a_witness_meets_outputs_it_never_saw():
    witness = learn([0.0, 1.0] * 100, [False, True] * 100, view=VIEW)
    for odd in (None, "text", [1, 2, 3], math.nan, {"a": 2}):
        assert np.isfinite(witness.score(odd, [None])).all()


def test_granularity_sees_the_float_grid():
    zero = np.random.default_rng(0).laplace(size=400)
    outputs = Outputs.of([*zero, *(1.0 + zero)])
    [feature] = dict(features(outputs, np.arange(800) < 400, Hints()))["granularity of output"]
    cells = feature(outputs)
    assert cells[:400].min() < cells[400:].min()


def test_learning_needs_as_many_truths():
    with pytest.raises(InvalidValue, match="one truth per output"):
        learn([1, 2, 3], [True], view=VIEW)


class Mechanism:
    """A stranger's mechanism with one thing wrong."""

    def __init__(self, claims=None, run=None):
        self._claims = claims if claims is not None else lambda: (Claim(game=Game(record(), VIEW), event=Pure(1.0)),)
        self._run = run or (lambda data: COUNT.run(data))

    def claims(self):
        return self._claims()

    def run(self, data):
        return self._run(data)


def test_check_mechanism_explains_what_is_missing():
    for wrong, match in (
        (object(), "claims\\(\\) and run"),
        (Mechanism(claims=list), "tuple of at least one Claim"),
        (Mechanism(claims=tuple), "tuple of at least one Claim"),
    ):
        with pytest.raises(InvalidValue, match=match):
            check_mechanism(wrong, [(1, 0)])
    with pytest.raises(InvalidValue, match="neighbours"):
        check_mechanism(Mechanism())
    with pytest.raises(InvalidValue, match="pairs"):
        check_mechanism(Mechanism(), [1, 0])
    with pytest.raises(InvalidValue, match="runs"):
        check_mechanism(Mechanism(), [(1, 0)], runs=2)


def test_claims_that_move_with_the_data_are_refused():
    seen = []

    def claims():
        return (Claim(game=Game(record(), VIEW), event=Pure(1.0 + len(seen))),)

    def run(data):
        seen.append(data)
        return 0

    with pytest.raises(InvalidValue, match="must not depend on the data"):
        check_mechanism(Mechanism(claims, run), [(1, 0)], runs=20)


def test_a_plain_answer_is_refuted_and_the_message_says_how():
    with pytest.raises(ClaimRefuted, match=r"claims epsilon 1 at delta 0 .* shows at least"):
        check_mechanism(Mechanism(run=lambda data: data), [(1, 0)], runs=400)


def test_check_attack_catches_cheats_and_mistakes():
    class Reads(Readout):
        """Reads the truth off the targets."""

        def score(self, seen, targets):
            return [float(target) for target in targets]

    class Worlds:
        def draw(self, run):
            inside = np.random.default_rng(run).random(1) < 0.5
            return int(inside[0]), [bool(inside[0])], inside

    with pytest.raises(InvalidValue, match="reading the truth"):
        check_attack(Reads(), COUNT, Worlds())
    moody = Readout(lambda seen, target: RNG.random())
    with pytest.raises(InvalidValue, match="different scores"):
        check_attack(moody, COUNT, Pair(1, 0))
    with pytest.raises(InvalidValue, match="covers"):
        check_attack(Readout(view="weights"), COUNT, Pair(1, 0))
    with pytest.raises(InvalidValue, match="name, view and score"):
        check_attack(object(), COUNT, Pair(1, 0))
    odd = Readout()
    odd.view = {"answers"}
    with pytest.raises(InvalidValue, match="frozenset"):
        check_attack(odd, COUNT, Pair(1, 0))
