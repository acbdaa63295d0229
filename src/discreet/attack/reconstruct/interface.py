"""What is attacked: an interface that counts a secret bit over any subset, exactly, with noise, or within a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.audit.worlds import coins
from discreet.core import Claim, Game, NonPrivate, Repeat, Unit, check, record
from discreet.errors import BudgetExceeded, InvalidValue
from discreet.ledger import LedgerLike, as_ledger, question_key
from discreet.noise import GaussianNoise, LaplaceNoise

Bits = NDArray[np.bool_]
Ask = Callable[[Any], float]  # a question in, a number out: a subset here, a predicate or SQL elsewhere


@dataclass(frozen=True, slots=True)
class Counts:
    """A mechanism: `run(bits)` gives an `ask(subset)` that says how many of the subset have the bit.

    `noise` is what is added to each answer: a mechanism for one whole number, or None. `most` is how many answers there
    are; after them every question is refused. Without noise, or without an end, nothing is claimed. With `remember` a
    question asked again gets the answer it got before, and costs nothing.

    >>> ask = Counts(noise=None, most=None).run(np.array([True, False, True]))
    >>> ask(np.array([True, True, False]))
    1.0
    """

    noise: Any
    most: int | None
    remember: bool = True
    unit: Unit = field(default_factory=lambda: record("replace"))

    def __post_init__(self) -> None:
        if self.noise is not None and not (hasattr(self.noise, "run") and hasattr(self.noise, "claims")):
            raise InvalidValue("noise must be a mechanism for one whole number, such as LaplaceNoise, or None.")
        if self.most is not None:
            check.whole("most", self.most)

    def claims(self) -> tuple[Claim, ...]:
        if self.noise is None or self.most is None:
            return (Claim(game=Game(self.unit, {"answers"}), event=NonPrivate()),)
        return tuple(
            Claim(game=each.game, event=Repeat(each.event, self.most), assumptions=each.assumptions)
            for each in self.noise.claims()
        )

    def run(self, data: Bits) -> Session:
        return Session(self, np.asarray(data, dtype=np.bool_))


class Session:
    """One person's questions to a `Counts`: call it with a subset (true for who is counted), or with `many` of them."""

    def __init__(self, counts: Counts, bits: Bits) -> None:
        self._counts = counts
        self._bits = bits
        self._asked = 0
        self._known: dict[bytes, float] = {}

    def __call__(self, subset: Bits) -> float:
        return float(self.many(np.asarray(subset, dtype=np.bool_)[None, :])[0])

    def many(self, subsets: Bits) -> NDArray[np.float64]:
        """One answer per row; BudgetExceeded when there is not enough left for all of them."""
        if subsets.ndim != 2 or subsets.shape[1] != len(self._bits):
            raise InvalidValue(f"A subset says true or false for each of {len(self._bits)} people; got {subsets.shape[1:]}.")
        if not self._counts.remember:
            return self._fresh(subsets)
        keys = [np.packbits(row).tobytes() for row in subsets]
        new = list({key: place for place, key in enumerate(keys) if key not in self._known}.values())
        if new:
            self._known.update(zip([keys[place] for place in new], self._fresh(subsets[new]).tolist()))
        return np.array([self._known[key] for key in keys])

    def _fresh(self, subsets: Bits) -> NDArray[np.float64]:
        most = self._counts.most
        if most is not None:
            left = most - self._asked
            if len(subsets) > left:
                reason = f"{len(subsets)} more answers were asked; {left} of {most} are left. Ask less."
                raise BudgetExceeded(reason, asked=len(subsets), left=left)
        self._asked += len(subsets)
        totals = subsets.astype(np.float32) @ self._bits.astype(np.float32)  # exact: counts stay below 2^24
        return _noised(self._counts.noise, totals.astype(np.int64)).astype(np.float64)


def _noised(noise: Any, totals: NDArray[np.int64]) -> NDArray[Any]:
    """Fresh noise for each count by itself."""
    if noise is None:
        return totals
    if isinstance(noise, GaussianNoise):
        return np.asarray(replace(noise, size=len(totals)).run(totals))
    if isinstance(noise, LaplaceNoise):
        return np.asarray(noise.run(totals))
    return np.array([noise.run(int(total)) for total in totals])


@dataclass(frozen=True, slots=True)
class Bounded:
    """Noise without a proof: a whole number from -most to most, all equally likely, from a seed. It claims nothing.

    >>> -3 <= Bounded(3, seed=1).run(0) <= 3
    True
    """

    most: int
    seed: int
    unit: Unit = field(default_factory=lambda: record("replace"))
    _random: np.random.Generator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check.whole("most", self.most, least=0)
        object.__setattr__(self, "_random", np.random.default_rng(check.whole("seed", self.seed, least=0)))

    def claims(self) -> tuple[Claim, ...]:
        return (Claim(game=Game(self.unit, {"answers"}), event=NonPrivate()),)

    def run(self, data: int) -> int:
        return int(data) + int(self._random.integers(-self.most, self.most + 1))


@dataclass(frozen=True, slots=True)
class SecretBits:
    """Worlds: every one of `size` people has the bit by a fair coin, and is a target."""

    size: int
    seed: int | None = None

    def __post_init__(self) -> None:
        check.whole("size", self.size)

    def draw(self, run: int) -> tuple[Bits, Sequence[int], Bits]:
        bits = coins(run, self.size, self.seed)
        return bits, range(self.size), bits


def ledger_queries(ask: Ask, claims: Claim | Sequence[Claim], ledger: LedgerLike, source: str) -> Ask:
    """`ask`, with each question charged to a ledger before it is put; a repeated one is answered from the ledger, free.

    `ask` must give fresh noise of which one answer is worth the `claims`. BudgetExceeded comes from the ledger.
    """
    payer = as_ledger(ledger)

    def asked(question: Any) -> float:
        plain = np.flatnonzero(question).tolist() if isinstance(question, np.ndarray) else question
        charge = payer.reserve(source, claims, key=question_key({"question": plain}))
        with charge:
            if not charge.repeated:
                charge.settle(answer=float(ask(question)))
        return float(charge.answer)

    return asked


def replies(ask: Ask, questions: Sequence[Any] | Bits) -> NDArray[np.float64]:
    """The answers to as many questions, in order, as are answered before the first refusal."""
    many = getattr(ask, "many", None)
    if many is not None and isinstance(questions, np.ndarray):
        try:
            return np.asarray(many(questions), dtype=np.float64)
        except BudgetExceeded as refusal:
            return np.asarray(many(questions[: max(0, int(refusal.left))]), dtype=np.float64)
    got: list[float] = []
    try:
        for question in questions:
            got.append(float(ask(question)))
    except BudgetExceeded:
        pass
    return np.array(got)
