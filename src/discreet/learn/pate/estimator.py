"""PATE: teachers on private rows vote on public rows, and a student learns from the noisy votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from discreet.core import Claim, Release, Unit, check
from discreet.errors import InvalidValue, RunFailed
from discreet.learn.estimators.base import PrivateEstimator, known_classes
from discreet.learn.pate.teachers import Teachers
from discreet.learn.pate.voting import Answers, GNMax, Ints, calibrated
from discreet.ledger import LedgerLike
from discreet.ledger.seam import release

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Poll:
    """Teachers are trained on the private rows and vote on public queries; the noisy votes are released."""

    teacher: Any
    teachers: int
    classes: Array
    queries: Array
    vote: GNMax
    teacher_rows: int | None = None

    def claims(self) -> tuple[Claim, ...]:
        return self.vote.claims()

    def run(self, data: Any) -> Ints:
        """`data` is features, labels and, where the unit has a key, whose each row is."""
        X, y, groups = data
        taught = Teachers(
            self.teacher, X, y, teachers=self.teachers, classes=self.classes, unit=self.vote.unit, groups=groups,
            teacher_rows=self.teacher_rows,
        )  # fmt: skip
        return self.vote.run(taught.votes(self.queries))


class PATE(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Private aggregation of teacher ensembles (Papernot et al. 2017, 2018), with data-independent accounting.

    `teacher` is any scikit-learn classifier, or a function that makes a torch module (all of which are trained as one job);
    `teachers` many of them are trained, each unit with one. They vote on public rows, and noisy votes are what is paid for. The
    student sees public rows and noisy votes only: it is post-processing, and so are its predictions.

    `method` is "gnmax" (Gaussian noise), "lnmax" (Laplace noise) or "confident" (only queries on which about `threshold`
    teachers agree). `answers` is the most queries that are answered, the first ones of the public rows; noise follows from it
    and epsilon. With `semi_supervised=True` the student gets all public rows, with label -1 where there is none; a student
    whose `fit` takes `votes` gets the noisy counts too. The teachers are gone after `fit`; for several rounds, keep `Teachers`.

    >>> from discreet.core import record
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, public = rng.normal(size=(4000, 2)), rng.normal(size=(200, 2))
    >>> model = PATE(LogisticRegression(), LogisticRegression(), teachers=50, epsilon=8.0, delta=1e-6, unit=record(),
    ...              classes=[0, 1], answers=60).fit(X, X[:, 0] > 0, public)
    >>> bool((model.predict(X) == (X[:, 0] > 0)).mean() > 0.85), model.release_.claims[0].event.kind
    (True, 'repeat')
    """

    def __init__(
        self, teacher: Any, student: Any, *, teachers: int, epsilon: float, delta: float, unit: Unit, classes: Any,
        answers: int | None = None, method: str = "gnmax", threshold: int | None = None, semi_supervised: bool = False,
        teacher_rows: int | None = None, ledger: LedgerLike | None = None, source: str | None = None,
    ) -> None:  # fmt: skip
        self.teacher = teacher
        self.student = student
        self.teachers = teachers
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.classes = classes
        self.answers = answers
        self.method = method
        self.threshold = threshold
        self.semi_supervised = semi_supervised
        self.teacher_rows = teacher_rows
        self.ledger = ledger
        self.source = source

    def fit(self, X: Any, y: Any, public: Any, groups: Any = None) -> PATE:
        """Train teachers on private rows, release noisy votes on public rows, train the student. Spends the budget once."""
        rows, labels, public = np.asarray(X), np.asarray(y), np.asarray(public)
        if public.ndim < 2 or public.shape[1:] != rows.shape[1:] or not len(public):
            raise InvalidValue(f"public must hold rows like those of X, {rows.shape[1:]} each; got {public.shape}.")
        self.classes_, _, _ = known_classes(self.classes, labels)
        queries = (
            public if self.method == "confident" or self.answers is None else public[: check.whole("answers", self.answers)]
        )
        vote = calibrated(
            self.method, queries=len(queries), unit=self.unit, epsilon=float(self.epsilon), delta=float(self.delta),
            answers=self.answers, threshold=self.threshold,
        )  # fmt: skip
        Teachers(  # refuses what is wrong with the arguments before anything is spent
            self.teacher, rows, labels, teachers=self.teachers, classes=self.classes_, unit=self.unit, groups=groups,
            teacher_rows=self.teacher_rows,
        )  # fmt: skip
        poll = Poll(self.teacher, self.teachers, self.classes_, queries, vote, self.teacher_rows)
        released = self._spend(poll, (rows, labels, groups)).map(_answers)
        self.release_ = released.map(lambda answers: answers_json(self.classes_, answers))
        self._teach(public, released.value)
        return self

    def _teach(self, public: Array, answers: Answers) -> None:
        """The student, from public rows and what was released."""
        labels = np.full(len(public), -1)
        labels[: len(answers.counts)] = answers.labels()
        known = labels >= 0
        if not known.any():
            raise RunFailed(
                "No query was answered: fewer teachers agree than the threshold. The charge stays; lower threshold."
            )
        self.n_features_in_ = public.shape[1]
        if len(np.unique(labels[known])) == 1:
            from sklearn.dummy import DummyClassifier

            self.student_ = DummyClassifier().fit(public[known], labels[known])
            return
        used = slice(None) if self.semi_supervised else known
        params = {}
        if has_fit_parameter(self.student, "votes"):
            votes = np.zeros((len(public), len(self.classes_)))
            votes[: len(answers.counts)] = answers.counts
            params = {"votes": votes[used]}
        self.student_ = clone(self.student).fit(public[used], labels[used], **params)

    def predict(self, X: Any) -> Array:
        """The student's class of each row. Post-processing: it costs nothing."""
        check_is_fitted(self)
        return np.asarray(self.classes_[np.asarray(self.student_.predict(np.asarray(X)), np.int64)])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The student's probabilities, a column for each of `classes_`."""
        check_is_fitted(self)
        probabilities = np.asarray(self.student_.predict_proba(np.asarray(X)))
        out = np.zeros((len(probabilities), len(self.classes_)))
        out[:, np.asarray(self.student_.classes_, np.int64)] = probabilities
        return out


