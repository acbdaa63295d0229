"""Mondrian (LeFevre, DeWitt & Ramakrishnan 2006): cut along the widest column while every part stays large enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.columns import columns, like
from discreet.core import Claim, Game, NonPrivate, Unit, check, record
from discreet.errors import InvalidValue
from discreet.heuristic.kanonymity.diversity import Spread, spread
from discreet.heuristic.kanonymity.hierarchy import Floats, Hierarchy, Scale

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Anonymised:
    """A generalised table: `group[i]` is the class of row i, `low` and `high` the box of each class, `table` what is published.

    It has a floor and no ceiling: nothing bounds what it reveals.
    """

    quasi: tuple[str, ...]
    group: NDArray[np.int64]
    low: Floats
    high: Floats
    scales: tuple[Scale, ...]
    published: dict[str, Any]
    table: Any

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many rows each class has."""
        return np.bincount(self.group, minlength=len(self.low)).astype(np.int64)

    @property
    def k(self) -> int:
        """The size of the smallest class."""
        return int(self.sizes.min())

    def fits(self, people: Any) -> NDArray[np.bool_]:
        """For each row of `people`, the classes whose box holds it: true at [row, class]."""
        values = columns(people, self.quasi)
        inside = np.ones((len(next(iter(values.values()))), len(self.low)), dtype=np.bool_)
        for place, scale in enumerate(self.scales):
            value = scale.encode(values[scale.name])[:, None]
            inside &= (self.low[:, place] <= value) & (value <= self.high[:, place])
        return inside

    def penalty(self) -> float:
        """The mean normalised certainty penalty over all cells: 0 if every value is exact, 1 if every value is hidden."""
        penalties = [
            [scale.penalty(low, high) for low, high in zip(self.low[:, place], self.high[:, place])]
            for place, scale in enumerate(self.scales)
        ]
        return float((np.mean(penalties, axis=0) * self.sizes).sum() / len(self.group))

    def discernibility(self) -> int:
        """The sum of squared class sizes (Bayardo & Agrawal 2005): smaller is more useful."""
        return int((self.sizes**2).sum())

    def average_class(self, k: int) -> float:
        """The mean class size over k: 1 is the best there is."""
        return len(self.group) / len(self.low) / check.whole("k", k)

    def __repr__(self) -> str:
        return f"Anonymised({len(self.group)} rows in {len(self.low)} classes of at least {self.k})"


def anonymise(
    table: Any,
    quasi: Sequence[str],
    *,
    k: int,
    sensitive: str | Sequence[str] = (),
    diversity: int | None = None,
    closeness: float | None = None,
    strict: bool = True,
    hierarchies: Mapping[str, Hierarchy] | None = None,
) -> Anonymised:
    """Generalise the quasi-identifiers until every class has at least `k` rows, at least `diversity` different sensitive values
    (l-diversity), and a distribution of them within `closeness` of the table's (t-closeness).

    `strict` never separates equal values; relaxed cuts may, and make classes smaller. The sensitive columns are published as
    they are, all others are left out.

    >>> release = anonymise({"age": [21, 25, 34, 38], "illness": ["a", "b", "a", "b"]}, ["age"], k=2, sensitive="illness")
    >>> release.table["age"].tolist()
    ['21..25', '21..25', '34..38', '34..38']
    """
    check.whole("k", k)
    secrets = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    values = columns(table, [*quasi, *secrets])
    scales = tuple(Scale(name, values[name], (hierarchies or {}).get(name)) for name in quasi)
    matrix = np.stack([scale.numbers for scale in scales], axis=1)
    allowed = _rule(k, diversity, closeness, [spread(values[name]) for name in secrets])
    everyone = np.arange(len(matrix))
    if not allowed(everyone):
        raise InvalidValue(
            f"Even the whole table of {len(matrix)} rows as one class does not meet k = {k}"
            f"{'' if diversity is None else f', l = {diversity}'}{'' if closeness is None else f', t = {closeness:g}'}. "
            "Ask for less, or bring more rows."
        )
    leaves = list(_cut(matrix, everyone, scales, allowed, strict=strict))
    return _built(table, tuple(quasi), matrix, scales, leaves, {name: values[name] for name in secrets})


