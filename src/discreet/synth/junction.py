"""Junction trees: a joint distribution over many columns by tables over few of them.

Cliques stand in an order in which each shares its `separator` with one earlier clique, its parent, and is independent of all
other earlier ones given it. So the joint is the first clique's table times one conditional table for each further clique.
docs/theory/synth-estimation.md proves what is used here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Set = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JunctionTree:
    """Cliques (sorted tuples of columns) in an order where parents come first; the parent of the first is -1.

    >>> tree = JunctionTree.of((2, 3, 4), [(0, 1), (1, 2)])
    >>> tree.cliques, tree.parents, tree.separators
    (((0, 1), (1, 2)), (-1, 0), ((), (1,)))
    """

    sizes: tuple[int, ...]
    cliques: tuple[Set, ...]
    parents: tuple[int, ...]
    separators: tuple[Set, ...]

    @classmethod
    def of(cls, sizes: Sequence[int], sets: Iterable[Set]) -> JunctionTree:
        """A junction tree each of whose cliques' unions holds the sets, found by eliminating columns, cheapest clique first."""
        maximal = _maximal(_eliminate(sizes, sets))
        return cls(tuple(sizes), *_joined(maximal))

    @property
    def cells(self) -> int:
        return sum(cells(clique, self.sizes) for clique in self.cliques)

    def home(self, columns: Iterable[int]) -> int | None:
        """The place of the smallest clique that holds these columns, if one does."""
        wanted = set(columns)
        homes = [i for i, clique in enumerate(self.cliques) if wanted <= set(clique)]
        return min(homes, key=lambda i: cells(self.cliques[i], self.sizes)) if homes else None

    def zeros(self) -> list[Floats]:
        """Potentials of the uniform distribution."""
        return [np.zeros([self.sizes[column] for column in clique]) for clique in self.cliques]

    def conditionals(self, potentials: Sequence[Floats]) -> tuple[list[Floats], float]:
        """p(clique | separator) for each clique, of the density ~ exp(sum of potentials); and the log of its normaliser.

        One pass from the leaves adds the log-sum of each clique given its separator to its parent's potential. Where nothing
        is possible given a separator, the conditional is zero, and the parent never takes that separator.
        """
        sums = [potential.copy() for potential in potentials]
        result: list[Floats] = list(sums)
        log_total = 0.0
        for i in range(len(sums) - 1, -1, -1):
            clique, separator = self.cliques[i], self.separators[i]
            axes = tuple(place for place, column in enumerate(clique) if column not in separator)
            top = sums[i].max(axis=axes, keepdims=True)
            top[~np.isfinite(top)] = 0.0
            result[i] = np.exp(sums[i] - top)
            total = result[i].sum(axis=axes, keepdims=True)
            np.divide(result[i], total, out=result[i], where=total > 0)
            with np.errstate(divide="ignore"):
                message = np.log(total) + top
            if self.parents[i] < 0:
                log_total += float(message.reshape(-1)[0])
            else:
                sums[self.parents[i]] += spread(message.squeeze(axes), separator, self.cliques[self.parents[i]])
        return result, log_total

    def beliefs(self, conditionals: Sequence[Floats]) -> list[Floats]:
        """The marginal of every clique, from parents to children."""
        result: list[Floats] = []
        for i, conditional in enumerate(conditionals):
            if self.parents[i] < 0:
                result.append(conditional)
                continue
            parent = onto(result[self.parents[i]], self.cliques[self.parents[i]], self.separators[i])
            result.append(conditional * spread(parent, self.separators[i], self.cliques[i]))
        return result

    def most(self, scores: Sequence[Floats]) -> float:
        """The largest sum of scores over the cells of one row: dynamic programming from the leaves."""
        sums = [score.copy() for score in scores]
        best = 0.0
        for i in range(len(sums) - 1, -1, -1):
            axes = tuple(place for place, column in enumerate(self.cliques[i]) if column not in self.separators[i])
            top = sums[i].max(axis=axes)
            if self.parents[i] < 0:
                best += float(top)
            else:
                sums[self.parents[i]] += spread(top, self.separators[i], self.cliques[self.parents[i]])
        return best

    def marginal(self, conditionals: Sequence[Floats], columns: Set) -> Floats:
        """The marginal of any columns, in the order given: factors multiplied and other columns summed out one by one."""
        home = self.home(columns)
        if home is not None:
            belief = self.beliefs(conditionals)[home]
            return onto(belief, self.cliques[home], columns)
        needed = [bool((set(c) - set(s)) & set(columns)) for c, s in zip(self.cliques, self.separators)]
        for i in range(len(needed) - 1, 0, -1):  # a clique without a wanted column, itself or below it, sums to one
            if needed[i] and self.parents[i] >= 0:
                needed[self.parents[i]] = True
        factors = [(clique, table) for clique, table, keep in zip(self.cliques, conditionals, needed) if keep]
        return _summed(factors, columns, self.sizes)


