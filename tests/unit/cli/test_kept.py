"""What a command was given, and ledgers whoever names them, are not written over."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from discreet import Ledger, record
from discreet.cli import COMMANDS, app
from discreet.cli.kept import OUTPUTS
from discreet.core.document import write_whole
from discreet.errors import InvalidValue


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    with Ledger(tmp_path / "L.db") as made:
        made.open("clinic", unit=record("replace"), epsilon=1.0, delta=1e-6)
    return tmp_path / "L.db"


@pytest.mark.parametrize("name", ["L.db", "L.db-wal", "L.db-turn", "other.db"])
def test_a_ledger_is_never_written_over(ledger: Path, name: str) -> None:
    place = ledger.with_name(name)
    if name == "other.db":
        place.symlink_to(ledger)
    elif name != "L.db":
        place.touch()
    before = ledger.read_bytes()
    with pytest.raises(InvalidValue, match="belongs to a ledger"):
        write_whole(place, "gone")
    assert ledger.read_bytes() == before
    assert Ledger(ledger).sources() == ["clinic"]
    write_whole(ledger.with_name("L.json"), "fine")


def test_an_output_is_no_input(ledger: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n1,2\n")
    link = tmp_path / "link.csv"
    link.symlink_to(rows)
    again = tmp_path / "again.db"
    again.symlink_to(ledger)
    for arguments in (
        ["crypto", "encrypt", str(rows), "--key", "none", "-o", str(rows)],
        ["crypto", "encrypt", str(rows), "--key", "none", "-o", str(link)],
        ["crypto", "disclose", "s", "--key", "k", "--request", "r", "--grid", "1", "--error", "1", "--ledger", str(ledger),
         "--source", "clinic", "--unit", "record", "-o", str(again)],
        ["report", str(rows), "-o", str(tmp_path / "fine.md"), "-o", str(rows)],
        ["gate", str(rows), "--summary", str(rows)],
        ["predict", str(tmp_path / "model.json"), str(rows), "-o", str(rows)],
    ):  # fmt: skip
        found = CliRunner().invoke(app, arguments)
        assert (found.exit_code, "never written over" in found.stderr) == (2, True), found.output
    assert rows.read_text() == "a,b\n1,2\n"
    assert Ledger(ledger).sources() == ["clinic"]


def test_every_command_looks() -> None:
    """A new option for an output file has to be among OUTPUTS."""
    context, todo = click.Context(app), []
    todo += [app.get_command(context, name) for name in COMMANDS]
    seen = 0
    while todo:
        command = todo.pop()
        assert command is not None
        todo += getattr(command, "commands", {}).values()
        assert hasattr(command.callback, "keeps_inputs")
        for each in command.params:
            if isinstance(each, click.Option) and ("-o" in each.opts or (each.help or "").startswith("Write")):
                seen += 1
                folder = "FOLDER" in str(each.metavar) or each.is_flag
                assert OUTPUTS.intersection(each.opts) or folder, each.opts
    assert seen > 15
