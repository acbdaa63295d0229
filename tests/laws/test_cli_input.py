"""Whatever is typed, the program answers with data or with one paragraph, and an exit code that it promised."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.cli import app
from discreet.core import Event, Gaussian, Group, Laplace, Poisson, Pure, RandomizedResponse, Repeat, Sequence
from strategies import json_values

PROMISED = {0, 1, 2, 3}

numbers = st.one_of(
    st.floats(-1e100, 1e100).map(str),
    st.integers().map(str),
    st.sampled_from(["", "nan", "inf", "-inf", "1e999", "1e-320", "0x10", "1_000", "٣", "--json", "-1", "1" * 400]),
    st.text(max_size=5),
)


def answered(args: list[str]) -> None:
    result = CliRunner().invoke(app, args)
    assert result.exit_code in PROMISED, (args, result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    if result.exit_code == 0:
        assert result.stderr == ""
        json.loads(result.stdout)
    else:
        assert result.stdout == ""
        assert 0 < len(result.stderr) < 1000


@given(st.sampled_from(["gaussian", "laplace"]), numbers, numbers, numbers)
def test_numbers(command: str, noise: str, delta: str, times: str) -> None:
    answered(["account", command, "--json", f"--noise={noise}", f"--delta={delta}", f"--times={times}"])


@settings(max_examples=30)
@given(numbers, numbers)
def test_targets(epsilon: str, delta: str) -> None:
    answered(["account", "laplace", "--json", f"--epsilon={epsilon}", f"--delta={delta}"])


def account_for(document: object) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "event.json"
        file.write_text(json.dumps(document))
        answered(["account", "event", "--json", str(file)])


@given(json_values)
def test_documents(document: object) -> None:
    account_for(document)


noise = st.floats(0.5, 100)
leaves = st.one_of(
    st.builds(Gaussian, noise),
    st.builds(Laplace, noise),
    st.builds(Pure, st.floats(0.01, 2)),
    st.builds(RandomizedResponse, st.floats(0.01, 2), st.integers(2, 100)),
)


def around(inner: st.SearchStrategy[Event]) -> st.SearchStrategy[Event]:
    return st.one_of(
        st.builds(Repeat, inner, st.integers(1, 30)),
        st.builds(Sequence, st.lists(inner, min_size=1, max_size=3)),
        st.builds(Poisson, st.floats(0.01, 1), leaves),
        st.builds(Group, leaves, st.integers(1, 3)),
    )


@settings(max_examples=30)
@given(st.recursive(leaves, around, max_leaves=4))
def test_events(event: Event) -> None:
    account_for(event.to_json())
