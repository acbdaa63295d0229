"""PATE: who votes, what is charged, what the student sees, and the data-dependent bound against slow computations.

Noise is real: the least margins are some ten standard deviations, so false alarms stay below 1e-6.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading

from discreet import Ledger, record, user
from discreet.accounting import curve
from discreet.errors import BudgetExceeded, InvalidValue, RunFailed
from discreet.learn import PATE
from discreet.learn.pate import ConfidentGNMax, GNMax, GraphStudent, Teachers, ask, data_dependent_epsilon, release_estimate
from discreet.learn.pate.estimate import Estimate, by_margin

ROW = record()
NOISY = 30.0  # sigma


def made(n: int = 3000, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] + 0.2 * X[:, 1] > 0, "yes", "no")


def model(**changed: Any) -> PATE:
    given = {"teachers": 40, "epsilon": 8.0, "delta": 1e-6, "unit": ROW, "classes": ["no", "yes"], "answers": 80} | changed
    return PATE(LogisticRegression(), given.pop("student", LogisticRegression()), **given)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"method": "lnmax", "answers": 20},
        {"method": "confident", "threshold": 30},
        {"student": GraphStudent(LogisticRegression()), "semi_supervised": True},
        {"student": LabelSpreading(kernel="knn"), "semi_supervised": True},
    ],
    ids=["gnmax", "lnmax", "confident", "graph", "sklearn's semi-supervised"],
)
def test_a_student_learns_and_the_claim_is_what_was_asked(how: dict[str, Any]) -> None:
    X, y = made()
    public, truth = made(400, seed=1)
    fitted = model(**how).fit(X, y, public)
    assert (fitted.predict(public) == truth).mean() > 0.75
    assert fitted.predict_proba(public[:5]).sum(axis=1) == pytest.approx(1)
    epsilon = curve(fitted.release_.claims[0].event).epsilon(1e-6)
    assert 7.9 < epsilon <= 8.0
    said = fitted.release_.value
    assert {label for label in said["labels"] if label is not None} == {"no", "yes"}
    assert sum(label is not None for label in said["labels"]) <= 80


def test_one_unit_moves_one_vote() -> None:
    """Rows of one user are with one teacher; so are those of nobody else but by lot."""
    X, y = made(600)
    owner = np.repeat(np.arange(150), 4)
    taught = Teachers(
        LogisticRegression(), X, y, teachers=10, classes=np.array(["no", "yes"]), unit=user("who", rows=None), groups=owner
    )
    queries, _ = made(50, seed=1)
    before = taught.votes(queries)
    assert taught._of is not None
    assert all(len(set(taught._of[owner == who])) == 1 for who in range(150))
    assert before.sum(axis=1).tolist() == [10] * 50
    taught._y[owner == 7] = 1 - taught._y[owner == 7]
    taught._X[owner == 7] *= 1e6
    taught._models = None
    moved = np.abs(taught.votes(queries) - before)
    assert moved.max() <= 1
    assert moved.sum(axis=1).max() <= 2


def test_torch_teachers_do_not_touch_each_other_and_one_without_rows_abstains() -> None:
    """All are one job of the same shapes; one teacher's row of infinities moves one vote, bit by bit none of the others."""
    torch = pytest.importorskip("torch")
    X, y = made(200)
    X = X.astype(np.float32)
    queries = made(60, seed=1)[0].astype(np.float32)

    def build() -> Any:
        return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    taught = Teachers(build, X, y, teachers=8, classes=np.array(["no", "yes"]), unit=ROW, teacher_rows=25)
    before = taught.votes(queries)
    assert before.sum(axis=1).tolist() == [8] * 60
    row = int(np.flatnonzero(taught._of == 3)[0])
    taught._X[row] = np.inf
    taught._y[row] = 1 - taught._y[row]
    assert np.abs(taught.votes(queries) - before).max() <= 1
    taught._of = np.where(taught._of == 3, 4, taught._of)
    assert taught.votes(queries).sum(axis=1).tolist() == [7] * 60


