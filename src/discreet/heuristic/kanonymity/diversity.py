"""Checks of a table as it stands: k-anonymity, l-diversity (distinct, entropy), t-closeness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.columns import Column, classes, codes, columns, numeric
from discreet.core import check

KINDS = ("distinct", "entropy")


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """How the values of one sensitive column are spread over the table, to compare parts of it with."""

    code: NDArray[np.int64]
    share: NDArray[np.float64]
    ordered: bool

    def of(self, part: NDArray[Any]) -> NDArray[np.float64]:
        """The share of each value in a part of the rows."""
        return np.bincount(self.code[part], minlength=len(self.share)) / len(part)

    def distinct(self, part: NDArray[Any]) -> int:
        """How many different values a part has."""
        return int((np.bincount(self.code[part]) > 0).sum())

    def distance(self, part: NDArray[Any]) -> float:
        """The earth mover's distance of a part's distribution from the table's."""
        return float(distances(self.of(part)[None, :], self.share, ordered=self.ordered)[0])


def spread(column: Column) -> Spread:
    """The distribution of a column; the values of a column of numbers have an order, others are equally far apart."""
    code, values = codes(column)
    return Spread(code, np.bincount(code, minlength=len(values)) / len(code), numeric(column))


def distances(parts: NDArray[np.float64], whole: NDArray[np.float64], *, ordered: bool) -> NDArray[np.float64]:
    """Earth mover's distances of rows of shares from one distribution (Li, Li & Venkatasubramanian 2007, section 5).

    Ordered values are (rank difference) / (m - 1) apart, so the cost is the mean absolute cumulated difference; unordered
    ones are 1 apart, so it is half the absolute difference.
    """
    apart = parts - whole
    if not ordered:
        return np.asarray(np.abs(apart).sum(axis=1) / 2.0)
    return np.asarray(np.abs(np.cumsum(apart, axis=1)).sum(axis=1) / max(len(whole) - 1, 1))


def k_anonymity(table: Any, quasi: Sequence[str]) -> int:
    """The k that a table has: the fewest rows that share all of their quasi-identifiers.

    >>> k_anonymity({"zip": ["021*", "021*", "021*", "022*", "022*"]}, ["zip"])
    2
    """
    label, count = classes(list(columns(table, quasi).values()))
    return int(np.bincount(label, minlength=count).min())


def is_k_anonymous(table: Any, quasi: Sequence[str], k: int) -> bool:
    """Whether every combination of quasi-identifiers that occurs does so at least k times.

    >>> is_k_anonymous({"zip": ["021*", "021*", "022*"]}, ["zip"], 2)
    False
    """
    return k_anonymity(table, quasi) >= check.whole("k", k)


def l_diversity(table: Any, quasi: Sequence[str], sensitive: str, kind: str = "distinct") -> float:
    """The l that a table has: the fewest different sensitive values in a class, or the least exp(entropy) of them.

    Machanavajjhala et al. 2006. Each kind says how many equally likely values are left to someone who finds the class.

    >>> l_diversity({"zip": ["021*"] * 4, "illness": ["a", "a", "b", "c"]}, ["zip"], "illness")
    3.0
    """
    check.word("kind", kind, KINDS)
    counts = counted(table, quasi, sensitive)
    if kind == "distinct":
        return float((counts > 0).sum(axis=1).min())
    share = counts / counts.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(share > 0, share * np.log(share), 0.0).sum(axis=1)
    return float(np.exp(entropy.min()))


def is_l_diverse(table: Any, quasi: Sequence[str], sensitive: str, least: float, kind: str = "distinct") -> bool:
    """Whether the l of a table is at least `least`."""
    return l_diversity(table, quasi, sensitive, kind) >= check.positive("least", least) - 1e-9


def t_closeness(table: Any, quasi: Sequence[str], sensitive: str) -> float:
    """The t that a table has: the largest earth mover's distance of a class's sensitive values from the whole table's.

    >>> t_closeness({"zip": ["021*", "021*", "022*", "022*"], "illness": ["a", "b", "a", "b"]}, ["zip"], "illness")
    0.0
    """
    counts = counted(table, quasi, sensitive)
    ordered = numeric(columns(table, [sensitive])[sensitive])
    whole = counts.sum(axis=0) / counts.sum()
    return float(distances(counts / counts.sum(axis=1, keepdims=True), whole, ordered=ordered).max())


def is_t_close(table: Any, quasi: Sequence[str], sensitive: str, most: float) -> bool:
    """Whether every class's sensitive values are within `most` of the whole table's."""
    return t_closeness(table, quasi, sensitive) <= check.fraction("most", most) + 1e-12


def counted(table: Any, quasi: Sequence[str], sensitive: str) -> NDArray[np.float64]:
    """How often each sensitive value occurs in each class: classes by values."""
    parts = columns(table, [*quasi, sensitive])
    label, count = classes([parts[name] for name in quasi])
    code, values = codes(parts[sensitive])
    counts = np.bincount(label * len(values) + code, minlength=count * len(values))
    return counts.reshape(count, len(values)).astype(np.float64)
