"""The one way to make a release: state the claims, reserve their cost, run, and wrap the value with what was claimed.

SQL answers, statistics of arrays, synthetic tables and whatever comes next only say what they claim and how they run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from discreet.core import Claim, Release, check
from discreet.core.protocols import Mechanism
from discreet.ledger.charge import Charge
from discreet.ledger.ledger import Ledger
from discreet.ledger.opening import LedgerLike, opened

D = TypeVar("D")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Replay:
    """How a question that was answered before is answered again, free of charge: by its key, from the answer in the ledger.

    `key` must tell apart any two questions whose answers differ in distribution, and any two states of the data.
    """

    key: str
    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]


def release(
    mechanism: Mechanism[D, T], data: D, *, source: str, ledger: LedgerLike | None = None, account: str | None = None,
    asked: tuple[float, float] | None = None, replay: Replay | None = None, facts: Mapping[str, Any] | None = None,
) -> Release[T]:  # fmt: skip
    """Run `mechanism` on `data` once, paid for before the data is touched; without a ledger nothing is charged.

    The claims are fixed before `run` is called, the charge is durable before it, and no error inside `run` gives anything
    back. `asked` is the (epsilon, delta) that the claims were calibrated to.

    >>> from discreet.core import record
    >>> from discreet.noise import LaplaceNoise
    >>> answer = release(LaplaceNoise(scale=1, sensitivity=1, unit=record()), 412, source="people")
    >>> type(answer.value).__name__, len(answer.claims)
    ('int', 1)
    """
    from discreet.noise import refuse_seeded

    refuse_seeded()
    check.word("source", source)
    claims, metadata = tuple(mechanism.claims()), dict(facts or {})
    if ledger is None:
        return Release(value=mechanism.run(data), source=source, claims=claims, facts=metadata)
    key = None if replay is None else replay.key
    with opened(ledger) as payer, _one_at_a_time(payer, source, key):
        charge = open_charge(claims, source=source, ledger=payer, account=account, asked=asked, key=key)
        if charge.repeated and replay is not None:
            return Release(value=replay.from_json(charge.answer), source=source, claims=claims, entry=charge.id, facts=metadata)
        with charge as entry:
            value = mechanism.run(data)
            if replay is not None:
                charge.settle(replay.to_json(value))
    return Release(value=value, source=source, claims=claims, entry=entry, facts=metadata)


_waiting: dict[tuple[str, str, str], tuple[threading.Lock, int]] = {}
_counting = threading.Lock()


@contextmanager
def _one_at_a_time(ledger: Ledger, source: str, key: str | None) -> Iterator[None]:
    """Threads that ask the same question wait for the first of them, and then have its answer; others do not wait.

    Where the first fails, the next is charged for a run of its own: what the first took is not given back.
    """
    if key is None:
        yield
        return
    name = (str(ledger.name), source, key)
    with _counting:
        lock, count = _waiting.get(name, (threading.Lock(), 0))
        _waiting[name] = lock, count + 1
    try:
        with lock:
            yield
    finally:
        with _counting:
            lock, count = _waiting.pop(name)
            if count > 1:
                _waiting[name] = lock, count - 1


def open_charge(
    claims: Sequence[Claim], *, source: str, ledger: Ledger, account: str | None = None,
    asked: tuple[float, float] | None = None, key: str | None = None,
) -> Charge:  # fmt: skip
    """The first half of a release, for what runs longer than one call, such as training: the claims' cost is reserved.

    Mark the charge as started before the first row is read, and settle it when the run has ended.
    """
    from discreet.noise import refuse_seeded

    refuse_seeded()
    return ledger.reserve(source, tuple(claims), account=account, asked=asked, key=key)
