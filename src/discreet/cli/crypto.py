"""`discreet crypto`: keys, encrypted rows, a server that scores them without reading them, and decryption."""

from __future__ import annotations

import os
from pathlib import Path

import click

from discreet.cli import COMMANDS
from discreet.cli.output import json_option, talk, write_json
from discreet.cli.releases import there
from discreet.cli.scored import encoded, numbers, served_model
from discreet.cli.units import FORM, read_unit
from discreet.core.document import keep_keys

PURPOSES = {"linear": "linear", "encrypted-sigmoid": "logistic", "network": "network"}  # what the option calls the keys


@click.group("crypto", help=COMMANDS["crypto"])
def command() -> None: ...


@command.command("keygen")
@click.argument("folder")
@click.option("--model", "model_file", metavar="FILE", help="The model, which says what keys it needs; or give the next two.")
@click.option("--for", "kind", metavar="|".join(PURPOSES),
              help="linear: linear, logistic and softmax models, without activations on ciphertexts. encrypted-sigmoid: "
              "converted with encrypted_sigmoid=True. network: with hidden layers.")  # fmt: skip
@click.option("--features", type=click.IntRange(1), help="How many columns the rows have.")
@json_option
def keygen(folder: str, model_file: str | None, kind: str | None, features: int | None, as_json: bool) -> None:
    """Write secret.key, which only you can read, and public.key, for the server, to FOLDER."""
    from discreet import crypto

    purpose, features = _needed(model_file, kind, features)
    talk(f"The public keys will take {crypto.key_memory(purpose, features=features) / 1e6:.0f} MB of memory.")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    if there := [name for name in ("secret.key", "public.key") if (place / name).exists()]:
        raise click.UsageError(f"{folder} has a {there[0]} already; what it encrypted would be lost. Name another folder.")
    secret, public = crypto.keygen(purpose, features=features)
    secret.save(place / "secret.key")
    public.save(place / "public.key")
    if as_json:
        write_json({"secret": str(place / "secret.key"), "public": str(place / "public.key"), "key": public.id})
    talk(f"Made with {public.cipher.name}; whoever uses these keys needs it too.")
    talk(f"secret.key stays with you; public.key ({os.path.getsize(place / 'public.key') / 1e6:.1f} MB) goes to the server.")


def _needed(model_file: str | None, kind: str | None, features: int | None) -> tuple[str, int]:
    """The purpose of the keys and the columns of the rows, by the model or by both options."""
    if model_file is not None:
        if kind is not None or features is not None:
            raise click.UsageError("--model says what keys it needs; leave out --for and --features.")
        model = served_model(model_file)
        return model.purpose, model.features
    if kind is None or features is None:
        raise click.UsageError("Give --model FILE, or --for and --features, so that the keys fit the model.")
    if kind == "logistic":
        raise click.UsageError(
            "A logistic model needs keys --for linear (its logistic function is applied after decryption), unless it was "
            "converted with encrypted_sigmoid=True: then --for encrypted-sigmoid. --model FILE finds out which."
        )
    if kind not in PURPOSES:
        raise click.UsageError(f"--for is {', '.join(PURPOSES)}; got {kind!r}.")
    return PURPOSES[kind], features


def _writable(output: str) -> None:
    """Refuse a place that cannot be written to before anything is asked, charged or decrypted."""
    keep_keys(output)
    if not Path(output).parent.is_dir() or Path(output).is_dir():
        raise click.UsageError(f"{output} cannot be written: name a file in a folder that is there.")


@command.command("encrypt")
@click.argument("table")
@click.option("--key", required=True, metavar="FILE", help="The secret key.")
@click.option("-o", "--output", required=True, metavar="FILE", help="Where the ciphertexts go.")
@click.option("--bound", default=8.0, show_default=True, help="Larger values are refused; standardise features first.")
@click.option("--model", "model_file", metavar="FILE",
              help="The model: columns are taken by its names. Needed with what discreet fit wrote, which encodes them."
              )  # fmt: skip
@json_option
def encrypt(table: str, key: str, output: str, bound: float, model_file: str | None, as_json: bool) -> None:
    """Encrypt TABLE, a CSV file of numbers with a line of names."""
    from discreet import crypto

    _writable(output)
    secret = crypto.SecretContext.load(key)
    names, rows = numbers(table) if model_file is None else encoded(table, model_file)
    encrypted = crypto.encrypt(secret, rows if len(rows) > 1 else rows[0], bound=bound, names=names)  # one row needs less
    encrypted.save(output)
    if as_json:
        write_json({"ciphertexts": output, "rows": encrypted.rows, "features": encrypted.width, "key": encrypted.key})
    talk(f"{encrypted.rows} rows of {encrypted.width} features, {os.path.getsize(output) / 1e6:.1f} MB: {output}")


