"""`discreet serve`: what it says when it cannot start."""

from __future__ import annotations

import socket
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from discreet.cli import app


def start(folder: Path, *more: str) -> tuple[int, str]:
    done = CliRunner().invoke(
        app, ["serve", "--ledger", str(folder / "ledger.db"), "--releases", str(folder / "r"), "--port", "0", *more]
    )
    return done.exit_code, done.output


def test_help_names_every_option(tmp_path: Path) -> None:
    text = CliRunner().invoke(app, ["serve", "--help"]).output
    for option in ("--ledger", "--releases", "--config", "--users", "--policy", "--host", "--port", "--allow-host", "--https",
                   "--trust-proxy", "--reset", "--ready-file", "--json"):  # fmt: skip
        assert option in text


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, text = start(tmp_path, "--port", str(taken.getsockname()[1]))
    assert code == 2
    assert "is in use" in text
    assert not (tmp_path / "ledger.db").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert start(tmp_path, "--releases", str(tmp_path / "file" / "r"))[0] == 2
    monkeypatch.setattr("discreet.serve.state.os.access", lambda *_: False)
    code, text = start(tmp_path)
    assert code == 2
    assert "may not be written" in text


def test_a_ledger_that_is_none(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "ledger.db") as link:
        link.execute("CREATE TABLE x (y)")
    link.close()
    code, text = start(tmp_path)
    assert code == 2
    assert "not a ledger" in text


def test_a_ledger_in_a_database_needs_a_file_for_people(tmp_path: Path) -> None:
    code, text = start(tmp_path, "--ledger", "postgresql://nobody@127.0.0.1:1/x")
    assert code == 2
    assert "--users" in text


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for option in ("--config", "--policy"):
        code, text = start(tmp_path, option, str(tmp_path / "none.toml"))
        assert code == 2
        assert "none.toml" in text


@pytest.mark.parametrize("package", ["starlette", "argon2"])
def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == package else real(name, *rest))
    code, text = start(tmp_path)
    assert code == 2
    assert "pip install 'discreet-privacy[serve]'" in text


def test_the_file_of_users_of_an_earlier_version_is_used(tmp_path: Path) -> None:
    from discreet.cli.serve import _users_file

    assert _users_file(tmp_path).name == "users.db"
    (tmp_path / "people.db").touch()
    assert _users_file(tmp_path).name == "people.db"
    (tmp_path / "users.db").touch()
    assert _users_file(tmp_path).name == "users.db"
