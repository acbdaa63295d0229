"""Quantiles, minimum and maximum, chosen from a histogram."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from discreet.errors import InvalidQuery
from discreet.query.statistics.quantity import Histogram, Quantity
from discreet.query.statistics.statistic import Cells, ExpectedErrors, NoisyNumbers, Statistic

if TYPE_CHECKING:
    from discreet.query.calls import Call

MOST_RANKS = 100  # in one list


@dataclass(frozen=True, slots=True)
class Quantile(Statistic):
    """QUANTILE and its other names, MEDIAN, MIN (rank 0) and MAX (rank 1)."""

    rank: float = 0.5

    functions: ClassVar[tuple[str, ...]] = (
        "QUANTILE", "PERCENTILE_CONT", "PERCENTILE_DISC", "APPROX_QUANTILE", "MEDIAN", "MIN", "MAX",
    )  # fmt: skip

    @classmethod
    def read(cls, call: Call) -> Statistic:
        rank = {"MEDIAN": 0.5, "MIN": 0.0, "MAX": 1.0}.get(call.name)
        return cls(call.bounded(), call.rank() if rank is None else rank)

    @classmethod
    def read_columns(cls, call: Call) -> dict[str, Statistic]:
        ranks = call.ranks()
        if ranks is None:
            return {}
        if not ranks or len(set(ranks)) != len(ranks) or len(ranks) > MOST_RANKS:
            raise InvalidQuery("A list of quantiles needs between one and 100 different ranks, such as [0.25, 0.5, 0.75].")
        return {f"_{rank:g}": cls(call.bounded(), rank) for rank in ranks}

    @property
    def ranks(self) -> tuple[float, ...]:
        return (self.rank,)

    @property
    def histogram(self) -> Histogram:
        assert self.of is not None
        return Histogram(self.of)

    def measures(self, others: Collection[Collection[Quantity]] = ()) -> Mapping[Quantity, float]:
        return {self.histogram: 1.0}  # its rank is about as wrong as a count

    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        return noisy.ranked(self.histogram, self.rank, confidence)

    def expected_error(self, errors: ExpectedErrors) -> str:
        return "of the values themselves, none in between; depends on how the values lie; its interval comes with the answer"
