"""How much of its rows a query lost to bounding: one noisy share of all of them, for a small fixed part of its epsilon.

docs/theory/query-bounding.md derives the sensitivities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from discreet.core import Event, Pure, Unit
from discreet.noise import discrete_laplace, discrete_laplace_error
from discreet.query.engines.request import Plan, Request, Term
from discreet.query.operations import PlanKind, TermKind
from discreet.query.split import GRAIN, below
from discreet.query.statistics.statistic import each
from discreet.query.tree import Select

PART = Fraction(1, 25)  # of epsilon
KEPT_PART = Fraction(1, 4)  # of that: what is kept moves less with one unit than what there was
REACH = 8  # of each unit at most so many times the rows that count are seen at all
NOTED = 0.1  # a share above this is told
KEY = "bounding"  # of the answer's metadata


class Share(NamedTuple):
    """A share of rows, with its interval."""

    value: float
    low: float
    high: float
    whole: int = 0  # the noisy number that it is of, in parts of a row


@dataclass(frozen=True, slots=True)
class CutShare:
    """1 - (rows as they count) / (rows, of each unit at most REACH times its bound): two noisy sums over all groups.

    It is never more than the share of all rows that was cut, but for noise. `times` is 2 where units are replaced.
    """

    plan: Plan
    times: int
    grains: tuple[int, int]  # of epsilon: for the rows that are kept, and for all rows

    @property
    def epsilons(self) -> tuple[float, float]:
        return below(self.grains[0] * GRAIN), below(self.grains[1] * GRAIN)

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(Pure(epsilon) for epsilon in self.epsilons)

    @property
    def sensitivities(self) -> tuple[int, int]:
        """How far one unit moves the two sums, each over all groups together."""
        sampled = self.plan.kind == PlanKind.SAMPLED
        kept = self.plan.groups * self.plan.each if sampled else self.plan.rows
        return (kept * self.plan.scale * self.times, REACH * self.plan.rows * self.plan.scale * self.times)

    def terms(self) -> tuple[Term, ...]:
        """What is added up in the same pass as the query's own sums."""
        count = Term(TermKind.COUNT)
        return (count,) if self.plan.kind == PlanKind.SAMPLED else (count, Term(TermKind.WIDE, most=REACH))

    def requests(self, rows: Select) -> list[Request]:
        """What is asked beside it: where units are sampled, their rows without regard to groups, up to the reach."""
        reach = REACH * self.plan.rows
        widest = Plan(PlanKind.SAMPLED, reach, 1, reach)
        return [Request(rows, (), widest, (Term(TermKind.COUNT),))] if self.plan.kind == PlanKind.SAMPLED else []

    def run(self, sums: Mapping[str, Sequence[Any]], first: int, more: Mapping[str, Sequence[Any]], confidence: float) -> Share:
        """The noisy share, from the columns of `terms`, of which the first is s{first}, and of `requests`."""
        kept = sums[f"s{first}"]
        whole = more["s0"] if self.plan.kind == PlanKind.SAMPLED else sums[f"s{first + 1}"]
        exact = (sum(int(value or 0) for value in column) for column in (kept, whole))
        noisy = [value + discrete_laplace(scale) for value, scale in zip(exact, self._scales)]
        return _share(*noisy, *self._errors(confidence))._replace(whole=noisy[1])

    def most_rows(self, share: Share, confidence: float) -> float:
        """No more rows than this were counted, in whatever groups, at this confidence."""
        error = discrete_laplace_error(float(self._scales[1]), confidence)
        return max(0.0, (share.whole + error) / self.plan.scale)

    def rows_needed(self, confidence: float) -> float:
        """From how many rows on the share is within a tenth."""
        return sum(self._errors(confidence)) / self.plan.scale / NOTED

    @property
    def _scales(self) -> list[Fraction]:
        return [Fraction(most) / Fraction(epsilon) for most, epsilon in zip(self.sensitivities, self.epsilons)]

    def _errors(self, confidence: float) -> list[float]:
        both = each(2, confidence)
        return [float(discrete_laplace_error(float(scale), both)) for scale in self._scales]


def cut_share(plan: Plan, unit: Unit, epsilon: float, widest: int) -> CutShare | None:
    """The share of a query, or None where a row is a unit, and where noise would pass `widest` and tell nothing."""
    if plan.kind == PlanKind.ROWS:
        return None
    grains = math.floor(Fraction(repr(epsilon)) * PART / GRAIN)
    kept = max(1, math.floor(grains * KEPT_PART))
    share = CutShare(plan, 2 if unit.relation == "replace" else 1, (kept, max(1, grains - kept)))
    fits = all(most <= widest * part for most, part in zip(share.sensitivities, share.epsilons))
    return share if fits else None


def _share(kept: int, whole: int, kept_error: float, whole_error: float) -> Share:
    if whole <= 0:
        return Share(0.0, 0.0, 1.0)
    low = 1 - (kept + kept_error) / (whole - whole_error) if whole > whole_error else 0.0
    high = 1 - (kept - kept_error) / (whole + whole_error)
    value, low, high = (min(1.0, max(0.0, end)) for end in (1 - kept / whole, low, high))
    return Share(value, low, high)


def note(share: Share, rows: int) -> str | None:
    """What an answer tells of the share: nothing where it is at most a tenth."""
    if share.value > NOTED and share.low > 0:
        return (
            f"bounding cut {share.value:.0%} or more ({share.low:.0%} to {share.high:.0%}) of the rows asked about: of one "
            f"unit at most {rows} count, and counts and sums are of what is left. A larger rows= cuts less, with more noise."
        )
    if share.high - share.low > 2 * NOTED:
        return (
            f"how many of the rows asked about bounding cut cannot be told at this epsilon ({share.low:.0%} to "
            f"{share.high:.0%}): of one unit at most {rows} count."
        )
    return None
