"""The likeliest continuations of a prompt, in order: best-first search, which is exact (Carlini et al. 2019, section 6)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.attack.extraction.reading import language_model, next_token
from discreet.core import check
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
TOGETHER = 64  # prefixes that are asked about at once


@dataclass(frozen=True)
class Continuation:
    """Tokens and their log-probability after the prompt, among the tokens that were allowed."""

    tokens: tuple[int, ...]
    log_probability: float


@dataclass(frozen=True)
class Likeliest:
    """Continuations, the likeliest first; `complete` where none that is likelier can have been missed.

    `asked` is how many prefixes the model was asked about.
    """

    found: tuple[Continuation, ...]
    complete: bool
    asked: int


def likeliest(
    model: Any, prompt: ArrayLike, alphabet: Sequence[int], length: int, *, most: int = 1, least: float = -np.inf,
    budget: int = 20_000,
) -> Likeliest:  # fmt: skip
    """The `most` likeliest continuations of `length` tokens of the alphabet, or all above the log-probability `least`.

    A prefix is never likelier than what it begins, so what is taken from the top of the queue complete is the likeliest left.
    The search stops when it has asked about `budget` prefixes.
    """
    model, start = language_model(model), np.asarray(prompt, np.int64)
    letters = np.array(sorted(set(map(int, alphabet))), np.int64)
    check.whole("length", length), check.whole("most", most), check.whole("budget", budget)
    if not len(letters) or start.ndim != 1 or not len(start):
        raise InvalidValue("The search needs a prompt of at least one token, and an alphabet of at least one.")
    number, asked = count(), 0
    queue: list[tuple[float, int, tuple[int, ...]]] = [(0.0, next(number), ())]
    found: list[Continuation] = []
    while queue and len(found) < most:
        if len(queue[0][2]) == length:
            cost, _, tokens = heapq.heappop(queue)
            found.append(Continuation(tokens, -cost))
            continue
        if asked >= budget:
            return Likeliest(tuple(found), False, asked)
        opened = _opened(queue, length, TOGETHER if asked else 1)
        rows = np.array([np.concatenate([start, np.array(tokens, np.int64)]) for _, tokens in opened])
        asked += len(opened)
        for (cost, tokens), logs in zip(opened, next_token(model, rows)[:, letters]):
            for letter, log in zip(letters.tolist(), logs.tolist()):
                if log - cost >= least:
                    heapq.heappush(queue, (cost - log, next(number), (*tokens, letter)))
    return Likeliest(tuple(found), True, asked)


def _opened(queue: list[Any], length: int, most: int) -> list[tuple[float, tuple[int, ...]]]:
    """Prefixes of one length from the top of the queue, to be asked about together; the first of them must be."""
    cost, _, tokens = heapq.heappop(queue)
    opened: list[tuple[float, tuple[int, ...]]] = [(cost, tokens)]
    put_back: list[Any] = []
    while queue and len(opened) < most and len(put_back) < most:
        other = heapq.heappop(queue)
        if len(other[2]) == len(tokens) and other[0] < cost + 2.0:
            opened.append((other[0], other[2]))
        else:
            put_back.append(other)
    for other in put_back:
        heapq.heappush(queue, other)
    return opened
