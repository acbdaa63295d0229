"""What --unit means in every command: `record`, or `user:KEY` with the most rows of one user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from discreet.core import Unit

FORM = "record|user:KEY"


def read_unit(named: str, rows: str | int | None, relation: str = "add_remove") -> Unit:
    """The unit that was named; `rows` may be "any" where nothing is added up."""
    from discreet.core import record, user

    kind, _, key = named.partition(":")
    if named == "record":
        if rows not in (None, 1, "1"):
            raise click.UsageError("A record is one row; --unit-rows goes with --unit user:KEY.")
        return record(relation)
    if kind != "user" or not key:
        hint = "" if ":" in named else f" For the rows of one {named[:40]}, write --unit user:{named[:40]}."
        raise click.UsageError(
            f"--unit must be record or user:KEY (KEY: the column that says whose row it is); got {named!r}.{hint}"
        )
    if rows is None or not (rows == "any" or str(rows).isdecimal()):
        raise click.UsageError("--unit user:KEY needs --unit-rows: the most rows of one user that count.")
    return user(key, rows=None if rows == "any" else int(rows), relation=relation)