class Moody(ClassifierMixin, BaseEstimator):
    """Fails on some rows, draws from the shared generator, and sometimes answers nonsense."""

    def fit(self, X: Any, y: Any) -> Moody:
        if X[0, 0] > 0.5:
            raise ValueError(f"a private value: {X[0, 0]}")
        np.random.random(len(y))
        self.draw = np.random.random()
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), int(self.draw * 3))  # 2 is none of the classes


def test_teachers_that_fail_abstain_and_share_no_randomness(caplog: pytest.LogCaptureFixture) -> None:
    X, y = made(400)
    taught = Teachers(Moody(), X, y, teachers=20, classes=np.array(["no", "yes"]), unit=ROW)
    state = np.random.get_state()[1].tolist()  # type: ignore[union-attr]
    with caplog.at_level(logging.WARNING, "discreet.learn"):
        votes = taught.votes(X[:3])
    assert (votes.sum(axis=1) < 20).all()
    assert "private value" not in caplog.text
    assert np.random.get_state()[1].tolist() == state  # type: ignore[union-attr]
    assert taught._models is not None
    other = Teachers(Moody(), X, y, teachers=20, classes=np.array(["no", "yes"]), unit=ROW)
    other._of = np.where(taught._of == 0, 1, taught._of)
    other.votes(X[:3])
    assert [m and m.draw for m in taught._models[2:]] == [m and m.draw for m in other._models[2:]]  # type: ignore[index]


def test_votes_are_charged_before_a_teacher_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = made(300)
    place = str(tmp_path / "ledger.db")
    with Ledger(place) as ledger:
        ledger.open("people", unit=ROW, epsilon=2.0, delta=1e-5)
    how = {"ledger": place, "source": "people", "epsilon": 1.5, "teachers": 10, "answers": 30}
    paid = model(**how).fit(X, y, X[:100])
    assert paid.release_.entry is not None
    monkeypatch.setattr(Teachers, "votes", lambda *any: pytest.fail("a teacher was asked"))
    with pytest.raises(BudgetExceeded):
        model(**how).fit(X, y, X[:100])


