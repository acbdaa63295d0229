"""Risk by record and by group, over many models of the same recipe.

Every shadow is in turn the target, judged by the others; what was inside is known for each. So a record's risk is measured over
many trainings instead of one, and so is how much a model's answer for it depends on having seen it (memorisation, Feldman and
Zhang 2020). Records are named by their row number only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.attack.membership import signals
from discreet.attack.membership.bayes_lira import paired
from discreet.audit import rate_at
from discreet.audit.binomial import rate_ceiling, rate_floor
from discreet.core import Evidence, Game, check, record
from discreet.errors import InvalidValue
from discreet.models import Shadows

Array = NDArray[Any]
Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class Share:
    """A rate over some records, with an interval."""

    group: Any
    records: int
    rate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.group}: {self.rate:.1%} ({self.low:.1%} to {self.high:.1%}), {self.records} records"


@dataclass(frozen=True)
class RecordRisks:
    """What every model gave away of every record: scores [models, records] above 0 where the record seems inside."""

    score: NDArray[np.float64]
    inside: Marks
    right: Marks  # whether the model's label for the record is right

    def risk(self) -> NDArray[np.float64]:
        """How often membership of each record is guessed right, members and non-members counting half each; 0.5 is chance."""
        guessed = self.score > 0
        return 0.5 * (_mean(guessed, self.inside) + _mean(~guessed, ~self.inside))

    def interval(self, confidence: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Where each record's risk lies: two exact intervals (Clopper and Pearson 1934), each at half of what may fail."""
        share = (1.0 - check.open_fraction("confidence", confidence)) / 4.0
        guessed = self.score > 0
        bounds = []
        for hits, side in ((guessed, self.inside), (~guessed, ~self.inside)):
            count, trials = (hits & side).sum(0), side.sum(0)
            bounds.append((rate_floor(count, trials, share), rate_ceiling(count, trials, share)))
        return 0.5 * (bounds[0][0] + bounds[1][0]), 0.5 * (bounds[0][1] + bounds[1][1])

    def memorisation(self) -> NDArray[np.float64]:
        """How much more often a record is classified right by models that saw it (Feldman and Zhang 2020), from -1 to 1."""
        return _mean(self.right, self.inside) - _mean(self.right, ~self.inside)

    def most(self, count: int = 10) -> NDArray[np.int64]:
        """The most exposed records, by row number: by risk, and among equals by how clear the scores were."""
        margin = _mean(self.score, self.inside) - _mean(self.score, ~self.inside)
        return np.lexsort((-margin, -self.risk()))[: check.whole("count", count)].astype(np.int64)

    def by(self, groups: ArrayLike, *, fpr: float = 0.01, confidence: float = 0.95) -> tuple[Share, ...]:
        """The true-positive rate of each group (a class, a region, …) at this false-positive rate within the group.

        One threshold for each model and group. A model's answers for two records hang together: the
        interval counts only as many trials as the scatter between models allows (Korn and Graubard 1998).
        """
        names = np.asarray(groups)
        if names.shape != (self.score.shape[1],):
            raise InvalidValue(f"groups must name one for each of {self.score.shape[1]} records; got shape {names.shape}.")
        check.open_fraction("fpr", fpr)
        shares = []
        for name in np.unique(names):
            chosen = names == name
            score, inside = self.score[:, chosen], self.inside[:, chosen]
            hits = (inside & (score > _thresholds(score, inside, fpr)[:, None])).sum(1)
            trials = inside.sum(1)
            shares.append(Share(name.item(), int(chosen.sum()), *_clustered(hits, trials, confidence)))
        return tuple(shares)

    def evidence(self, attack: str = "bayes_lira") -> Evidence:
        """All scores, one run for each model. Splits are drawn at random, yet of a fixed size: so `post_hoc`."""
        models, rows = self.score.shape
        return Evidence(
            game=Game(record(), {"scores"}), attack=attack, score=self.score.ravel(), inside=self.inside.ravel(),
            run=np.repeat(np.arange(models), rows), design="post_hoc",
        )  # fmt: skip


