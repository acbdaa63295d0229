"""`discreet attack inversion`: pictures of classes, recreated from a classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from discreet.cli.output import command_line, json_option, reported, talk, write_json
from discreet.errors import InvalidValue
from discreet.figures import place_name


@click.command("inversion")
@click.argument("weights", type=click.Path())
@click.option("--recipe", "recipe_file", metavar="FILE.py", help="Defines recipe = Recipe(…). This file is run.")
@click.option(
    "--shape", required=True, metavar="H,W,C", help="Height, width and channels of a picture, with values within 0 and 1."
)
@click.option("--classes", required=True, metavar="0,1,…", help="The classes to recreate, by number.")
@click.option(
    "--public", metavar="FILE.npz", help="Public pictures of the same kind, as `pictures`. Without, the prior is grey."
)
@click.option("--decoder", is_flag=True, help="Train a network that draws public pictures, and search what it draws.")
@click.option(
    "--access", type=click.Choice(["gradients", "scores", "labels"]), default="scores", show_default=True,
    help="What the attacker is given of the model.",
)  # fmt: skip
@click.option("--steps", type=int, default=200, show_default=True, metavar="N", help="Steps of the search.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of the random draws.")
@click.option("--trust-pickle", is_flag=True, help="Read WEIGHTS by joblib, which runs what its maker put in.")
@click.option("-o", "--output", "out", required=True, metavar="FOLDER", help="Where the pictures go.")
@json_option
def inversion_command(
    weights: str, recipe_file: str | None, shape: str, classes: str, public: str | None, decoder: bool, access: str, steps: int,
    seed: int, trust_pickle: bool, out: str, as_json: bool,
) -> None:  # fmt: skip
    """What pictures of its classes can be recreated from the classifier in WEIGHTS?

    WEIGHTS is an address that answers queries; a .safetensors file or a state dict, for the module that the recipe builds; an
    .onnx file; or, with --trust-pickle, a scikit-learn classifier of flat pictures. Pictures go to pictures.npz and
    pictures.png, in the order of --classes, with a release.json that `discreet report` makes a page of. Whether they show a
    person is for a recogniser to say that the model's makers never saw.
    """
    import numpy as np

    from discreet.attack.inversion import ClassInversion, DecoderPrior, PicturePrior
    from discreet.attack.pictures import png, sheet
    from discreet.models import Http
    from discreet.models.files import read_model, read_recipe
    from discreet.models.predict import is_module
    from discreet.models.rows import read_arrays

    size, wanted = _numbers("--shape", shape), _numbers("--classes", classes)
    if public is None:
        if decoder:
            raise InvalidValue("--decoder learns from public pictures: give --public FILE.npz.")
        prior: Any = PicturePrior.plain(size)
    else:
        kind: Any = DecoderPrior if decoder else PicturePrior
        prior = kind.learned(read_arrays(public, ("pictures",))["pictures"])
    if list(prior.shape) != size:
        raise InvalidValue(f"Public pictures have the shape {prior.shape}; --shape says {tuple(size)}.")
    recipe = None if recipe_file is None else read_recipe(recipe_file, talk)
    distant = weights.startswith(("http://", "https://"))
    model: Any = Http(weights) if distant else read_model(weights, recipe, trust_pickle=trust_pickle, device="cpu")
    attack = ClassInversion(prior, steps=steps, seed=seed)
    with reported(steps, "recreating pictures") as progress:
        if access == "gradients":
            if not is_module(model):
                raise InvalidValue("--access gradients needs a torch module, so that gradients can be asked for.")
            found = attack.from_gradients(model, wanted, progress=progress)
        elif access == "scores":
            found = attack.from_scores(_confidences(model), wanted, progress=progress)
        else:
            found = attack.from_labels(_labels(model), wanted, progress=progress)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "pictures.npz", pictures=found.pictures, classes=found.classes)
    known = "none" if public is None else "decoder of public pictures" if decoder else "public pictures"
    _save(found, folder, place_name(weights), known)
    if size[2] in (1, 3):
        (folder / "pictures.png").write_bytes(png(sheet([found.pictures[:20]])))
    if as_json:
        write_json(
            {"method": found.method, "classes": found.classes.tolist(), "queries": found.queries, "public": public is not None}
        )
    else:
        talk(f"{len(found.pictures)} pictures by a {found.method} attack, {found.queries // len(wanted):,} answers a class.")
    talk("There are no neighbouring data sets in this attack: no ε is set against it.")
    talk(f"{out} holds what was recreated. It is private: treat it like pictures of these people.")


def _save(found: Any, folder: Path, name: str, prior: str) -> None:
    """A release with the pictures, for a report to the owner."""
    from discreet.attack.pictures import thumbnail
    from discreet.core import Release
    from discreet.core.facts import made

    picture = thumbnail([found.pictures])
    facts = {"method": found.method, "prior": prior, "classes": len(found.classes), "queries": found.queries,
             **({} if picture is None else {"picture": picture})}  # fmt: skip
    told = {"title": f"{name}, run backwards", "made": made(command_line()), "recreated": [facts]}
    Release(value={"model": name}, source=name, claims=(), facts=told).save(folder / "release.json")


def _confidences(model: Any) -> Any:
    """Probabilities of a model for pictures within 0 and 1, as its first layer takes them."""
    import numpy as np

    from discreet.models.predict import logits

    laid = _laid(model)

    def told(pictures: Any) -> Any:
        given = np.asarray(logits(model, laid(pictures)), np.float64)
        shifted = np.exp(given - given.max(axis=1, keepdims=True))
        return shifted / shifted.sum(axis=1, keepdims=True)

    return told


def _labels(model: Any) -> Any:
    """A label for each picture, of an interface that gives nothing else too."""
    import numpy as np

    from discreet.models import Http

    told, laid = _confidences(model), _laid(model)

    def named(pictures: Any) -> Any:
        found = np.asarray(model.answers(laid(pictures))) if isinstance(model, Http) else told(pictures)
        return found if found.ndim == 1 else found.argmax(axis=1)

    return named


def _laid(model: Any) -> Any:
    """Pictures as the first layer of the model takes them."""
    import numpy as np

    from discreet.models.predict import is_module

    flat = not is_module(model) or not _convolves(model)
    return lambda pictures: np.ascontiguousarray(
        pictures.reshape(len(pictures), -1) if flat else pictures.transpose(0, 3, 1, 2), np.float32
    )


def _convolves(model: Any) -> bool:
    from torch import nn

    first = next((each for each in model.modules() if isinstance(each, (nn.Linear, nn.Conv2d))), None)
    return isinstance(first, nn.Conv2d)


def _numbers(option: str, text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidValue(f"{option} must be whole numbers divided by commas; got {text!r}.") from None
    if option == "--shape" and len(found) != 3:
        raise InvalidValue(f"--shape must be height, width and channels, such as 28,23,1; got {text!r}.")
    return found
