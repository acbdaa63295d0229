"""Models and recipes from users' files."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from discreet.errors import InvalidValue, MissingExtra
from discreet.models.frames import framed
from discreet.models.predict import Onnx
from discreet.models.recipe import Recipe
from discreet.models.rows import existing, number_classes, read_rows

PICKLES = (".joblib", ".pkl", ".pickle")
Say = Callable[[str], None]


def read_recipe(path: str, say: Say = lambda _: None) -> Recipe:
    """The `recipe` that a Python file defines. The file is run, as by `python FILE`: it may do whatever its user may."""
    file = existing(path, "a Python file that defines recipe = Recipe(…)")
    say(f"Running {file.name}: a recipe is a Python program, and may do whatever you may. Run only files that you trust.")

    from discreet.models import Recipe

    sys.path.insert(0, str(file.parent.resolve()))  # as python does: a recipe may import its neighbours
    try:
        recipe = runpy.run_path(str(file), run_name="recipe").get("recipe")
    except (Exception, SystemExit) as error:
        lines = [
            f" in line {frame.lineno}" for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)
        ]
        raise InvalidValue(f"{path!r} stopped with {type(error).__name__}{''.join(lines[-1:])}: {str(error)[:200]}") from error
    if not isinstance(recipe, Recipe):
        problem = "defines no recipe" if recipe is None else f"defines a recipe that is a {type(recipe).__name__}"
        more = ", or defence(…).recipe" if hasattr(recipe, "recipe") else ""
        raise InvalidValue(f"{path!r} {problem}; it must say recipe = discreet.models.Recipe(…){more}.")
    return recipe


def read_model(path: str, recipe: Recipe | None, *, trust_pickle: bool, device: str) -> Any:
    """The model under attack: weights for what the recipe builds, ONNX, or a scikit-learn model from a trusted pickle."""
    file = existing(path, "a .safetensors file, a state dict, an .onnx file, or a scikit-learn model")
    if file.suffix in PICKLES:
        if not trust_pickle:
            raise InvalidValue(
                f"{path!r} is a pickle, which runs whatever its maker put in as it is read. Say --trust-pickle if you made it."
            )
        return _unpickled(file)
    if file.suffix == ".onnx":
        return Onnx(file)
    if recipe is None or recipe.kind != "torch":
        raise InvalidValue(
            f"{path!r} holds weights; say what they belong to with --recipe, a file whose recipe builds the module."
        )
    model = recipe.build()
    weights = _weights(file)
    try:
        model.load_state_dict(weights)
    except (RuntimeError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InvalidValue(f"The weights of {path!r} do not fit what the recipe builds: {reason}") from None
    return model.to(device).eval()


def _unpickled(file: Path) -> Any:
    try:
        import joblib  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise MissingExtra("joblib", "sklearn", "Reading scikit-learn models") from None
    try:
        return joblib.load(file)
    except Exception as error:
        raise InvalidValue(f"{str(file)!r} cannot be read by joblib: {type(error).__name__}: {str(error)[:200]}") from error


def read_weights(path: str) -> dict[str, Any]:
    """Tensors by name, from a .safetensors file or a state dict."""
    return _weights(existing(path, "a .safetensors file or a state dict"))


def _weights(file: Path) -> dict[str, Any]:
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(file))
        import torch

        weights = torch.load(file, map_location="cpu", weights_only=True)
    except ImportError:
        raise MissingExtra("torch", "torch", "Reading the weights of a model") from None
    except Exception as error:
        raise InvalidValue(
            f"{str(file)!r} holds something other than weights, or is damaged ({type(error).__name__}); save it with "
            "safetensors.torch.save_file(model.state_dict(), …) or torch.save(model.state_dict(), …)."
        ) from None
    if not isinstance(weights, dict):
        raise InvalidValue(f"{str(file)!r} holds a {type(weights).__name__}, not a state dict; save model.state_dict().")
    return weights


def usable(device: str) -> str:
    """A device that is there."""
    if device != "cpu":
        import torch

        if not torch.cuda.is_available():
            raise InvalidValue(f"This machine offers no {device!r} device to torch; use --device cpu.")
    return device


def read_recipe_and_rows(file: str, data: str, target: str, *, say: Say = lambda _: None) -> tuple[Recipe, Any, Any]:
    """A recipe, and the rows that it is trained on: inputs, and labels as the numbers of classes.

    A torch module is given numbers; an estimator or a function may be given columns by name, text among them.
    """
    X, y, *_ = read_rows(data, target, fitted=())
    recipe = read_recipe(file, say)
    if recipe.kind == "torch":
        X, y, *_ = read_rows(data, target)  # which refuses text
    _, by_name, [(X, y)] = framed(None, recipe, (X, y))
    return by_name or recipe, X, number_classes(y)
