"""`ledger=` takes the same three things everywhere: a Ledger, the name of its file, or its URL."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import discreet
from discreet import Ledger, record
from discreet.errors import InvalidValue
from discreet.ledger import opened
from discreet.query import arrays

PACKAGES = ("query", "query.arrays", "synth", "learn", "learn.estimators", "report", "report.gate", "attack", "ledger")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=50.0, delta=1e-4)
    return tmp_path / "ledger.db"


def _count(ledger: Any) -> Any:
    return arrays.count([1, 2, 3], unit=record(), epsilon=1.0, ledger=ledger, source="people")


def _sql(ledger: Any) -> Any:
    with discreet.connect({"t": pa.table({"a": [1, 2]})}, unit=record(), ledger=ledger, source="people") as db:
        return db.sql("SELECT COUNT(*) AS n FROM t", epsilon=1.0)


def _estimator(ledger: Any) -> Any:
    from sklearn.base import clone

    made = discreet.learn.LogisticRegression(
        epsilon=1.0, delta=1e-6, norm=1.0, unit=record(), classes=[0, 1], ledger=ledger, source="people"
    )
    return clone(made).fit(np.array([[0.1], [0.9]] * 50), [0, 1] * 50).release_


def _synth(ledger: Any) -> Any:
    table = pa.table({"sex": ["f", "m"] * 50})
    return discreet.synth.fit(
        table, unit=record(), epsilon=1.0, delta=1e-6, schema={"sex": ["f", "m"]}, ledger=ledger, source="people"
    )


@pytest.mark.parametrize("spend", [_count, _sql, _estimator, _synth])
def test_a_ledger_a_path_and_a_name_pay_alike(spend: Callable[[Any], Any], place: Path) -> None:
    with Ledger(place) as ledger:
        for given in (ledger, place, str(place)):
            release = spend(given)
            assert release.entry in {entry.id for entry in ledger.history("people")}
        ledger.verify()  # the one that was handed over is still open


@pytest.mark.parametrize("spend", [_count, _sql, _estimator, _synth])
@pytest.mark.parametrize("wrong", ["nowhere.db", 7, True])
def test_what_is_no_ledger_is_refused_and_nothing_is_made(
    spend: Callable[[Any], Any], wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match=r"There is no ledger at nowhere\.db|must be a discreet\.Ledger"):
        spend(wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_report_takes_the_same(place: Path) -> None:
    release = _count(place)
    with Ledger(place) as ledger:
        pages = [
            re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "", discreet.report.html(release, ledger=given))
            for given in (ledger, place, str(place))
        ]
    assert pages[0] == pages[1] == pages[2]


def test_one_that_is_named_is_closed_again(place: Path) -> None:
    with opened(place) as ledger:
        assert ledger is not None
    with pytest.raises(Exception, match=r"closed"):
        ledger.sources()


def test_a_copy_is_the_same_ledger_and_a_pickle_opens_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.parent)
    with Ledger("ledger.db") as ledger:
        assert copy.copy(ledger) is copy.deepcopy(ledger) is ledger
        told = pickle.dumps(ledger)
    monkeypatch.chdir("/")
    with pickle.loads(told) as again:  # noqa: S301
        assert list(again.sources()) == ["people"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_function_says_the_same_of_it(package: str) -> None:
    module = import_module(f"discreet.{package}")
    for name in module.__all__:
        found = getattr(module, name)
        for function in (found, getattr(found, "__init__", None)):
            with_ledger = inspect.signature(function).parameters.get("ledger") if inspect.isroutine(function) else None
            if with_ledger is not None and with_ledger.kind is inspect.Parameter.KEYWORD_ONLY:
                assert "LedgerLike" in str(with_ledger.annotation) or with_ledger.default is inspect.Parameter.empty, (
                    package,
                    name,
                )
