"""Linkage: joins on quasi-identifiers, uniqueness, and sparse re-identification."""

from discreet.attack.link.join import Join, Links, linked
from discreet.attack.link.scoreboard import Found, Known, Ratings, Scoreboard, roughly
from discreet.attack.link.uniqueness import Uniqueness, uniqueness

__all__ = [
    "Found",
    "Join",
    "Known",
    "Links",
    "Ratings",
    "Scoreboard",
    "Uniqueness",
    "linked",
    "roughly",
    "uniqueness",
]
