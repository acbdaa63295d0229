"""`discreet recommend`: a private recommender of a table of ratings, and what it would recommend to one list of ratings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from discreet.cli import COMMANDS
from discreet.cli.fit import writable
from discreet.cli.output import json_option, talk, write_json
from discreet.cli.releases import budget


@click.command("recommend", help=COMMANDS["recommend"])
@click.argument("location")
@click.option("--items", "items_file", metavar="FILE", required=True, help="The public list of items, one in each line.")
@click.option("--bounds", nargs=2, type=float, required=True, help="The least and the largest rating.")
@click.option("--user", "key", metavar="COLUMN", help="The unit is a user: all ratings that share a value in this column.")
@click.option(
    "--method", type=click.Choice(["effects", "knn", "svd", "als"]), default="effects", show_default=True,
    help="Levels of items; also their covariance (knn, svd); or factors by alternating least squares (als, with --user).",
)  # fmt: skip
@click.option("--epsilon", type=float, required=True, help="What the recommender may give away at most.")
@click.option("--delta", type=float, required=True, help="The probability with which epsilon may be exceeded.")
@click.option("--mine", metavar="FILE", help='A JSON object of one user\'s ratings, such as {"film 3": 5}: recommend to them.')
@click.option("--top", type=int, default=10, show_default=True, help="How many items --mine gets.")
@click.option("--ledger", metavar="FILE|URL", envvar="DISCREET_LEDGER", help="The ledger that keeps the budget of --source.")
@click.option("--source", help="The name of the source in the ledger.")
@click.option("-o", "--output", metavar="FILE", required=True, help="Write the release there: item effects and claim, as JSON.")
@json_option
def command(
    location: str, items_file: str, bounds: tuple[float, float], key: str | None, method: str, epsilon: float, delta: float,
    mine: str | None, top: int, ledger: str | None, source: str | None, output: str, as_json: bool,
) -> None:  # fmt: skip
    from discreet.core import record, user
    from discreet.learn import Recommender
    from discreet.models.tables import read_private

    paying: dict[str, Any] = dict(budget(ledger, source))
    items = [line.strip() for line in _read(items_file).splitlines() if line.strip()]
    own = {} if mine is None else _ratings(mine)
    place = writable(Path(output))
    unit = record() if key is None else user(key, rows=None)
    table = dict(read_private(location, [key or "user", "item", "rating"]))
    table["item"] = table["item"].astype(str)
    model = Recommender(
        epsilon=epsilon, delta=delta, items=items, bounds=bounds, unit=unit, method=method, **paying
    ).fit(table)  # fmt: skip
    model.release_.save(place)
    chosen = [] if mine is None else model.recommend(own, top)
    if as_json:
        entry = model.release_.entry
        write_json({"entry": entry, "recommended": chosen, "claims": [it.to_json() for it in model.release_.claims]})
    else:
        for item in chosen:
            click.echo(item)
    talk(f"A recommender of {len(items)} items: {place}")
    paid = model.release_.entry
    talk("Nobody adds up what was asked: give --ledger and --source." if paid is None else f"Charged as entry {paid}.")


def _ratings(path: str) -> dict[str, float]:
    """One user's own ratings by item, as a JSON object."""
    from discreet.core import check
    from discreet.core.document import parse_plain
    from discreet.errors import InvalidDocument

    found = parse_plain(_read(path), path)
    if not isinstance(found, dict):
        raise InvalidDocument(f'{path} must be an object of ratings by item, such as {{"film": 4}}; got {check.shown(found)}.')
    return {item: check.real(f"the rating of {check.shown(item)}", rating) for item, rating in found.items()}


def _read(path: str) -> str:
    from discreet.errors import InvalidValue

    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidValue(f"There is no file {path!r} to read as text.") from None
