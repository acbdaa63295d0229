"""The files of deploy/ start the server with options that it has."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click
import pytest

from discreet.cli import app

DEPLOY = Path(__file__).parents[3] / "deploy"


def unit() -> list[str]:
    text = (DEPLOY / "discreet.service").read_text().replace("\\\n", " ")
    found = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert found
    return shlex.split(found[1])


def container() -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    found = re.search(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    assert found
    return list(json.loads(found[1]))


@pytest.mark.parametrize("command", [unit(), container()], ids=["systemd", "docker"])
def test_the_options_are_there(command: list[str]) -> None:
    assert Path(command[0]).name == "discreet"
    assert command[1] == "serve"
    serve = app.get_command(click.Context(app), "serve")
    assert serve is not None
    serve.make_context("serve", command[2:])  # refuses what it does not know


def test_the_container_is_built_from_what_is_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE) for name in line.split()[:-1]]
    assert copied
    assert [name for name in copied if not (DEPLOY.parent / name).exists()] == []
    assert re.search(r"^USER (?!root)", text, re.MULTILINE)
