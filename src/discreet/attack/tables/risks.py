"""Singling out, linkability and inference: the three questions of WP29 Opinion 05/2014, each asked against a control group.

An attacker who only has the synthetic table tries the same on people who were in the real table and on people who were not.
What succeeds on both is knowledge about the population; the difference is what the table gives away about its members. The
definitions follow Giomi et al. (PETS 2023). Rates have exact intervals (Clopper and Pearson), which hold together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.tables.density import nearest
from discreet.attack.tables.encode import Encoding
from discreet.audit.binomial import rate_ceiling, rate_floor
from discreet.core import check
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
Marks = NDArray[np.bool_]
MOST_COLUMNS = 6  # of a predicate
NEAR = 0.05  # in rank, for a number that counts as guessed
MOST_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Risk:
    """How often an attack was right on members, on the control group, and by a guess without the synthetic table (`baseline`),
    which is made from the control group alone.

    `share` is the part of what the control group leaves open that the table gives away: (members - control) / (1 - control);
    `low` and `high` enclose it at `confidence`. Attempts are taken to be independent.
    """

    name: str
    attempts: int
    members: float
    control: float
    baseline: float
    share: float
    low: float
    high: float
    confidence: float

    def __str__(self) -> str:
        return (f"{self.name}: right on {self.members:.1%} of members and {self.control:.1%} of the control group "
                f"(a blind guess {self.baseline:.1%}); risk {self.share:.1%} ({self.low:.1%} to {self.high:.1%})")  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return dict(asdict(self))


def compared(name: str, members: Marks, control: Marks, baseline: float, confidence: float) -> Risk:
    """The risk from what was right and what was not.

    >>> both = np.ones(400, bool)
    >>> compared("inference", both, ~both, 0.5, 0.95).low > 0.9
    True
    """
    alpha = (1 - check.open_fraction("confidence", confidence)) / 4  # two ends of two rates
    rates, ends = [], []
    for right in (members, control):
        hits, tries = int(right.sum()), len(right)
        rates.append(hits / tries)
        ends.append((float(rate_floor(hits, tries, alpha)), float(rate_ceiling(hits, tries, alpha))))
    (low, high), (control_low, control_high) = ends
    return Risk(name, len(members), rates[0], rates[1], baseline, _excess(*rates), _excess(low, control_high),
                _excess(high, control_low), confidence)  # fmt: skip


def _excess(rate: float, control: float) -> float:
    return max(0.0, (rate - control) / (1 - control)) if control < 1 else 0.0


def singling_out(
    synthetic: Any, members: Any, control: Any, *, attempts: int = 500, seed: int = 0, confidence: float = 0.95
) -> Risk:
    """Does a predicate that fits one synthetic row fit exactly one real row?

    A predicate takes a synthetic row and two to six of its columns: equal where the column holds categories, at least or at
    most where it holds numbers; no predicate is counted twice. As many members as control rows are looked at. The baseline
    writes its predicates from control rows instead, in their scale: it never sees the synthetic table.
    """
    check.whole("attempts", attempts)
    random = np.random.default_rng(check.whole("seed", seed, least=0))
    encoding, rows = _encoded(synthetic)
    known, others = _evenly(encoding.rows(members), encoding.rows(control), random)
    found = _predicates(encoding, rows, attempts, random)
    if not found:
        raise InvalidValue("No predicate fits one synthetic row alone: the table has too few columns or values to single out.")
    right = [np.array([_fits(it, table) == 1 for it in found]) for table in (known, others)]
    blind = _guessed(members, control, attempts, np.random.default_rng([seed, 1]))
    return compared("singling out", right[0], right[1], blind, confidence)


def _guessed(members: Any, control: Any, attempts: int, random: np.random.Generator) -> float:
    """How often a predicate that fits one control row fits one member."""
    public, rows = _encoded(control)
    ours, theirs = _evenly(public.rows(members), rows, random)
    fits = [_fits(it, ours) == 1 for it in _predicates(public, theirs, attempts, random)]
    return float(np.mean(fits)) if fits else 0.0


Predicate = list[tuple[int, float, int]]  # a column, a value, and -1, 0 or 1: at most, equal, at least


def _predicates(encoding: Encoding, rows: Floats, count: int, random: np.random.Generator) -> list[Predicate]:
    """Different predicates that fit exactly one of the rows; fewer than asked where they are hard to find."""
    made: list[Predicate] = []
    seen: set[str] = set()
    most = min(MOST_COLUMNS, len(encoding.scales))
    for _ in range(20 * count):
        if len(made) == count:
            break
        size = int(random.integers(min(2, most), most + 1))
        places = random.choice(len(encoding.scales), size, replace=False)
        row = rows[random.integers(len(rows))]
        it = sorted((int(i), float(row[i]), _side(encoding, int(i), row[i])) for i in places)
        if str(it) not in seen and _fits(it, rows) == 1:
            made.append(it)
        seen.add(str(it))
    return made


def _side(encoding: Encoding, column: int, value: float) -> int:
    if encoding.scales[column].categories is not None or np.isnan(value):
        return 0
    return 1 if value >= 0.5 else -1


def _fits(predicate: Predicate, rows: Floats) -> int:
    fits = np.ones(len(rows), np.bool_)
    for column, value, side in predicate:
        cells = rows[:, column]
        if np.isnan(value):
            fits &= np.isnan(cells)
        else:
            fits &= (cells == value) if side == 0 else (cells >= value) if side > 0 else (cells <= value)
    return int(fits.sum())


def linkability(
    synthetic: Any, members: Any, control: Any, first: Sequence[str], second: Sequence[str], *, neighbours: int = 1,
    attempts: int = 500, seed: int = 0, confidence: float = 0.95,
) -> Risk:  # fmt: skip
    """Does the synthetic table show that two halves of a record belong together?

    Somebody holds the columns `first` of a person in one file and the columns `second` in another. Both are linked where they
    are near to the same synthetic row, among so many `neighbours`.
    """
    check.whole("neighbours", neighbours)
    if set(first) & set(second) or not first or not second:
        raise InvalidValue("first and second must be columns of their own: at least one each, and none in both.")
    random = np.random.default_rng(check.whole("seed", seed, least=0))
    halves = [_encoded(synthetic, list(names)) for names in (first, second)]
    rows = len(halves[0][1])
    count = min(neighbours, rows)
    right = []
    picked = _picked([members, control], attempts, random)
    for table, some in zip((members, control), picked):
        near = [nearest(encoding, known, encoding.rows(table)[some], count)[0] for encoding, known in halves]
        right.append((near[0][:, :, None] == near[1][:, None, :]).any(axis=(1, 2)))
    baseline = 1 - comb(rows - count, count) / comb(rows, count) if 2 * count <= rows else 1.0
    return compared("linkability", right[0], right[1], baseline, confidence)


def inference(
    synthetic: Any, members: Any, control: Any, secret: str, known: Sequence[str] | None = None, *, attempts: int = 500,
    seed: int = 0, confidence: float = 0.95,
) -> Risk:  # fmt: skip
    """Is the `secret` of a person guessed from the synthetic row nearest to them in the columns `known` (all others)?

    A category must be right; a number must be within five percent of all rows. The baseline guesses the most frequent category,
    or the median, of the control group: it never sees the synthetic table.
    """
    random = np.random.default_rng(check.whole("seed", seed, least=0))
    whole, _ = _encoded(synthetic)
    names = [name for name in whole.names if name != secret] if known is None else list(known)
    if secret in names or not names:
        raise InvalidValue(f"The secret {secret!r} must not be among the known columns, of which there must be at least one.")
    encoding, rows = _encoded(synthetic, names)
    guessing, values = _encoded(synthetic, [secret])
    category = guessing.scales[0].categories is not None
    filled, right = np.nan_to_num(values[:, 0], nan=-2.0), []
    picked = _picked([members, control], attempts, random)
    for table, some in zip((members, control), picked):
        place = nearest(encoding, rows, encoding.rows(table)[some])[0][:, 0]
        away = np.abs(filled[place] - np.nan_to_num(guessing.rows(table)[some, 0], nan=-2.0))
        right.append(away == 0 if category else away <= NEAR)
    return compared(f"inference of {secret}", right[0], right[1], _usual(members, control, secret, picked[0]), confidence)


def _usual(members: Any, control: Any, secret: str, some: NDArray[np.int64]) -> float:
    """How often the most frequent category of the control group, or its median, is right on some members."""
    public, values = _encoded(control, [secret])
    known, truth = (np.nan_to_num(it[:, 0], nan=-2.0) for it in (values, public.rows(members)[some]))
    if public.scales[0].categories is None:
        return float(np.mean(np.abs(truth - np.median(known)) <= NEAR))
    usual = np.bincount((known + 2).astype(np.int64)).argmax() - 2
    return float(np.mean(truth == usual))


def _encoded(table: Any, names: Sequence[str] | None = None) -> tuple[Encoding, Floats]:
    encoding = Encoding.of(table, names)
    return encoding, encoding.rows(table)[:MOST_ROWS]


def _picked(tables: list[Any], attempts: int, random: np.random.Generator) -> list[NDArray[np.int64]]:
    """As many rows of each table as are asked for, or as there are."""
    from discreet.columns import columns

    counts = [len(next(iter(columns(table).values()))) for table in tables]
    return [random.choice(count, min(count, attempts), replace=False) for count in counts]


def _evenly(one: Floats, other: Floats, random: np.random.Generator) -> tuple[Floats, Floats]:
    """As many rows of both: a predicate fits fewer rows of a smaller table."""
    count = min(len(one), len(other))
    return one[random.choice(len(one), count, replace=False)], other[random.choice(len(other), count, replace=False)]
