"""In a notebook values are shown as cards, and importing discreet there loads nothing heavy.

IPython is not needed: what stands for it has the one method that is called, with the signature that IPython documents for its
formatters, `for_type_by_name(type_module, type_name, func)`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import discreet
from discreet.accounting import Gaussian, curve
from discreet.charts import card
from discreet.errors import InvalidValue

SHELL = """
import sys, types

class Formatter:
    def __init__(self):
        self.known = {}
    def for_type_by_name(self, type_module, type_name, func=None):
        self.known[type_module, type_name] = func

formatter = Formatter()
shell = types.SimpleNamespace(display_formatter=types.SimpleNamespace(formatters={"text/html": formatter}))
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: RUNNING)
import discreet
"""


def ran(running: str, code: str) -> str:
    script = SHELL.replace("RUNNING", running) + code
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_in_a_notebook_cards_are_shown_and_nothing_is_loaded_before() -> None:
    code = """
assert not [name for name in sys.modules if name.startswith(("numpy", "discreet."))]
from discreet.accounting import Gaussian, curve
value = curve(Gaussian(1.0))
show = formatter.known[type(value).__module__, type(value).__name__]
print(len(formatter.known), "<svg" in show(value))
"""
    assert ran("shell", code) == "4 True"


def test_the_classes_are_where_the_notebook_looks_for_them() -> None:
    for module, name in discreet._CARDS:
        home = sys.modules.get(module) or __import__(module, fromlist=[name])
        assert getattr(home, name).__module__ == module


def test_without_a_running_notebook_nothing_is_registered_until_it_is_asked_for() -> None:
    assert (
        ran("None", "print(len(formatter.known)); discreet.load_ipython_extension(shell); print(len(formatter.known))")
        == "0\n4"
    )


def test_what_has_no_card_is_refused() -> None:
    assert "<svg" in card(curve(Gaussian(1.0)))
    with pytest.raises(InvalidValue, match="got a int"):
        card(3)  # type: ignore[arg-type]
