"""PATE: private aggregation of teacher ensembles. docs/theory/pate.md has the proofs."""

from __future__ import annotations

from discreet.learn.pate.estimate import data_dependent_epsilon, release_estimate
from discreet.learn.pate.estimator import PATE, Poll, ask
from discreet.learn.pate.student import GraphStudent, VoteRegressor
from discreet.learn.pate.teachers import Teachers
from discreet.learn.pate.voting import Answers, ConfidentGNMax, GNMax, LNMax, calibrated

__all__ = [
    "PATE",
    "Answers",
    "ConfidentGNMax",
    "GNMax",
    "GraphStudent",
    "LNMax",
    "Poll",
    "Teachers",
    "VoteRegressor",
    "ask",
    "calibrated",
    "data_dependent_epsilon",
    "release_estimate",
]
