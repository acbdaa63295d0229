"""Who is exposed, over many models; and controls that say what silence is worth."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

import discreet
from discreet.attack.membership import Shadows, groups_of, per_record_risk, splits, train_shadows
from discreet.attack.membership.controls import unseen
from discreet.attack.membership.per_record_risk import _clustered
from discreet.errors import InvalidValue
from discreet.models import Recipe, Trainer

ROWS, WIDTH = 240, 20
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, ROWS)
X = (0.6 * RNG.normal(size=(2, WIDTH))[Y] + RNG.normal(size=(ROWS, WIDTH))).astype(np.float32)
ODD = np.arange(ROWS) < 24
Y = np.where(ODD, 1 - Y, Y)  # wrong labels: these rows can only be memorised


def build():
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, 2))


RECIPE = Recipe(build, epochs=30, batch_size=40, learning_rate=1e-2)


@pytest.fixture(scope="module")
def shadows():
    return train_shadows(RECIPE, X, Y, splits(ROWS, 24, 0))


@pytest.fixture(scope="module")
def found(shadows):
    return per_record_risk(shadows, Y)


def test_rows_with_wrong_labels_are_the_most_exposed(found):
    # Of 24 drawn blindly from 240 more than 13 are odd with probability 2e-8.
    assert ODD[found.most(24)].sum() > 13
    assert found.memorisation()[ODD].mean() > found.memorisation()[~ODD].mean() + 0.3
    assert found.risk()[ODD].mean() > found.risk()[~ODD].mean()


def test_memorisation_by_its_definition(shadows, found):
    right = shadows.scores.argmax(2) == Y
    for i in (0, 5, 100):
        marks = shadows.inside[:, i]
        assert found.memorisation()[i] == pytest.approx(right[marks, i].mean() - right[~marks, i].mean())
    low, high = found.interval()
    assert ((low <= found.risk()) & (found.risk() <= high)).all()


def test_groups_are_compared_at_one_threshold(found):
    wrong, plain = sorted(found.by(ODD, fpr=0.05), key=lambda share: share.group, reverse=True)
    assert (wrong.group, wrong.records, plain.records) == (True, 24, 216)
    assert wrong.low > plain.rate
    assert wrong.low <= wrong.rate <= wrong.high
    assert str(plain).endswith("216 records")
    with pytest.raises(InvalidValue, match="one for each of 240 records"):
        found.by(ODD[:5])


def test_evidence_of_many_models(found):
    evidence = found.evidence()
    assert len(np.unique(evidence.run)) == 24
    assert evidence.auc() > 0.6


def test_lira_finds_the_same_records(shadows, found):
    quick = per_record_risk(shadows, Y, attack="lira")
    assert len(set(quick.most(24)) & set(found.most(24))) > 12
    with pytest.raises(InvalidValue, match="at least 4 shadows"):
        per_record_risk(Shadows(shadows.scores[:2], shadows.inside[:2]), Y)


def test_scores_that_say_nothing_expose_nobody():
    """Intervals of 1 - 1e-8 for each of 100 records: one is wrong with probability 1e-6 at most."""
    rng = np.random.default_rng(1)
    inside = rng.random((64, 100)) < 0.5
    found = per_record_risk(
        Shadows(rng.normal(size=(64, 100, 2)).astype(np.float32), inside), np.zeros(100, int), attack="lira"
    )
    low, high = found.interval(1 - 1e-8)
    assert ((low <= 0.5) & (high >= 0.5)).all()
    (everyone,) = found.by(np.zeros(100, int), fpr=0.1, confidence=1 - 1e-6)
    assert everyone.low < 0.13


def test_answers_that_hang_together_count_for_less():
    """Models that find all or nothing: 400 answers are worth 20."""
    together = _clustered(np.array([20, 0] * 10), np.full(20, 20), 0.95)
    apart = _clustered(np.full(20, 10), np.full(20, 20), 0.95)
    assert together[0] == apart[0] == 0.5
    assert together[2] - together[1] > 3 * (apart[2] - apart[1])
    assert _clustered(np.zeros(3), np.zeros(3), 0.95) == (0.0, 0.0, 1.0)


def test_groups_of_one_target(shadows):
    one = discreet.attack.membership(
        lambda rows: shadows.scores[0][_place(rows)], None, (X[shadows.inside[0]], Y[shadows.inside[0]]),
        (X[~shadows.inside[0]], Y[~shadows.inside[0]]), attacks=["loss"],
    )["loss"]  # fmt: skip
    order = np.concatenate([np.flatnonzero(shadows.inside[0]), np.flatnonzero(~shadows.inside[0])])
    shares = groups_of(one, Y[order], fpr=0.2)
    assert [share.group for share in shares] == [0, 1]
    hits = sum(share.rate * share.records for share in shares)
    assert hits / shadows.inside[0].sum() == pytest.approx(one.tpr(0.2), abs=0.03)
    with pytest.raises(InvalidValue, match="one for each of 240 rows"):
        groups_of(one, Y[:3])
    with pytest.raises(InvalidValue, match="the evidence of one run"):
        groups_of(per_record_risk(shadows, Y, attack="lira").evidence(), np.zeros(24 * ROWS))


def _place(rows):
    known = {row.tobytes(): i for i, row in enumerate(X)}
    return [known[row.tobytes()] for row in rows]


INSIDE = np.arange(ROWS) % 2 == 0
SIDES = (X[INSIDE], Y[INSIDE]), (X[~INSIDE], Y[~INSIDE])


def test_controls_show_what_each_attack_is_worth():
    coins = np.random.default_rng(4).integers(0, 2, ROWS)  # labels that can only be memorised
    sides = (X[INSIDE], coins[INSIDE]), (X[~INSIDE], coins[~INSIDE])
    target = Trainer(RECIPE).one(*sides[0], seed=9)
    found = discreet.attack.membership(
        target, RECIPE, *sides, attacks=["bayes_lira", "loss", "gradient"], shadows=8, controls=True
    )
    told = found.controls
    # Rank tests at 1 - 1e-6: each says what is not so with probability 1e-6.
    assert all(told.works(name, 1 - 1e-6) for name in ("bayes_lira", "loss", "gradient"))
    assert not any(told.biased(name, 1 - 1e-6) for name in found)
    assert len(told.negative["loss"]) == ROWS // 2
    assert "bayes_lira: " in str(told)
    assert set(told.positive) == set(found) == {"bayes_lira", "loss", "gradient"}


def test_sets_that_differ_in_themselves_are_told():
    """Members from one end, non-members from the other, of a line that decides the label: no model need see any of them."""
    far = np.where(INSIDE, 3.0, 0.1)[:, None] * np.where(Y == 1, 1, -1)[:, None]
    rows = np.concatenate([far, X[:, :3]], 1).astype(np.float32)
    recipe = Recipe(lambda: nn.Linear(4, 2), epochs=20, learning_rate=0.05)
    found = discreet.attack.membership(
        Trainer(recipe).one(rows[INSIDE], Y[INSIDE]), recipe, (rows[INSIDE], Y[INSIDE]), (rows[~INSIDE], Y[~INSIDE]),
        attacks=["loss"], controls=True,
    )  # fmt: skip
    assert found.controls.biased("loss", 1 - 1e-6)
    assert "differ in themselves" in str(found.controls)


def test_an_attack_that_finds_no_twin_says_nothing():
    def fit(inputs, labels):
        return lambda asked: np.zeros((len(asked), 2))

    found = discreet.attack.membership(lambda rows: np.zeros((len(rows), 2)), Recipe(fit, kind="fit"), *SIDES,
                                       attacks=["loss", "entropy"], controls=True)  # fmt: skip
    assert found.controls.works("loss", 1 - 1e-6)  # the overfit control memorised its rows beside a model that says nothing
    assert not found.controls.biased("loss")
    with pytest.raises(InvalidValue, match="controls are trained as the target was"):
        discreet.attack.membership(build(), None, *SIDES, attacks=["loss"], controls=True)


def test_the_negative_control_sees_none_of_its_rows():
    taken = unseen(INSIDE, seed=0)
    assert taken[INSIDE].sum() == taken[~INSIDE].sum() == ROWS // 4
