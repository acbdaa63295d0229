"""`discreet attack extraction` and `exposure`: what a causal language model in a folder says verbatim."""

from __future__ import annotations

from typing import Any

import click

from discreet.cli.output import command_line, json_option, table, talk, write_json
from discreet.core.document import parse_plain
from discreet.errors import InvalidDocument, InvalidValue

model_option = click.option(
    "--model", required=True, metavar="DIR", help="A causal language model and its tokenizer, as save_pretrained writes them."
)
out_option = click.option(
    "-o", "--output", "out", type=click.Path(dir_okay=False), metavar="FILE", help="Write a release.json with the evidence."
)


@click.command("extraction")
@model_option
@click.option("--corpus", required=True, metavar="FILE", help="Texts that it was trained on: JSON lines with a text each.")
@click.option("--control", required=True, metavar="FILE", help="Texts like them that it was not trained on.")
@click.option("--field", default="text", show_default=True, metavar="NAME", help="The member of each line that is the text.")
@click.option("--prompt", type=int, default=32, show_default=True, metavar="N", help="Tokens that the attacker knows.")
@click.option("--suffix", type=int, default=32, show_default=True, metavar="N", help="Tokens that should not come out.")
@click.option("--p", type=float, default=0.5, show_default=True, metavar="P", help="A text counts from this probability up.")
@click.option("--temperature", type=float, default=1.0, show_default=True, metavar="T", help="How the model is sampled.")
@click.option("--top-k", type=int, default=0, show_default=True, metavar="K", help="Sample the K likeliest tokens; 0: all.")
@click.option("--texts", type=int, default=0, show_default=True, metavar="N", help="Keep N texts that come out; private.")
@click.option("--near/--exact", default=True, show_default=True, help="Also count continuations with one token changed.")
@out_option
@json_option
def extraction_command(
    model: str, corpus: str, control: str, field: str, prompt: int, suffix: int, p: float, temperature: float, top_k: int,
    texts: int, near: bool, out: str | None, as_json: bool,
) -> None:  # fmt: skip
    """How many texts of the corpus come out of a model within so many samples, beside texts it never saw.

    Nothing is sampled: the probability of each continuation is read off the model.
    """
    from discreet.attack.extraction import Sampling, extraction, from_folder

    if texts < 0 or (texts and not out):
        raise InvalidValue("--texts keeps texts in a release: give a number from 1 on, and -o.")
    read = [read_texts(path, field) for path in (corpus, control)]
    asked, encode = from_folder(model)
    found = extraction(
        asked, *read, prompt=prompt, suffix=suffix, p=p, sampling=Sampling(temperature, top_k), encode=encode, near=near
    )
    kept = found.extracted(max(found.risks))[:texts]
    _tell({"extraction": found.to_json()}, out, model, [found.evidence], as_json, {"verbatim": kept} if kept else {})


@click.command("exposure")
@model_option
@click.option("--template", required=True, metavar="TEXT", help="The text of the canaries, with {} for the secret.")
@click.option("--canaries", required=True, metavar="FILE", help="JSON lines: secret, repetitions (0: not put in).")
@click.option("--alphabet", default="0123456789", show_default=True, metavar="LETTERS", help="What secrets are made of.")
@click.option("--samples", type=int, default=2000, show_default=True, metavar="N", help="Random secrets to extrapolate from.")
@click.option("--coins", is_flag=True, help="A fair coin put each canary in or not: evidence that can refute a claim.")
@out_option
@json_option
def exposure_command(
    model: str, template: str, canaries: str, alphabet: str, samples: int, coins: bool, out: str | None, as_json: bool
) -> None:
    """How well a model knows canaries: random secrets of a template that were put into its training data."""
    from discreet.attack.exposure import Template, canary_evidence, exposure
    from discreet.attack.extraction import from_folder

    listed = read_lines(canaries)
    if not all(isinstance(each.get("secret"), str) and type(each.get("repetitions")) is int for each in listed):
        raise InvalidValue(f'Each line of {canaries!r} must be {{"secret": "…", "repetitions": 0}}.')
    secrets, times = [each["secret"] for each in listed], [each["repetitions"] for each in listed]
    asked, encode = from_folder(model)
    found = exposure(asked, Template(template, len(secrets[0]), alphabet), secrets, encode=encode, samples=samples)
    rows = [_of(many, [each for each, put in zip(found, times) if put == many]) for many in sorted(set(times))]
    put_in = sorted(set(times) - {0})
    if coins and len(put_in) != 1:
        raise InvalidValue("--coins needs canaries that were put in equally often, and others with 0 repetitions.")
    evidence = [canary_evidence(found, [many > 0 for many in times], repetitions=put_in[0])] if coins else []
    _tell({"exposure": rows}, out, model, evidence, as_json)


def _of(repetitions: int, found: list[Any]) -> dict[str, Any]:
    return {
        "repetitions": repetitions, "canaries": len(found), "bits": sum(each.bits for each in found) / len(found),
        "most_bits": max(each.bits for each in found), "exact": sum(each.method == "exact" for each in found),
        "first": sum(each.rank == 1 for each in found),
    }  # fmt: skip


def read_texts(path: str, field: str) -> list[str]:
    """The texts of a file of JSON lines."""
    found = [each.get(field) for each in read_lines(path)]
    if not all(isinstance(text, str) and text for text in found):
        raise InvalidValue(f"Each line of {path!r} must have a text under {field!r}; name another member with --field.")
    return list(dict.fromkeys(map(str, found)))


def read_lines(path: str) -> list[dict[str, Any]]:
    from discreet.models.rows import existing

    try:
        lines = existing(path, "a file of JSON lines").read_text("utf-8").splitlines()
        found = [parse_plain(line, path) for line in lines if line.strip()]
    except (InvalidDocument, UnicodeDecodeError):
        raise InvalidValue(f"{path!r} is no file of JSON lines: one object on each line, in UTF-8.") from None
    if not found or not all(isinstance(each, dict) for each in found):
        raise InvalidValue(f"{path!r} must hold an object on each line, and at least one.")
    return found


def _tell(facts: dict[str, Any], out: str | None, model: str, evidence: list[Any], as_json: bool, private: Any = None) -> None:
    if as_json:
        write_json(facts)
    else:
        (rows,) = facts.values()
        cells = [[f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
        table(cells, heads=[name.replace("_", " ") for name in rows[0]])
    if out:
        from pathlib import Path

        from discreet.core import Release
        from discreet.core.facts import made

        name = Path(model).resolve().name
        told = {"title": f"{name}, asked for what it read", "made": made(command_line()), **facts, **(private or {})}
        Release(value={"model": name}, source=name, claims=(), evidence=tuple(evidence), facts=told).save(out)
        talk(f"written: {out}")