def test_rounds_of_questions_are_charged_one_by_one(tmp_path: Path) -> None:
    X, y = made(1000)
    taught = Teachers(LogisticRegression(), X, y, teachers=30, classes=np.array(["no", "yes"]), unit=ROW)
    public, _ = made(60, seed=2)
    with Ledger(str(tmp_path / "ledger.db")) as ledger:
        ledger.open("people", unit=ROW, epsilon=6.0, delta=1e-5)
        first = ask(taught, public[:20], epsilon=2.0, delta=1e-6, ledger=ledger, source="people")
        doubtful = np.argsort(np.ptp(first.value.counts, axis=1))[:5]  # chosen by what was charged
        second = ask(taught, public[doubtful], epsilon=2.0, delta=1e-6, ledger=ledger, source="people")
        assert first.entry != second.entry
        with pytest.raises(BudgetExceeded):
            ask(taught, public, epsilon=5.0, delta=1e-6, ledger=ledger, source="people")
    assert second.value.labels().tolist() == second.value.counts.argmax(axis=1).tolist()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"method": "confident"}, "threshold=200"),
        ({"threshold": 3}, "leave it out"),
        ({"method": "loud"}, "method"),
        ({"teachers": 1}, "teachers"),
        ({"unit": user("who", rows=3)}, "groups"),
        ({"teacher_rows": 5}, "teacher_rows"),
        ({"classes": None}, "classes must list"),
        ({"answers": 0}, "answers"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_spent(
    how: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = made(100)
    monkeypatch.setattr(Teachers, "votes", lambda *any: pytest.fail("a teacher was asked"))
    with pytest.raises(InvalidValue, match=says):
        model(**how).fit(X, y, X[:10])


def test_public_rows_of_another_width_and_torch_without_its_public_number_are_refused() -> None:
    X, y = made(100)
    with pytest.raises(InvalidValue, match="rows like those of X"):
        model().fit(X, y, X[:, :2])
    with pytest.raises(InvalidValue, match="teacher_rows"):
        PATE(lambda: None, LogisticRegression(), teachers=3, epsilon=1.0, delta=1e-6, unit=ROW, classes=[0, 1]).fit(X, y, X)


def test_no_answer_and_one_class_and_no_rows() -> None:
    X, y = made(300)
    with pytest.raises(RunFailed, match="charge stays"):
        model(method="confident", threshold=10_000).fit(X, y, X[:50])
    alone = model(answers=1).fit(X, y, X[:50])
    assert len(set(alone.predict(X))) == 1
    assert alone.predict_proba(X[:4]).shape == (4, 2)
    assert set(model().fit(X[:0], y[:0], X[:100]).predict(X)) <= {"no", "yes"}


def test_the_bound_is_above_the_divergence_of_labels() -> None:
    """Two classes: the label is a coin whose chance follows from the law of two discrete Gaussians' difference."""
    sigma, k, order = 3.0, 40, 5.0
    bound = by_margin(sigma, 2, k, order)
    assert (np.diff(bound) <= 0).all()
    reach = np.arange(-100, 101)
    single = np.exp(-(reach**2) / (2 * sigma**2))
    difference = np.convolve(single, single) / single.sum() ** 2

    def wins(margin: int) -> float:
        return float(difference[200 - margin :].sum())

    for margin in range(0, 31, 2):
        worst = 0.0
        for other in (margin - 2, margin + 2):
            p, q = (np.array([wins(m), 1 - wins(m)]) for m in (margin, other))
            for a, b in ((p, q), (q, p)):
                worst = max(worst, math.log(float((a**order * b ** (1 - order)).sum())) / (order - 1))
        assert worst <= bound[margin] * (1 + 1e-9)
    assert bound[30] < bound[0] / 50


def test_agreement_makes_the_estimate_small_and_disagreement_does_not() -> None:
    vote = GNMax(queries=100, unit=ROW, noise=NOISY)
    plain = curve(vote.event()).epsilon(1e-5)
    agree, split = (np.tile([[top, 250 - top, 0]], (100, 1)) for top in (240, 126))
    assert data_dependent_epsilon(agree, vote, teachers=250, delta=1e-5) < plain / 2
    assert data_dependent_epsilon(split, vote, teachers=250, delta=1e-5) == plain
    tested = ConfidentGNMax(queries=1000, unit=ROW, noise=NOISY, answers=100, threshold=200)
    assert data_dependent_epsilon(agree, tested, teachers=250, delta=1e-5) > data_dependent_epsilon(
        agree, vote, teachers=250, delta=1e-5
    )


def test_smooth_sensitivity_is_smooth_and_covers_every_neighbour() -> None:
    asked = Estimate(1, 2, 4.0, 50, 4.0, ROW, 1.0, 1e-3)
    bound = by_margin(4.0, 2, 50, 4.0)
    smooth = [asked._smooth(bound, np.array([margin])) for margin in range(51)]
    beta = math.log1p(1.0 / (2 * math.log(2 / 1e-3)))
    for margin in range(51):
        for other in range(max(margin - 2, 0), min(margin + 2, 50) + 1):
            assert abs(bound[margin] - bound[other]) <= smooth[margin] + 1e-15
            assert smooth[margin] <= math.exp(beta) * smooth[other] + 1e-15


def test_a_released_estimate_is_near_and_is_charged_for(tmp_path: Path) -> None:
    vote = GNMax(queries=300, unit=ROW, noise=40.0)
    counts = np.tile([[240, 10]], (300, 1))
    with Ledger(str(tmp_path / "ledger.db")) as ledger:
        ledger.open("people", unit=ROW, epsilon=1.0, delta=1e-5)
        how = {"order": 10.0, "epsilon": 1.0, "delta": 1e-6, "vote_delta": 1e-5, "ledger": ledger, "source": "people"}
        made_up = release_estimate(counts, vote, teachers=250, **how)  # type: ignore[arg-type]
        assert made_up.entry is not None
        with pytest.raises(BudgetExceeded):
            release_estimate(counts, vote, teachers=250, **how)  # type: ignore[arg-type]
    inside = data_dependent_epsilon(counts, vote, teachers=250, delta=1e-5)
    assert 0.5 * inside < made_up.value < 3 * inside  # noise of scale 1e-5 at such votes
    assert made_up.claims[0].event.kind == "approximate"