def _rule(k: int, diversity: int | None, closeness: float | None, secrets: list[Spread]) -> Callable[[Rows], bool]:
    """Whether a set of rows may be a class."""
    if (diversity is not None or closeness is not None) and not secrets:
        raise InvalidValue("diversity and closeness are about sensitive values; name the column: sensitive='illness'.")
    most = None if closeness is None else check.fraction("closeness", closeness)
    least = None if diversity is None else check.whole("diversity", diversity)

    def allowed(part: Rows) -> bool:
        if len(part) < k:
            return False
        return all(
            (least is None or secret.distinct(part) >= least) and (most is None or secret.distance(part) <= most + 1e-12)
            for secret in secrets
        )

    return allowed


def _cut(
    matrix: Floats, everyone: Rows, scales: tuple[Scale, ...], allowed: Callable[[Rows], bool], *, strict: bool
) -> Iterator[Rows]:
    """The parts that cannot be cut any further."""
    whole = np.maximum(matrix.max(axis=0) - matrix.min(axis=0), 1e-300)
    todo = [everyone]
    while todo:
        part = todo.pop()
        values = matrix[part]
        width = (values.max(axis=0) - values.min(axis=0)) / whole
        for place in np.argsort(-width, kind="stable"):
            if width[place] == 0.0:
                yield part
                break
            pieces = _pieces(values[:, place], scales[place], strict=strict)
            if pieces and all(allowed(part[piece]) for piece in pieces):
                todo += [part[piece] for piece in reversed(pieces)]
                break
        else:
            yield part


def _pieces(value: Floats, scale: Scale, *, strict: bool) -> list[Rows]:
    """Where to cut: at the branches of the tree, else at the median."""
    if scale.tree is not None:
        node = scale.tree.covering(int(value.min()), int(value.max()))
        parts = [np.flatnonzero((child.first <= value) & (value <= child.last)) for child in node.children]
        return [piece for piece in parts if len(piece)]
    half = len(value) // 2
    if not strict:
        order = np.argsort(value, kind="stable")
        return [order[:half], order[half:]]
    middle = np.partition(value, half)[half]
    below, upto = value < middle, value <= middle
    # of the two cuts beside the median, the one that leaves the halves more equal
    lower = below if abs(int(below.sum()) - half) <= abs(int(upto.sum()) - half) or upto.all() else upto
    return [np.flatnonzero(lower), np.flatnonzero(~lower)]


def _built(
    table: Any, quasi: tuple[str, ...], matrix: Floats, scales: tuple[Scale, ...], leaves: list[Rows], secrets: dict[str, Any]
) -> Anonymised:
    group = np.empty(len(matrix), dtype=np.int64)
    low, high = np.empty((len(leaves), len(scales))), np.empty((len(leaves), len(scales)))
    for number, part in enumerate(leaves):
        group[part] = number
        low[number], high[number] = matrix[part].min(axis=0), matrix[part].max(axis=0)
    published: dict[str, Any] = {}
    for place, scale in enumerate(scales):
        labels = np.array([scale.label(a, b) for a, b in zip(low[:, place], high[:, place])], dtype=object)
        published[scale.name] = labels[group]
        boxes = [scale.box(a, b) for a, b in zip(low[:, place], high[:, place])]
        low[:, place], high[:, place] = np.array(boxes).T
    published.update(secrets)
    return Anonymised(quasi, group, low, high, scales, published, like(table, published))


@dataclass(frozen=True, slots=True)
class KAnonymous:
    """The anonymiser as a mechanism. Its claim is `NonPrivate`: k-anonymity has a floor and no ceiling."""

    quasi: tuple[str, ...]
    k: int
    sensitive: tuple[str, ...] = ()
    diversity: int | None = None
    closeness: float | None = None
    strict: bool = True
    unit: Unit = field(default_factory=lambda: record("replace"))

    def claims(self) -> tuple[Claim, ...]:
        return (Claim(game=Game(self.unit, {"table"}), event=NonPrivate()),)

    def run(self, data: Any) -> Anonymised:
        return anonymise(
            data, self.quasi, k=self.k, sensitive=self.sensitive,
            diversity=self.diversity, closeness=self.closeness, strict=self.strict,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Composed:
    """Several releases about the same people, each of which is k-anonymous by itself."""

    parts: tuple[KAnonymous, ...]

    def claims(self) -> tuple[Claim, ...]:
        return self.parts[0].claims()

    def run(self, data: Any) -> tuple[Anonymised, ...]:
        return tuple(part.run(data) for part in self.parts)
