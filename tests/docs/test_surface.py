"""The public surface is exactly __all__, in every room."""

from __future__ import annotations

import importlib
import inspect
from contextlib import suppress

import pytest

import discreet

ROOMS = [
    "discreet.core",
    "discreet.accounting",
    "discreet.noise",
    "discreet.ledger",
    "discreet.audit",
    "discreet.charts",
    "discreet.attack",
    "discreet.heuristic",
    "discreet.models",
    "discreet.query.local",
    "discreet.query.arrays",
    "discreet.query.statistics",
    "discreet.report",
    "discreet.errors",
]


def test_every_public_name_loads() -> None:
    for name in discreet.__all__:
        assert getattr(discreet, name) is not None
    assert sorted(discreet.__all__) == discreet.__all__
    assert set(discreet.__all__) <= set(dir(discreet))


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match="it has Claim, Evidence"):
        discreet.unknown  # noqa: B018


@pytest.mark.parametrize("room", ROOMS)
def test_all_is_the_surface(room: str) -> None:
    module = importlib.import_module(room)
    names = {name: value for name, value in vars(module).items() if not inspect.ismodule(value)}  # some are there once used
    made_here = {name for name, value in names.items() if (getattr(value, "__module__", None) or "").startswith(room)}
    assert {name for name in made_here if not name.startswith("_")} <= set(module.__all__)
    assert set(module.__all__) <= set(vars(module))
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_says_what_it_is_for(room: str) -> None:
    module = importlib.import_module(room)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert (inspect.getdoc(value) or "").strip(), f"{room}.{name} has no docstring"
            assert not (value.__doc__ or "").startswith(f"{name}("), f"{room}.{name} has only its signature for a docstring"


def test_the_promised_names_are_where_they_were_promised() -> None:
    promised = {
        "discreet": ["record", "user", "audit", "verdict"],
        "discreet.accounting": ["Gaussian", "Laplace", "Poisson", "Repeat", "Sequence", "curve", "calibrate"],
        "discreet.noise": ["discrete_laplace", "discrete_gaussian"],
        "discreet.audit": ["audit", "verdict", "epsilon_lower_bound", "check_mechanism", "check_attack"],
    }
    for module, names in promised.items():
        for name in names:
            assert callable(getattr(importlib.import_module(module), name)), f"{module}.{name}"


def test_a_ledger_is_given_in_one_way() -> None:
    """An open ledger, or the name or address of one, wherever a public function takes it; a charge or a count needs it open."""
    only_open = {"discreet.ledger.open_charge", "discreet.crypto.disclose"}
    rooms = ["discreet", "discreet.query", "discreet.query.arrays", "discreet.learn", "discreet.synth", "discreet.federate",
             "discreet.crypto", "discreet.report", "discreet.ledger", "discreet.attack", "discreet.learn.pate"]  # fmt: skip
    found = {}
    for room in rooms:
        module = importlib.import_module(room)
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value):
                with suppress(ValueError, TypeError):
                    taken = inspect.signature(value).parameters.get("ledger")
                    if taken is not None:
                        found[f"{room}.{name}"] = str(taken.annotation)
    assert len(found) > 40
    assert {name for name, kind in found.items() if "LedgerLike" not in kind} == only_open
