"""Whatever a test of this folder makes the program say, it says in options: an argument of Python is no advice here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

PYTHON = re.compile(
    r"\b(?:\w+\.)?(?:user|record|connect|Ledger)\(|\bledger\.\w+\(|\b[a-z_]+=(?:[('\[{]|discreet\.|True\b|False\b|None\b)"
)


@pytest.fixture(autouse=True)
def errors_speak_of_options(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    invoke, spoken = CliRunner.invoke, []

    def heard(self: CliRunner, *given: Any, **named: Any) -> Result:
        result = invoke(self, *given, **named)
        if result.exit_code == 2:
            spoken.append(result.stderr)
        return result

    monkeypatch.setattr(CliRunner, "invoke", heard)
    yield
    assert [text for text in spoken if PYTHON.search(text)] == []
