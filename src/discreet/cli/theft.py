"""`discreet attack theft`: was another model made from ours?"""

from __future__ import annotations

from typing import Any

import click

from discreet.cli.output import command_line, json_option, talk, write_json
from discreet.figures import place_name


@click.command("theft")
@click.argument("ours", type=click.Path())
@click.argument("suspect", type=click.Path())
@click.option(
    "--sibling",
    "siblings",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="A model made as OURS was, from the same start with another seed; many of them.",
)
@click.option(
    "--layers", metavar="A,B", help="Weights whose first axis are units in no order.  [default: those that feed the next]"
)
@click.option(
    "--level", type=float, default=0.001, show_default=True, metavar="P", help="How often an independent model may be accused."
)
@click.option("--orders", type=int, default=9_999, show_default=True, metavar="N", help="Random orders to compare with.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of the random orders.")
@click.option("-o", "--output", "out", type=click.Path(dir_okay=False), metavar="FILE", help="Write a release.json.")
@json_option
def theft_command(
    ours: str, suspect: str, siblings: tuple[str, ...], layers: str | None, level: float, orders: int, seed: int,
    out: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Was the model whose weights are in SUSPECT fine-tuned from that in OURS? Exits with 1 where it was.

    Both are .safetensors files or state dicts of one shape. A model that was trained from a start of its own is accused no more
    often than --level says, whatever it was trained on. Where OURS itself was made from a public model, so may SUSPECT have
    been: then give siblings, 19 for a level of 0.05, 99 for 0.01. A thief who reorders units, or who learned a copy from
    answers, is not seen.
    """
    from discreet.attack.stealing import descended
    from discreet.models.files import read_weights

    names = [name.strip() for name in layers.split(",")] if layers else None
    found = descended(
        read_weights(ours), read_weights(suspect), siblings=[read_weights(each) for each in siblings], layers=names,
        level=level, orders=orders, seed=seed,
    )  # fmt: skip
    facts: dict[str, Any] = {
        "suspect": place_name(suspect), "accused": found.accused, "p": found.p, "level": found.level,
        "similarity": dict(found.similarity), "siblings": found.siblings,
    }  # fmt: skip
    if out:
        from discreet.core import Release
        from discreet.core.facts import made

        name = place_name(ours)
        told = {"title": f"{name} beside {place_name(suspect)}", "made": made(command_line()), "descent": facts}
        Release(value={"model": name}, source=name, claims=(), facts=told).save(out)
        talk(f"written: {out}")
    write_json(facts) if as_json else click.echo(str(found))
    raise SystemExit(1 if found.accused else 0)