def cells(columns: Iterable[int], sizes: Sequence[int]) -> int:
    return math.prod(sizes[column] for column in columns)


def onto(table: Floats, columns: Set, wanted: Set) -> Floats:
    """A table summed onto some of its columns, in the order asked for."""
    rest = tuple(place for place, column in enumerate(columns) if column not in wanted)
    summed: Floats = table.sum(axis=rest) if rest else table
    remaining = [column for column in columns if column in wanted]
    return summed if tuple(remaining) == tuple(wanted) else summed.transpose([remaining.index(column) for column in wanted])


def spread(table: Floats, columns: Set, over: Set) -> Floats:
    """A table over some columns as one that broadcasts over more; both are sorted."""
    present = iter(table.shape)
    return table.reshape([next(present) if column in columns else 1 for column in over])


def _eliminate(sizes: Sequence[int], sets: Iterable[Set]) -> list[frozenset[int]]:
    """Cliques of the graph after eliminating columns one by one: first those whose neighbours are all joined, then the
    cheapest.

    A column whose neighbours are connected already adds no edge, so a tree of pairs stays a tree.
    """
    near = [{i} for i in range(len(sizes))]
    for columns in sets:
        for a, b in combinations(columns, 2):
            near[a].add(b)
            near[b].add(a)

    def cost(column: int) -> tuple[bool, int]:
        return any(not near[column] <= near[other] for other in near[column]), cells(near[column], sizes)

    costs = {column: cost(column) for column in range(len(sizes))}
    cliques = []
    while costs:
        column = min(costs, key=lambda i: (costs[i], i))
        del costs[column]
        clique = frozenset(near[column])
        cliques.append(clique)
        rest = clique - {column}
        changed = set(rest)
        for other in rest:
            changed |= near[other]
            near[other] |= clique
            near[other].discard(column)
        for other in changed & costs.keys():
            costs[other] = cost(other)
    return cliques


def _maximal(cliques: list[frozenset[int]]) -> list[Set]:
    maximal: list[frozenset[int]] = []
    for clique in sorted(cliques, key=len, reverse=True):
        if not any(clique <= other for other in maximal):
            maximal.append(clique)
    return [tuple(sorted(clique)) for clique in maximal]


def _joined(cliques: list[Set]) -> tuple[tuple[Set, ...], tuple[int, ...], tuple[Set, ...]]:
    """A spanning tree of the cliques with the largest separators (Prim), which has the running intersection property."""
    start = max(range(len(cliques)), key=lambda i: (len(cliques[i]), -i))
    order, parents = [start], [-1]
    separators: list[Set] = [()]
    best = {i: (len(set(cliques[i]) & set(cliques[start])), 0) for i in range(len(cliques)) if i != start}
    while best:
        place = max(best, key=lambda i: (best[i][0], -i))
        shared, parent = best.pop(place)
        separators.append(tuple(column for column in cliques[place] if column in cliques[order[parent]]))
        order.append(place)
        parents.append(parent if shared else -1)
        for i in best:
            common = len(set(cliques[i]) & set(cliques[place]))
            if common > best[i][0]:
                best[i] = (common, len(order) - 1)
    return tuple(cliques[i] for i in order), tuple(parents), tuple(separators)


def _summed(factors: list[tuple[Set, Floats]], wanted: Set, sizes: Sequence[int]) -> Floats:
    """The product of factors summed onto `kept`: variable elimination, the cheapest column first."""
    pending = {column for columns, _ in factors for column in columns} - set(wanted)
    while pending:
        unions = {column: set().union(*(c for c, _ in factors if column in c)) for column in pending}
        column = min(pending, key=lambda c: (cells(unions[c], sizes), c))
        touching = [factor for factor in factors if column in factor[0]]
        factors = [factor for factor in factors if column not in factor[0]]
        result = tuple(sorted(unions[column] - {column}))
        factors.append((result, _product(touching, result)))
        pending.discard(column)
    return _product(factors, wanted)


def _product(factors: list[tuple[Set, Floats]], result: Set) -> Floats:
    operands: list[Any] = []
    names = {column: i for i, column in enumerate(sorted({c for columns, _ in factors for c in columns} | set(result)))}
    for columns, table in factors:
        operands += [table, [names[column] for column in columns]]
    product: Floats = np.einsum(*operands, [names[column] for column in result], optimize=len(factors) > 2)
    return product