def per_record_risk(shadows: Shadows, y: Array, *, attack: str = "bayes_lira") -> RecordRisks:
    """Each shadow in turn as the target, scored by the others: by the Bayesian ratio, or by LiRA (much faster).

    >>> rng = np.random.default_rng(0)
    >>> inside = rng.random((8, 60)) < 0.5
    >>> leak = np.where(np.arange(60) < 5, 8.0, 0.0)     # five records are memorised
    >>> scores = np.stack([inside * leak + rng.normal(size=(8, 60)), np.zeros((8, 60))], 2)
    >>> risks = per_record_risk(Shadows(scores.astype(np.float32), inside), np.zeros(60, int))
    >>> sorted(risks.most(5).tolist())
    [0, 1, 2, 3, 4]
    """
    check.word("attack", attack, ("bayes_lira", "lira"))
    if len(shadows) < 4:
        raise InvalidValue(f"per_record_risk needs at least 4 shadows, each judged by the others; got {len(shadows)}.")
    signal = signals.margin(shadows.scores, y)
    score = np.empty(signal.shape)
    ratio = paired if attack == "bayes_lira" else signals.lira
    for k in range(len(shadows)):
        others = np.arange(len(shadows)) != k
        score[k] = ratio(signal[k], signal[others], shadows.inside[others])
    right = shadows.scores.argmax(2) == np.asarray(y)
    return RecordRisks(score, shadows.inside, right)


def groups_of(evidence: Evidence, groups: ArrayLike, *, fpr: float = 0.01, confidence: float = 0.95) -> tuple[Share, ...]:
    """The true-positive rate of each group of one finished target at the group's own false-positive rate, with its interval.

    A threshold for all would accuse more of one group than of another, and call that exposure: a claim bounds what is found
    at a false-positive rate among those who could have been members instead, so within the group.
    """
    names = np.asarray(groups)
    if names.shape != evidence.score.shape:
        raise InvalidValue(f"groups must name one for each of {len(evidence)} rows; got shape {names.shape}.")
    if len(np.unique(evidence.run)) != 1:
        raise InvalidValue("groups_of takes the evidence of one run; for many models use per_record_risk(…).by(groups).")
    shares = []
    for name in np.unique(names):
        chosen = names == name
        measured = rate_at(evidence.score[chosen], evidence.inside[chosen], fpr, confidence)
        members = int(evidence.inside[chosen].sum())
        shares.append(Share(name.item(), members, measured.rate if members else 0.0, measured.low, measured.high))
    return tuple(shares)


def _mean(values: Array, chosen: Marks) -> NDArray[np.float64]:
    """Over the chosen models, by record; 0 where none was."""
    return np.where(chosen, values, 0.0).sum(0) / np.maximum(chosen.sum(0), 1)


def _thresholds(score: Array, inside: Marks, fpr: float) -> NDArray[np.float64]:
    """For each model the score that at most a share `fpr` of the records outside exceeds."""
    thresholds = np.empty(len(score))
    for k, (row, marks) in enumerate(zip(score, inside)):
        outside = np.sort(row[~marks])[::-1]
        thresholds[k] = outside[min(int(fpr * len(outside)), len(outside) - 1)] if len(outside) else np.inf
    return thresholds


def _clustered(hits: Array, trials: Array, confidence: float) -> tuple[float, float, float]:
    """A rate over models, and an exact interval for as many trials as its scatter over models is worth."""
    alpha = (1.0 - check.open_fraction("confidence", confidence)) / 2.0
    total = int(trials.sum())
    if not total:
        return 0.0, 0.0, 1.0
    rate = float(hits.sum()) / total
    worth = float(total)
    if 0.0 < rate < 1.0 and len(trials) > 1:
        scatter = float(((hits - rate * trials) ** 2).sum()) * len(trials) / (len(trials) - 1)
        worth = total / max(1.0, scatter / (rate * (1.0 - rate) * total))
    count = max(1.0, np.floor(worth))
    low = rate_floor(np.floor(rate * count), count, alpha)
    high = rate_ceiling(np.ceil(rate * count), count, alpha)
    return rate, min(float(low), rate), max(float(high), rate)
