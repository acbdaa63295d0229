"""`discreet keys`: sign releases and ledgers, and see who signed them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from discreet.cli import CHECK_FAILED, COMMANDS
from discreet.cli.output import json_option, talk, write_json
from discreet.cli.releases import opened_ledger, place_of
from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from discreet.report.signature import Signed


@click.group("keys", help=COMMANDS["keys"])
def command() -> None: ...


_ledger = click.option(
    "--ledger", "place", metavar="PATH_OR_URL", help="Sign the last entry of this ledger, instead of releases."
)


@command.command("make")
@click.argument("file")
@json_option
def make(file: str, as_json: bool) -> None:
    """Write a new private key to FILE, which only you can read; the public key goes to stdout."""
    from discreet.report.keys import make_key

    _tell(make_key(file), as_json)
    talk(f"The private key is in {file}: whoever has it signs as you. Give the public key to those who verify.")


@command.command("show")
@click.argument("file")
@json_option
def show(file: str, as_json: bool) -> None:
    """The public key of the private key in FILE, as policies have it."""
    from discreet.report.keys import named_key

    _tell(named_key(file), as_json)


@command.command("sign")
@click.argument("releases", nargs=-1)
@click.option("--key", required=True, metavar="FILE", help="The private key.")
@click.option("--with", "files", multiple=True, metavar="FILE", help="A file that goes with the release; may be given again.")
@_ledger
@click.option("-o", "--output", metavar="FILE", help="Where the signature of a ledger goes.")
@json_option
def sign(
    releases: tuple[str, ...], key: str, files: tuple[str, ...], place: str | None, output: str | None, as_json: bool
) -> None:
    """Sign RELEASES: files, or folders with release.json, of which all files are covered. Or a ledger's last entry."""
    from discreet.report.signature import sign_head, sign_release

    _one_kind(releases, place)
    if place is not None:
        if output is None:
            raise click.UsageError("-o says where the signature of a ledger goes; keep it where the ledger is not.")
        with opened_ledger(place) as ledger:
            written = [sign_head(ledger, key, output)]
    else:
        if len(releases) > 1 and files:
            raise click.UsageError("--with names files of one release; sign them one by one, or their folders.")
        written = [sign_release(path, key, files) for path in releases]
    if as_json:
        write_json({"signatures": [str(path) for path in written]})
    for path in written:
        talk(f"Signed: {path}")


@command.command("verify")
@click.argument("files", nargs=-1, required=True)
@click.option(
    "--key", "expected", multiple=True, metavar="KEY", help="A public key that counts, or a file with it; may be given again."
)
@_ledger
@json_option
@click.pass_context
def verify(ctx: click.Context, files: tuple[str, ...], expected: tuple[str, ...], place: str | None, as_json: bool) -> None:
    """Check the signatures of FILES: releases or their folders; with --ledger, signatures of its last entry.

    Exits with 1 if one does not hold. Without --key it is said what cannot be known.
    """
    from discreet.report.keys import named_key
    from discreet.report.signature import check_head, check_release

    wanted = [named_key(each) for each in expected]
    if place is None:
        missing = [file for file in files if not os.path.exists(place_of(file))]
        if missing:
            raise InvalidValue(f"There is no release at {missing[0]!r}; name a file such as release.json, or its folder.")
        checked = [(file, check_release(file, wanted)) for file in files]
    else:
        with opened_ledger(place) as ledger:
            checked = [(file, check_head(ledger, file, wanted)) for file in files]
    _report(checked, as_json)
    ctx.exit(CHECK_FAILED if any(signed.fault for _, signed in checked) else 0)


def _report(checked: list[tuple[str, Signed]], as_json: bool) -> None:
    if as_json:
        write_json(
            {"signatures": [
                {"file": file, "holds": signed.fault is None, "key": signed.key, "fault": signed.fault,
                 "cannot_know": list(signed.unknown)}
                for file, signed in checked
            ]}
        )  # fmt: skip
        return
    for file, signed in checked:
        click.echo(f"{file}: {f'not as signed: {signed.fault}.' if signed.fault else f'as {signed.key} signed it'}")
        for text in signed.unknown:
            talk(text)


def _tell(key: str, as_json: bool) -> None:
    if as_json:
        write_json({"public": key})
    else:
        click.echo(key)


def _one_kind(releases: tuple[str, ...], place: str | None) -> None:
    if bool(releases) == (place is not None):
        raise click.UsageError("Name releases, or a ledger with --ledger; one of the two.")
