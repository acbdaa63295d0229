"""Every object of crypto that holds a secret: nothing that Python does with objects in passing shows or copies it."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import pkgutil
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from discreet import crypto
from discreet.crypto import lwe, shares
from discreet.crypto.plan import Plan
from discreet.crypto.private import Private
from discreet.crypto.training import KeyHolder
from discreet.errors import InvalidValue


def party() -> shares.ShareParty:
    ends = socket.socketpair()
    made = shares.ShareParty(0, {1: ends[0]})
    made.close()
    for end in ends:
        end.close()
    return made


MAKE: dict[str, Callable[[], Any]] = {
    "SecretContext": lambda: crypto.keygen("linear", features=2)[0],
    "KeyHolder": lambda: KeyHolder(crypto.keygen("training", features=2)[0], Plan(2, 10, 2, 1.0, 1.0)),
    "OneTimePad": lambda: crypto.OneTimePad(b"a key of 18 bytes."),
    "SecretKey": lambda: lwe.keygen(lwe.SMALL)[0],
    "Party": crypto.Party,
    "LookupServer": lambda: crypto.LookupServer([b"one"]),
    "Shared": lambda: shares.Shared(shares.encode([0.5])),
    "ShareParty": lambda: party(),
    "Triple": lambda: shares.triples((1, 1), (1, 1), 2)[0],
    "Question": lambda: crypto.Question(b"one"),
}


def test_every_class_that_holds_a_secret_is_tried() -> None:
    for module in pkgutil.iter_modules(crypto.__path__):
        import_module(f"discreet.crypto.{module.name}")
    todo, found = [Private], set()
    while todo:
        for kind in todo.pop().__subclasses__():
            found.add(kind.__name__)
            todo.append(kind)
    assert found == set(MAKE)


SPENT: dict[str, Callable[[], Callable[[], Any]]] = {
    "Party.blinded": lambda: partial(crypto.Party().blinded, [b"ann"]),
    "Party.raised": lambda: partial(crypto.Party().raised, crypto.Party().blinded([b"ann"])),
    "OneTimePad.encrypt": lambda: partial(crypto.OneTimePad.random(3).encrypt, b"ann"),
    "Triple.take": lambda: partial(shares.triples((1, 1), (1, 1), 2)[0].take, np.zeros((1, 1)), np.zeros((1, 1))),
}


@pytest.mark.parametrize("name", SPENT)
def test_what_is_done_once_is_done_by_one_thread(name: str) -> None:
    for _ in range(20):
        step, done, start = SPENT[name](), [], threading.Barrier(6)

        def attempt(step: Callable[[], Any] = step, done: list[Any] = done, start: threading.Barrier = start) -> None:
            start.wait()
            with suppress(InvalidValue):
                done.append(step())

        threads = [threading.Thread(target=attempt) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) == 1


@pytest.mark.parametrize("name", SPENT)
def test_a_forked_process_does_not_do_it_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork copies the object with its secret, whatever pickling and copying do."""
    step, here = SPENT[name](), os.getpid()
    monkeypatch.setattr("discreet.crypto.private.os.getpid", lambda: here + 1)
    with pytest.raises(InvalidValue, match="made in another process"):
        step()
    monkeypatch.undo()
    step()


@pytest.mark.parametrize("name", MAKE)
def test_secrets_stay_in_the_object(name: str, caplog: pytest.LogCaptureFixture) -> None:
    secret = MAKE[name]()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(InvalidValue, match="not pickled"):
            pickle.dumps([secret], protocol)
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(InvalidValue, match="holds a secret"):
            copied(secret)
    with pytest.raises(TypeError):
        json.dumps(secret)
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("x").warning("%s %r", secret, secret)
    shown = f"{secret} {secret!r} {caplog.text}"
    assert len(shown) < 400
    assert name in shown
    if isinstance(secret, crypto.OneTimePad):
        assert "18 bytes" not in shown
    if isinstance(secret, lwe.SecretKey):
        assert str(np.asarray(secret.bits)[:6]) not in shown
