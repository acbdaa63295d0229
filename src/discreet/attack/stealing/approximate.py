"""Copies that are learned: a student is trained on what the model answers, and asks about the rows that would teach it most.

Such a copy agrees with the model on most rows, never on all. It needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.attack.stealing.oracle import Oracle, step_of
from discreet.audit.binomial import rate_ceiling, rate_floor
from discreet.core import check
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
STRATEGIES = ("random", "margin", "synthesis")


@dataclass(frozen=True)
class Agreement:
    """How often a copy gave the model's label on `rows` held-out rows after so many queries, with its interval (exact)."""

    queries: int
    rows: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class StolenCopy:
    """A student, and how well it agrees with the model after each budget of queries."""

    student: Any
    curve: tuple[Agreement, ...]
    answers: str
    strategy: str

    def predict(self, rows: Any) -> NDArray[np.int64]:
        """The labels that the copy gives."""
        return np.asarray(_scores(self.student, np.asarray(rows, np.float32)).argmax(axis=1))

    @property
    def queries(self) -> int:
        return self.curve[-1].queries


def steal_approximate(
    model: Any, pool: ArrayLike, held_out: ArrayLike, *, budgets: Iterable[int], answers: str = "scores",
    strategy: str = "margin", student: Callable[[int, int], Any] | None = None, epochs: int = 60, confidence: float = 0.95,
    seed: int = 0,
) -> StolenCopy:  # fmt: skip
    """Train a student on the model's answers about rows of `pool`, and compare their labels on `held_out`, after each budget.

    `answers` is what of the answer is used: all "scores" (logits or probabilities), "top-3" for the three likeliest classes
    with their probabilities (or any other number of them), or "labels". `strategy` chooses rows: at "random"; by "margin",
    those between whose first and second class the student so far is least decided; by "synthesis", rows of the pool moved to
    where the student changes its mind, for a small pool. `student` makes a torch module of inputs and classes; a network of
    two hidden layers by default. Rows of `held_out` are asked about to measure, and do not count.
    """
    import torch

    from discreet.models.trainer import one_thread

    most = seen_classes(answers)
    check.word("strategy", strategy, STRATEGIES)
    rows, others = (np.asarray(each, np.float32) for each in (pool, held_out))
    steps = sorted({check.whole("a budget", budget) for budget in budgets})
    if rows.ndim < 2 or rows.shape[1:] != others.shape[1:] or not len(others) or not steps:
        raise InvalidValue(
            f"pool and held_out must be rows of the same shape, and a budget be named; got {rows.shape}, "
            f"{others.shape}, {steps}."
        )
    if strategy != "synthesis" and steps[-1] > len(rows):
        raise InvalidValue(f"A budget of {steps[-1]} queries needs as many rows; the pool has {len(rows)}. Or use 'synthesis'.")
    oracle = model if isinstance(model, Oracle) else Oracle(model)
    random, before = np.random.default_rng(check.whole("seed", seed, least=0)), oracle.queries
    truth = _labels(oracle(others))
    asked, told = rows[:0], np.zeros((0, 0))
    left, network, curve = random.permutation(len(rows)), None, []
    for budget in steps:
        chosen, left = _chosen(rows, left, budget - len(asked), network, strategy, random)
        found = oracle(chosen)
        told = np.concatenate([told.reshape(-1, _classes(found, truth)), _soft(found, most, _classes(found, truth))])
        asked = np.concatenate([asked, chosen])
        if (told.argmax(axis=1) == told[0].argmax()).all() and budget == steps[-1]:
            raise InvalidValue(f"The model gave one class to all {len(asked)} rows that it was asked about: nothing to learn.")
        with one_thread("cpu"), torch.random.fork_rng():
            torch.manual_seed(seed)
            network = (student or _network)(int(np.prod(rows.shape[1:])) if student is None else rows.shape[1], told.shape[1])
            _train(network, asked, told, epochs, seed)
        right = _scores(network, others).argmax(axis=1) == truth
        curve.append(_agreement(budget, right, confidence))
    oracle.queries -= oracle.queries - before - steps[-1]  # held-out rows measure; a thief would not ask about them
    return StolenCopy(network, tuple(curve), answers, strategy)


def _agreement(queries: int, right: NDArray[np.bool_], confidence: float) -> Agreement:
    hits, tries, alpha = int(right.sum()), len(right), (1 - check.open_fraction("confidence", confidence)) / 2
    return Agreement(
        queries, tries, hits / tries, float(rate_floor(hits, tries, alpha)), float(rate_ceiling(hits, tries, alpha))
    )


def _labels(found: Floats) -> NDArray[np.int64]:
    return found[:, 0].astype(np.int64) if found.shape[1] == 1 else found.argmax(axis=1)


