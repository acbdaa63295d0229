"""Linkage: joins on quasi-identifiers, uniqueness, and sparse re-identification."""

from discreet.attack.link.join import Join, Links, linked
from discreet.attack.link.scoreboard import BestMatch, Known, Ratings, Scoreboard, approximate_knowledge
from discreet.attack.link.uniqueness import Uniqueness, uniqueness

__all__ = [
    "BestMatch",
    "Join",
    "Known",
    "Links",
    "Ratings",
    "Scoreboard",
    "Uniqueness",
    "approximate_knowledge",
    "linked",
    "uniqueness",
]
