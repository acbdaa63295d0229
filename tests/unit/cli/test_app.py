"""The program around the commands: help, versions, errors, start-up."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import discreet
from discreet import Ledger
from discreet.cli import COMMANDS, app, output
from discreet.core import Claim, Game, Pure, record

NO_LIGHTWEIGHTS = {"numpy", "scipy", "rich", "jinja2", "cryptography", "torch", "pandas", "typing_extensions"}


def modules(code: str) -> set[str]:
    """Which modules a fresh interpreter has after the code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_loads_next_to_nothing() -> None:
    bare = modules("")
    more = modules("import discreet") - bare
    assert not more & NO_LIGHTWEIGHTS
    assert "typing" not in more
    assert len(more) <= 3, sorted(more)


def test_help_loads_click_and_nothing_heavy() -> None:
    code = (
        "import contextlib, io, discreet.cli\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): discreet.cli.app(['--help'])"
    )
    loaded = modules(code)
    assert not loaded & NO_LIGHTWEIGHTS
    assert {name for name in loaded if name.startswith("discreet")} <= {"discreet", "discreet.cli", "discreet.errors"}
    assert len(loaded - modules("import click")) <= 20


def test_the_list_of_commands_is_what_is_there() -> None:
    context = click.Context(app)
    for name, told in COMMANDS.items():
        command = app.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help is not None
        assert command.help.startswith(told)
    assert app.get_command(context, "../errors") is None


def every_command(group: click.Group, context: click.Context) -> list[click.Command]:
    found = [group.get_command(context, name) for name in group.list_commands(context)]
    return [
        deep
        for command in found
        if command is not None
        for deep in (every_command(command, context) if isinstance(command, click.Group) else [command])
    ]


def test_every_command_takes_json_and_has_help() -> None:
    for command in every_command(app, click.Context(app)):
        assert "--json" in [option for parameter in command.params for option in parameter.opts], command.name
        assert command.help, command.name
        assert all(option.help for option in command.params if isinstance(option, click.Option)), command.name


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.stdout == f"discreet {discreet.__version__}\n"


def test_an_unknown_command_is_wrong_use() -> None:
    result = CliRunner().invoke(app, ["acount"])
    assert result.exit_code == 2
    assert "acount" in result.stderr


def test_debug_shows_where_an_error_came_from() -> None:
    args = ["account", "gaussian", "--noise", "0"]
    quiet, loud = CliRunner().invoke(app, args), CliRunner().invoke(app, ["--debug", *args])
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr
    assert loud.stderr.endswith(quiet.stderr)
    assert quiet.exit_code == loud.exit_code == 2


def test_a_fault_of_ours_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("discreet.cli.account._facts", broken)
    result = CliRunner().invoke(app, ["account", "gaussian", "--noise", "1"])
    assert result.exit_code == 70
    assert "a fault in discreet (KeyError: 'oops')" in result.stderr


def test_tables_are_plain_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    output.table([("a", "long text"), ("bb", "x")], heads=("h", "i"))
    assert capsys.readouterr().out == "h   i\na   long text\nbb  x\n"


def test_tables_are_drawn_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    output.table([("a", "[bold]not markup[/bold]")])
    assert "[bold]not markup[/bold]" in capsys.readouterr().out


def test_names_are_whole_on_eighty_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids and sources were cut in the middle of a word, so that they could not be copied."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("made-up-hospital", unit=record(), epsilon=4.2, delta=1e-6)
        claim = Claim(game=Game(record(), {"answers"}), event=Pure(0.5))
        for _ in range(6):
            with ledger.reserve("made-up-hospital", claim):
                pass
        ids = [entry.id for entry in ledger.history()]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for source in ([], ["made-up-hospital"]):
        with pytest.raises(SystemExit):
            app(["ledger", "history", *source, "--ledger", str(tmp_path / "ledger.db")])
        drawn = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
        assert all(each in drawn for each in ids)
        assert drawn.count("made-up-hospital") == (0 if source else len(ids))
        assert max(map(len, drawn.splitlines())) <= 80