@command.command("serve")
@click.argument("model")
@click.option("--host", default="127.0.0.1", show_default=True, help="The interface to listen on.")
@click.option("--port", default=8300, show_default=True, type=click.IntRange(0, 65535), help="The port; 0 takes a free one.")
@json_option
def serve(model: str, host: str, port: int, as_json: bool) -> None:
    """Score ciphertexts with MODEL, written by discreet fit or by discreet.crypto.convert(...).save(...).

    It holds no secret key.
    """
    from discreet.crypto.wire import ScoringServer

    server = ScoringServer(served_model(model), host=host, port=port)
    if as_json:
        write_json({"url": server.url, **server.describe()})
    talk(f"Serving on {server.url}. There is no transport encryption and no login here: keep it behind a proxy that has both.")
    try:
        server.serve()
    except KeyboardInterrupt:
        talk("Stopped.")


@command.command("score")
@click.argument("ciphertexts")
@click.option("--key", required=True, metavar="FILE", help="The public key; the secret one is not needed, and refused.")
@click.option("--server", "url", required=True, metavar="URL", help="Where discreet crypto serve listens.")
@click.option("-o", "--output", required=True, metavar="FILE", help="Where the encrypted scores go.")
@json_option
def score(ciphertexts: str, key: str, url: str, output: str, as_json: bool) -> None:
    """Send CIPHERTEXTS and the public key to a server, and keep its encrypted answer."""
    from discreet import crypto
    from discreet.crypto.wire import ScoringClient

    _writable(output)  # an answer is given once
    client, public = ScoringClient(url), crypto.PublicContext.load(key)
    request = crypto.Encrypted.load(ciphertexts)
    request.same_key(public)
    described = client.describe(request.bound)
    for stated in described["approximation"]:
        talk(f"The server approximates {stated}.")
    talk(f"It states an error of at most {described['error']:.3g} for values of up to {request.bound:g}.")
    client.send_key(public)
    client.score(request).save(output)
    if as_json:
        write_json({"scores": output})
    talk(f"Encrypted scores: {output}")


@command.command("decrypt")
@click.argument("scores")
@click.option("--key", required=True, metavar="FILE", help="The secret key.")
@click.option("--request", "asked", metavar="FILE", help="The ciphertexts that were sent: makes sure that they were answered.")
@json_option
def decrypt(scores: str, key: str, asked: str | None, as_json: bool) -> None:
    """Decrypt SCORES and print them as CSV, one line for each row. For your own eyes: what you hand on is a release."""
    from discreet import crypto

    secret, answer = crypto.SecretContext.load(key), crypto.Encrypted.load(scores)
    if asked is None:
        talk("Without --request, scores of other rows under the same key would not be noticed.")
    values = crypto.decrypt(secret, answer, request=None if asked is None else crypto.Encrypted.load(asked))
    if as_json:
        write_json({"scores": values.tolist()})
        return
    talk("For your own eyes: raw decryptions give the key away. discreet crypto disclose hands scores on.")
    for row in values:
        click.echo(",".join(f"{value:.6f}" for value in row))


@command.command("disclose")
@click.argument("scores")
@click.option("--key", required=True, metavar="FILE", help="The secret key.")
@click.option("--request", "asked", required=True, metavar="FILE", help="The ciphertexts that were sent.")
@click.option("--grid", required=True, type=float, help="Scores are rounded to multiples of this; at least 64 times the error.")
@click.option("--error", required=True, type=float, help="The largest error of a score; discreet crypto score shows it.")
@click.option("--ledger", required=True, envvar="DISCREET_LEDGER", metavar="FILE|URL", help="Where what others get is counted.")
@click.option("--source", required=True, help="The people whom the rows are about, by their name in the ledger.")
@click.option("--unit", "named", required=True, metavar=FORM, help="The protected unit: record, or user:KEY.")
@click.option("--unit-rows", metavar="N|any", help="The most rows of one user that count; needed with user:KEY.")
@click.option("--relation", type=click.Choice(["replace", "zero_out"]), default="replace", show_default=True,
              help="How two worlds differ in it; the source's own.")  # fmt: skip
@click.option("-o", "--output", required=True, metavar="FILE", help="Where the release goes.")
@json_option
def disclose(
    scores: str, key: str, asked: str, grid: float, error: float, ledger: str, source: str, named: str, unit_rows: str | None,
    relation: str, output: str, as_json: bool,
) -> None:  # fmt: skip
    """Decrypt SCORES for another party: a release, rounded, counted in the ledger, and with no claim for the scores."""
    from discreet import Ledger, crypto

    _writable(output)
    unit = read_unit(named, unit_rows, relation)
    secret, answer, request = crypto.SecretContext.load(key), crypto.Encrypted.load(scores), crypto.Encrypted.load(asked)
    book = Ledger(there(ledger))
    release = crypto.disclose(secret, answer, grid=grid, error=error, unit=unit, source=source, ledger=book, request=request)
    release.save(output)
    if as_json:
        write_json({"release": output, "entry": release.entry, "scores": answer.rows * answer.width})
    talk(
        f"{answer.rows * answer.width} scores on a grid of {grid:g}: {output}. Its claim is about what the server saw; there is"
    )
    talk("none for the scores: they say of each row what they say.")
