"""What the documentation is built with: the page of all commands, made from the program itself, and a search for file://."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

MARK = "<!-- every command -->"
FILE = re.compile(r"^<!-- file: (\S+) -->\n```(\w*)", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What mkdocs asks a hook: the text of a page, before it is made into HTML. A block that is a file gets its name."""
    markdown = FILE.sub(r'```\2 title="\1"', markdown)
    return markdown.replace(MARK, commands()) if MARK in markdown else markdown


def on_post_build(config: Any, **_: Any) -> None:
    """The search index once more, as a script: pages that are opened from a disk may fetch nothing (assets/file-search.js)."""
    folder = Path(config["site_dir"]) / "search"
    index = json.loads((folder / "search_index.json").read_text(encoding="utf-8"))
    kept = [{name: each[name] for name in ("location", "title", "text")} for each in index["docs"]]
    (folder / "documents.js").write_text(f"window.__search_documents = {json.dumps(kept)}\n", encoding="utf-8")


def commands() -> str:
    """A heading, a line on how to call it and a table of options for every command."""
    return "\n\n".join(_section(path, command) for path, command in all_commands())


def all_commands() -> Iterator[tuple[str, click.Command]]:
    from discreet.cli import app

    yield from _within("discreet", app, click.Context(app))


def _within(path: str, command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from _within(f"{path} {name}", inner, click.Context(inner, parent=context))


def _section(path: str, command: click.Command) -> str:
    usage = " ".join(command.collect_usage_pieces(click.Context(command)))
    rows = [f"| {_names(each)} | {_told(each)} |" for each in command.params if isinstance(each, click.Option)]
    about = inspect.cleandoc((command.help or "").split("\f")[0])
    table = ["| option | |", "|---|---|", *rows] if rows else []
    return "\n".join([f"## {path}", "", about, "", f"`{path} {usage}`", "", *table])


def _names(option: click.Option) -> str:
    shown = option.make_metavar(click.Context(click.Command("x"))) if not option.is_flag else ""
    names = ", ".join([*option.opts, *option.secondary_opts])
    return f"`{names} {shown}`".replace(" `", "`").replace("|", "\\|")


def _told(option: click.Option) -> str:
    text = (option.help or "").replace("|", "\\|").replace("\n", " ")
    default = option.default
    if option.show_default and isinstance(default, (str, int, float)) and not isinstance(default, bool):
        text += f" Unless told: `{default}`."
    return text + (" Required." if option.required else "")
