"""`discreet serve`: the web app for a team."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discreet.cli import COMMANDS
from discreet.cli.output import json_option, talk, write_json
from discreet.errors import InvalidValue, MissingExtra

if TYPE_CHECKING:
    from discreet.serve.settings import Settings

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command("serve", help=COMMANDS["serve"])
@click.option("--ledger", required=True, metavar="FILE|URL", envvar="DISCREET_LEDGER", help="The ledger; a new file is made.")
@click.option("--releases", default="releases", show_default=True, metavar="FOLDER", help="Where releases are, and answers go.")
@click.option("--config", metavar="FILE", help="A serve.toml: which data each source is, and what may be attacked.")
@click.option("--users", metavar="FILE", help="The file of users and their roles.  [default: users.db beside the ledger]")
@click.option("--policy", metavar="FILE", help="A privacy.toml, for the page that says which releases pass.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, metavar="N", help="0 takes a free one.")
@click.option(
    "--allow-host", multiple=True, metavar="NAME", help="A name that browsers may use for this server, as a proxy sends it."
)
@click.option("--https", is_flag=True, help="Browsers reach it by TLS, through a proxy: cookies are sent by TLS alone.")
@click.option("--trust-proxy", multiple=True, metavar="ADDRESS", help="A proxy trusted to name the caller.")
@click.option("--reset", metavar="NAME", help="Print a one-time link with which NAME chooses a new password.")
@click.option("--ready-file", metavar="FILE", help="Write address and process id there once it listens, as JSON.")
@json_option
def command(
    ledger: str, releases: str, config: str | None, users: str | None, policy: str | None, host: str, port: int,
    allow_host: tuple[str, ...], https: bool, trust_proxy: tuple[str, ...], reset: str | None, ready_file: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    _installed()
    from discreet.cli.attack_tasks import ATTACKS
    from discreet.serve.server import address, bind, run, write_ready
    from discreet.serve.state import AppState

    settings = _settings(ledger, releases, config, users, policy, host, allow_host, https)
    listener = bind(host, port)  # before anything is written
    try:
        state = AppState(settings, ATTACKS)
    except BaseException:
        listener.close()
        raise
    url = address(host, listener)
    facts: dict[str, Any] = {"url": url, "pid": os.getpid(), "port": listener.getsockname()[1]}
    if not state.users.has_owner():
        facts["owner_link"] = f"{url}/welcome/{state.users.first_link()}"
    if reset is not None:
        facts["reset_link"] = f"{url}/welcome/{state.users.link_for(reset)}"
        state.users.note("server", "reset", reset)

    def listening() -> None:
        _tell(facts, host, https, reset, as_json)
        if ready_file is not None:
            write_ready(ready_file, facts)

    run(state, listener, proxies=trust_proxy, listening=listening)
    talk("Stopped. The ledger has everything that was spent.")


def _installed() -> None:
    from importlib.util import find_spec

    for module, package in (
        ("starlette", "starlette"),
        ("uvicorn", "uvicorn"),
        ("argon2", "argon2-cffi"),
        ("duckdb", "duckdb"),
    ):
        if find_spec(module) is None:
            raise MissingExtra(package, "serve", "The web app")


def _settings(
    ledger: str,
    releases: str,
    config: str | None,
    users: str | None,
    policy: str | None,
    host: str,
    more: tuple[str, ...],
    https: bool,
) -> Settings:
    from discreet.serve.settings import Settings, read_config

    sources, targets = read_config(config) if config is not None else ({}, {})
    if users is None:
        if "://" in ledger:
            raise InvalidValue("This ledger is in a database, so users need a file of their own: give --users FILE.")
        users = str(_users_file(Path(ledger).absolute().parent))
    if policy is not None and not Path(policy).is_file():
        raise InvalidValue(f"There is no policy {policy!r}; give a privacy.toml, or leave --policy out.")
    shown = f"[{host}]" if ":" in host else host.lower()
    hosts = frozenset({*(["127.0.0.1", "localhost", "[::1]"]), shown, *(name.lower() for name in more)})
    return Settings(
        ledger, Path(releases), Path(users), sources, targets, None if policy is None else Path(policy), hosts, https
    )


def _users_file(folder: Path) -> Path:
    """users.db; or people.db, its name in earlier versions, where that is there."""
    earlier = folder / "people.db"
    return earlier if earlier.exists() and not (folder / "users.db").exists() else folder / "users.db"


def _tell(facts: dict[str, Any], host: str, https: bool, reset: str | None, as_json: bool) -> None:
    if as_json:
        write_json(facts)
    talk(f"discreet serves at {facts['url']}   (Ctrl-C stops it)")
    if "owner_link" in facts:
        talk(f"Nobody owns this server yet. Follow this link once, within a day, to become its owner:\n  {facts['owner_link']}")
    if "reset_link" in facts:
        talk(f"With this link, once and within a day, {reset} chooses a new password:\n  {facts['reset_link']}")
    if host not in LOOPBACK and not https:
        talk(
            "Warning: others can reach this address, and nothing is encrypted. Put a proxy with TLS before it, and say --https."
        )
