"""Values: unit, game, event, curve, claim, evidence, release, verdict. Standard library and numpy only."""

from discreet.core.adjacency import relations, replaced
from discreet.core.claim import Claim
from discreet.core.curve import Curve
from discreet.core.event import (
    Approximate,
    Concentrated,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Exponential,
    Gaussian,
    Group,
    Laplace,
    NoisyMax,
    NonPrivate,
    ObjectivePerturbation,
    Poisson,
    PoissonReplace,
    Pure,
    RandomAllocation,
    RandomizedResponse,
    Repeat,
    Sequence,
    Shuffled,
    StudentT,
    WithoutReplacement,
    Zero,
    event_from_json,
)
from discreet.core.evidence import Evidence
from discreet.core.facts import Facts
from discreet.core.game import Game, Unit, record, user
from discreet.core.protocols import Attack, Mechanism, Worlds
from discreet.core.release import ExternalValue, Release
from discreet.core.roc import Roc
from discreet.core.verdict import Verdict

__all__ = [
    "Approximate",
    "Attack",
    "Claim",
    "Concentrated",
    "Curve",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Event",
    "Evidence",
    "Exponential",
    "ExternalValue",
    "Facts",
    "Game",
    "Gaussian",
    "Group",
    "Laplace",
    "Mechanism",
    "NoisyMax",
    "NonPrivate",
    "ObjectivePerturbation",
    "Poisson",
    "PoissonReplace",
    "Pure",
    "RandomAllocation",
    "RandomizedResponse",
    "Release",
    "Repeat",
    "Roc",
    "Sequence",
    "Shuffled",
    "StudentT",
    "Unit",
    "Verdict",
    "WithoutReplacement",
    "Worlds",
    "Zero",
    "event_from_json",
    "record",
    "relations",
    "replaced",
    "user",
]