def _answers(released: Ints) -> Answers:
    return Answers(released[:, 0] == 1, released[:, 1:])


def answers_json(classes: Array, answers: Answers) -> dict[str, Any]:
    """Labels by name, None where a query was not answered, and noisy counts."""
    labels = [None if place < 0 else classes[place].item() for place in answers.labels()]
    return {"classes": classes.tolist(), "labels": labels, "counts": answers.counts.tolist()}


def ask(
    teachers: Teachers, queries: Any, *, epsilon: float, delta: float, method: str = "gnmax", answers: int | None = None,
    threshold: int | None = None, ledger: LedgerLike | None = None, source: str = "training data",
) -> Release[Answers]:  # fmt: skip
    """One round of queries to teachers that the owner keeps; it is charged before they vote.

    What is asked in a later round may depend on answers of earlier ones, all of which were charged, and on nothing else of the
    teachers.
    """
    queries = np.asarray(queries)
    vote = calibrated(
        method, queries=len(queries), unit=teachers.unit, epsilon=epsilon, delta=delta, answers=answers, threshold=threshold
    )
    facts = {"title": f"Answers of teachers from {source}"}
    return release(_Votes(vote, queries), teachers, source=source, ledger=ledger, asked=(epsilon, delta), facts=facts).map(
        _answers
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Votes:
    vote: GNMax
    queries: Array

    def claims(self) -> tuple[Claim, ...]:
        return self.vote.claims()

    def run(self, data: Teachers) -> Ints:
        return self.vote.run(data.votes(self.queries))
