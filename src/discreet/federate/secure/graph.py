"""Who masks with whom: everybody with everybody, or each with k others, and what the smaller graph risks.

The sparse graph is a ring in an order drawn from a public seed, in which each client masks with the k/2 before it and the k/2
behind it (a Harary graph, as in Bell et al. 2020). Whoever colludes or drops out without regard to the seed takes a uniformly
random set of places, so the number of them among k neighbours is hypergeometric. The bounds below sum its exact terms, as
whole numbers, over all clients.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction

from discreet.core import check
from discreet.errors import InvalidValue


@dataclass(frozen=True)
class GraphBounds:
    """Upper bounds on what may go wrong in one round.

    `learned`: that the colluding clients and the server learn more than the sum over all honest clients that stayed: both
    secrets of one client, or the sum of a part of them, because the rest of the ring fell apart. `failed`: that the round
    cannot be opened, because some client has too few neighbours left.
    """

    learned: float
    failed: float


def graph_bounds(clients: int, neighbours: int, threshold: int, *, colluding: int, dropped: int) -> GraphBounds:
    """How likely a round with so many colluding clients, and so many that drop out, goes wrong.

    The seed of the graph must not be chosen by, or known beforehand to, those who decide who colludes or drops out.

    >>> graph_bounds(10, 9, 7, colluding=2, dropped=2)  # everybody with everybody: certain
    GraphBounds(learned=0.0, failed=0.0)
    >>> graph_bounds(1000, 100, 70, colluding=50, dropped=50).learned < 2**-40
    True
    """
    neighbours = check.whole("neighbours", neighbours, least=2, most=check.whole("clients", clients, least=3) - 1)
    threshold = check.whole("threshold", threshold, least=neighbours // 2 + 1, most=neighbours)
    colluding = check.whole("colluding", colluding, least=0, most=clients)
    dropped = check.whole("dropped", dropped, least=0, most=clients - colluding)
    both = 2 * threshold - neighbours  # so many colluding neighbours let the others be told different stories
    learned = clients * _tail(clients - 1, colluding, neighbours, both)
    if neighbours < clients - 1:
        learned += clients * _all_gone(clients, colluding + dropped, neighbours // 2)
    failed = clients * _tail(clients - 1, dropped, neighbours, neighbours - threshold + 1)
    return GraphBounds(_up(learned), _up(failed))


def sparse_graph(
    clients: int, *, colluding: int, dropped: int, learned: float = 2.0**-40, failed: float = 2.0**-20
) -> tuple[int, int]:
    """The fewest neighbours, and their threshold, with which a round stays within these bounds.

    >>> neighbours, threshold = sparse_graph(1000, colluding=50, dropped=100)
    >>> found = graph_bounds(1000, neighbours, threshold, colluding=50, dropped=100)
    >>> found.learned <= 2**-40 and found.failed <= 2**-20
    True
    """
    learned, failed = check.open_fraction("learned", learned), check.open_fraction("failed", failed)

    def threshold_for(neighbours: int) -> int | None:
        for threshold in range(neighbours // 2 + 1, neighbours + 1):
            bounds = graph_bounds(clients, neighbours, threshold, colluding=colluding, dropped=dropped)
            if bounds.failed > failed:
                return None
            if bounds.learned <= learned:
                return threshold
        return None

    for neighbours in (*range(2, clients - 1, 2), clients - 1):
        if neighbours > 2 and (threshold := threshold_for(neighbours)) is not None:
            return neighbours, threshold
    raise InvalidValue(
        f"No graph over {clients} clients withstands {colluding} that collude and {dropped} that drop out within these bounds: "
        "with everybody as neighbours, a threshold must be above half of all others and colluding, and below those that stay."
    )


def ring(clients: int, neighbours: int, seed: bytes) -> list[list[int]]:
    """The neighbours of each client, in ascending order."""
    if neighbours == clients - 1:
        return [[other for other in range(clients) if other != client] for client in range(clients)]
    order = sorted(range(clients), key=lambda client: hashlib.sha256(seed + client.to_bytes(8, "big")).digest())
    steps = [*range(-(neighbours // 2), 0), *range(1, neighbours // 2 + 1)]
    found: list[list[int]] = [[] for _ in range(clients)]
    for place, client in enumerate(order):
        found[client] = sorted(order[(place + step) % clients] for step in steps)
    return found


def _tail(others: int, marked: int, drawn: int, least: int) -> Fraction:
    """The probability that at least so many of the drawn ones are marked: exact."""
    if least <= 0:
        return Fraction(1)
    ways = sum(
        math.comb(marked, found) * math.comb(others - marked, drawn - found)
        for found in range(least, min(marked, drawn) + 1)
        if drawn - found <= others - marked
    )
    return Fraction(ways, math.comb(others, drawn))


def _all_gone(clients: int, gone: int, run: int) -> Fraction:
    """The probability that so many places in a row are all among those that are gone: without such a gap a ring holds."""
    return Fraction(math.comb(clients - run, gone - run), math.comb(clients, gone)) if gone >= run else Fraction(0)


def _up(exact: Fraction) -> float:
    """As a float, rounded up; a bound of 1 or more says nothing, and is 1."""
    if exact >= 1:
        return 1.0
    nearest = float(exact)
    return math.nextafter(nearest, 1.0) if Fraction(nearest) < exact else nearest
