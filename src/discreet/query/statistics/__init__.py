"""The statistics that may be asked, one class each, shared by SQL and arrays.

`quantity` is what they are estimated from; `statistic` is what each of them says. A query measures every quantity once.
"""

from __future__ import annotations

from discreet.query.statistics.counts import Count, CountUnits, CountValues
from discreet.query.statistics.moments import Deviation, Mean, Sum, Variance
from discreet.query.statistics.pairs import Correlation, Covariance
from discreet.query.statistics.ranks import Quantile
from discreet.query.statistics.statistic import Statistic

__all__ = ["STATISTICS", "Correlation", "Count", "CountUnits", "CountValues", "Covariance", "Deviation", "Mean", "Quantile",
           "Statistic", "Sum", "Variance"]  # fmt: skip

STATISTICS: tuple[type[Statistic], ...] = (
    Count, CountUnits, CountValues, Sum, Mean, Variance, Deviation, Covariance, Correlation, Quantile,
)  # fmt: skip
