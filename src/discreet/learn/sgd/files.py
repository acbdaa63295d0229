"""A released model on disk: model.safetensors with release.json beside it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from torch import nn

from discreet.core import Release
from discreet.errors import InvalidValue, MissingExtra
from discreet.learn.sgd.engine.compiled import as_written, plain_name

MODEL, DOCUMENT = "model.safetensors", "release.json"


def write(release: Release[nn.Module], folder: Path, state: dict[str, Any]) -> Release[nn.Module]:
    """Write both, weights from `state`; the document comes last, so that it never describes weights not yet written.

    What comes back is the release as it was written: it knows the hash of the weights.
    """
    try:
        from safetensors.torch import save_model
    except ImportError:
        raise MissingExtra("safetensors", "torch", "Writing a model") from None
    if folder.is_file():
        raise InvalidValue(f"{folder} is a file; a released model is a folder. Choose another path.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / DOCUMENT).unlink(missing_ok=True)
    except OSError as error:
        raise InvalidValue(
            f"{folder} cannot be written: {error.strerror}. Choose another path; the run can be released again."
        ) from None
    scratch = folder / f".{MODEL}.{os.getpid()}"
    try:
        state = {plain_name(name): weight for name, weight in state.items()}
        save_model(cast(Any, SimpleNamespace(state_dict=lambda: state)), str(scratch))
        _as_others(scratch)
        os.replace(scratch, folder / MODEL)
    finally:
        scratch.unlink(missing_ok=True)
    written = replace(release, facts={**release.facts, "hashes": {MODEL: _hash(folder / MODEL)}})
    written.save(folder / DOCUMENT)
    return written


def _as_others(file: Path) -> None:
    """Give a file the permissions of any new file here: safetensors makes it its owner's alone, but released weights may be
    read by whoever may read the claim beside them.
    """
    like = file.with_name(f"{file.name}.mode")
    try:
        like.touch(exist_ok=False)
        file.chmod(like.stat().st_mode & 0o777)
    finally:
        like.unlink(missing_ok=True)


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"


def read(folder: str | os.PathLike[str], model: nn.Module) -> Release[Any]:
    """The release in a folder, with its weights put into `model`."""
    from safetensors.torch import load_model

    place = Path(folder)
    release = Release.load(place / DOCUMENT)
    if not (place / MODEL).is_file():
        raise InvalidValue(f"{place} has no {MODEL}: the release was not written to its end, or the model was moved.")
    try:
        load_model(as_written(model), str(place / MODEL))
    except Exception as error:
        raise InvalidValue(f"{place / MODEL} does not fit {type(model).__name__}, or is damaged: {error}") from None
    return release.map(lambda _: model)