def _classes(found: Floats, truth: NDArray[np.int64]) -> int:
    """Columns of scores; of labels alone as many as were seen, with room for those that were not."""
    if found.shape[1] > 1:
        return int(found.shape[1])
    if not np.array_equal(found, found.round()) or found.min() < 0:
        raise InvalidValue("The model answers with one number that is no label from 0 on; only classifiers are copied.")
    return int(max(2, truth.max() + 1))


def seen_classes(answers: str) -> int | None:
    """How many classes an answer gives probabilities of: None for "scores", 5 for "top-5", 0 for "labels"."""
    kind, _, number = check.word("answers", answers).partition("-")
    if answers in ("scores", "labels"):
        return None if answers == "scores" else 0
    if kind != "top" or not number.isdecimal() or not 0 < int(number) < 10**6:
        raise InvalidValue(f"answers must be scores, labels or top-K, such as top-3; got {answers!r}.")
    return int(number)


def _soft(found: Floats, most: int | None, classes: int) -> Floats:
    """What is learned from: a probability for each class. What is not said is shared evenly among the other classes."""
    label = _labels(found)
    if most == 0 or found.shape[1] == 1:
        return np.eye(max(classes, int(label.max()) + 1))[label][:, :classes]
    shares = shares_of(found)
    if most is None or most >= classes:
        return shares
    seen = shares >= np.partition(shares, -most, axis=1)[:, -most, None]
    return np.asarray(np.where(seen, shares, ((~seen * shares).sum(1) / np.maximum((~seen).sum(1), 1))[:, None]))


def shares_of(found: Floats) -> Floats:
    """Probabilities of classes from logits, or from probabilities that were rounded or of which only the largest are told."""
    if (found >= 0).all() and (found.sum(axis=1) <= 1 + found.shape[1] * step_of(found) / 2 + 1e-6).all():
        silent = found == 0
        left = np.maximum(1 - found.sum(axis=1), 0) / np.maximum(silent.sum(axis=1), 1)
        shares = np.where(silent, left[:, None], found)
    else:
        shares = np.exp(found - found.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _chosen(
    rows: Any, left: NDArray[np.int64], count: int, network: Any, strategy: str, random: np.random.Generator
) -> tuple[Any, NDArray[np.int64]]:
    if strategy == "synthesis" and (network is not None or count > len(left)):
        return _made(rows, count, network, random), left
    if strategy == "margin" and network is not None:
        some = left[: max(20 * count, 4096)]
        scores = np.sort(_scores(network, rows[some]), axis=1)
        order = np.argsort(scores[:, -1] - scores[:, -2])
        unsure = some[order[: count // 2]]  # the other half stays random: what is unsure alone is not like the pool
        rest = left[~np.isin(left, unsure)]
        picked = np.concatenate([unsure, rest[: count - len(unsure)]])
        return rows[picked], left[~np.isin(left, picked)]
    return rows[left[:count]], left[count:]


def _made(rows: Any, count: int, network: Any, random: np.random.Generator) -> Any:
    """Mixtures of two rows, most of them where the student is undecided (after Papernot et al. 2017)."""
    one, two = rows[random.integers(0, len(rows), (2, 8 * count))]
    share = random.random((8 * count, *[1] * (rows.ndim - 1))).astype(np.float32)
    mixed = share * one + (1 - share) * two
    if network is None:
        return mixed[:count]
    scores = np.sort(_scores(network, mixed), axis=1)
    unsure = np.argsort(scores[:, -1] - scores[:, -2])[: count // 2]
    return np.concatenate([mixed[unsure], mixed[np.setdiff1d(np.arange(len(mixed)), unsure)[: count - len(unsure)]]])


def _network(inputs: int, classes: int) -> Any:
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, classes))


def _train(network: Any, rows: Any, shares: Floats, epochs: int, seed: int) -> None:
    import torch

    inputs, wanted = torch.as_tensor(rows, dtype=torch.float32), torch.as_tensor(shares, dtype=torch.float32)
    random, batch = torch.Generator().manual_seed(seed), min(64, len(rows))
    steps = max(300, epochs * len(rows) // batch)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    network.train()
    for _ in range(steps):
        some = torch.randint(len(rows), (batch,), generator=random)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(inputs[some]), wanted[some]).backward()
        optimizer.step()
        schedule.step()
    network.eval()


def _scores(network: Any, rows: Any) -> Any:
    import torch

    network.eval()
    with torch.no_grad():
        parts = [network(part) for part in torch.as_tensor(rows, dtype=torch.float32).split(4096)]
    return torch.cat(parts).numpy()
