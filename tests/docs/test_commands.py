"""No command and no option without documentation."""

from __future__ import annotations

import re
import sys

import click
import pytest
from snippets import PAGES, ROOT, blocks

sys.path.insert(0, str(ROOT / "docs"))
import commands

COMMANDS = dict(commands.all_commands())
SECTIONS = dict(re.findall(r"^## ([\w ]+)\n(.*?)(?=^## |\Z)", commands.commands(), re.MULTILINE | re.DOTALL))


def test_the_page_has_every_command() -> None:
    assert list(SECTIONS) == list(COMMANDS)
    page = (ROOT / "docs/reference/commands.md").read_text()
    assert commands.MARK in page
    assert commands.commands() in commands.on_page_markdown(page)


def test_a_block_that_is_a_file_has_its_name_above_it() -> None:
    shown = commands.on_page_markdown("Text.\n\n<!-- file: train.toml -->\n```toml\na = 1\n```\n")
    assert shown == 'Text.\n\n```toml title="train.toml"\na = 1\n```\n'
    for page in PAGES:
        assert "<!-- file:" not in commands.on_page_markdown(page.read_text("utf-8").replace("`<!-- file:", ""))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_told(name: str) -> None:
    options = [each for each in COMMANDS[name].params if isinstance(each, click.Option)]
    assert COMMANDS[name].help, f"{name} does not say what it is for"
    for option in options:
        assert option.help, f"{name} {option.opts[-1]} does not say what it is for"
        for spelt in option.opts:
            assert re.search(rf"[`, ]{re.escape(spelt)}[`, ]", SECTIONS[name]), f"{name} {spelt} is not on the page"


def examples() -> str:
    return "\n".join(block.text for page in PAGES for block in blocks(page) if block.language == "console")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example(name: str) -> None:
    assert re.search(rf"(^\$|\||&&) {name}\b", examples(), re.MULTILINE), f"no page shows `$ {name}` in a console block"


def test_one_thing_has_one_name_in_every_command() -> None:
    """A unit is --unit with --unit-rows; what a command writes, where a budget is kept and who pays have one name each."""
    spelt: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for option in command.params:
            if isinstance(option, click.Option):
                spelt.setdefault(re.sub(r"[^a-z ]", "", (option.help or "").lower()), set()).add(option.opts[-1])
    assert {told: names for told, names in spelt.items() if len(names) > 1} == {}
    for name, command in COMMANDS.items():
        options = {spelt for option in command.params if isinstance(option, click.Option) for spelt in option.opts}
        assert ("--unit" in options) == ("--unit-rows" in options), name
        assert ("-o" in options) == ("--output" in options), name


def test_the_guide_to_the_command_line_has_every_command() -> None:
    """query, synth, fit, train and predict were not in it."""
    from discreet.cli import COMMANDS as listed

    page = (ROOT / "docs/guides/command-line.md").read_text()
    sections = dict(re.findall(r"^## discreet (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(listed)
    for name, text in sections.items():
        assert len(text.split()) > 10, f"the section on discreet {name} says nothing"
