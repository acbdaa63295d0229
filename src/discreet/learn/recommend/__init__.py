"""Private recommenders. docs/theory/recommend.md has the proofs."""

from __future__ import annotations

from discreet.learn.recommend.factors import Factors
from discreet.learn.recommend.recommender import Recommender
from discreet.learn.recommend.summaries import Summaries

__all__ = ["Factors", "Recommender", "Summaries"]
