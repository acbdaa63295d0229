"""Three walks through the package, and the files that each passes, seen by tracing it."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import torch
from torch import nn

import discreet
from discreet.learn.sgd import isolated, path

PACKAGE = Path(discreet.__file__).parent
Walk = Callable[[int], Callable[[], Any]]  # what is there beforehand is made first; what it returns is the walk


def traced(walk: Walk) -> list[str]:
    """The files of the package whose functions the walk calls, in order; it is taken once before, so that all is imported."""
    walk(0)()
    passed: dict[str, None] = {}

    def note(frame: Any, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(f"{PACKAGE}{os.sep}") and frame.f_code.co_name != "<module>":
            passed.setdefault(Path(file).relative_to(PACKAGE).as_posix())

    step = walk(1)
    sys.setprofile(note)
    try:
        with mock.patch.object(isolated, "beside", _nothing), mock.patch.object(path, "beside", _nothing):
            step()
    finally:
        sys.setprofile(None)
    return list(passed)


def _nothing(contexts: bool = True) -> None:
    """Training refuses functions that Python calls beside a model's code; the one above keeps names of files only."""


def _ledger() -> discreet.Ledger:
    ledger = discreet.Ledger(Path(mkdtemp()) / "ledger.db")
    ledger.open("people", unit=discreet.record(), epsilon=3.0, delta=1e-6)
    return ledger


def sql(turn: int) -> Callable[[], Any]:
    table = pa.table({"age": np.linspace(20, 80, 50 + turn)})
    bounds, ledger = {"age": (0, 120)}, _ledger()
    db = discreet.connect({"people": table}, unit=discreet.record(), bounds=bounds, ledger=ledger, source="people")
    return lambda: db.sql("SELECT COUNT(*) AS n, AVG(age) AS age FROM people", epsilon=1.0 + turn / 8)


def training(turn: int) -> Callable[[], Any]:
    model = nn.Linear(3 + turn, 2)
    rows = torch.randn(64, 3 + turn), torch.zeros(64, dtype=torch.long)
    optimizer, loss, ledger = torch.optim.SGD(model.parameters(), 0.1), nn.CrossEntropyLoss(reduction="none"), _ledger()

    def step() -> None:
        run = discreet.learn.train(
            model, optimizer, rows, loss, unit=discreet.record(), epsilon=1.0 + turn / 8, delta=1e-6, rate=0.25, steps=3,
            clip_norm=1.0, ledger=ledger, source="people",
        )  # fmt: skip
        run.fit().release()

    return step


def audit(turn: int) -> Callable[[], Any]:
    rows = np.random.default_rng(turn).normal(size=(80, 4)).astype(np.float32)
    labels = np.arange(80) % 2
    members, others = (rows[:40], labels[:40]), (rows[40:], labels[40:])
    recipe = discreet.models.Recipe(lambda: nn.Linear(4, 2), epochs=1)
    model = discreet.models.Trainer(recipe).one(*members)

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # models of one epoch resemble nothing
            results = discreet.attack.membership(model, recipe, members, others, attacks=["bayes_lira"], shadows=4)
            evidence = results["bayes_lira"]
        claim = discreet.Claim(game=evidence.game, event=discreet.core.Pure(1.0 + turn / 8))
        discreet.verdict(claim, evidence, confidence=0.95)

    return step


WALKS: dict[str, Walk] = {"A SQL question": sql, "A training run": training, "An audit": audit}


if __name__ == "__main__":
    print(json.dumps({name: traced(walk) for name, walk in WALKS.items()}))
