"""Models for ciphertexts: linear, logistic, softmax, and small networks; `conversion` makes them of fitted ones."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core.document import members, read_plain, write_whole
from discreet.crypto.engine import numbers
from discreet.crypto.links import is_link
from discreet.crypto.names import column_names
from discreet.crypto.polynomial import Polynomial, fit
from discreet.errors import InvalidDocument, InvalidValue

__all__ = ["Layer", "Model"]

FORMAT, VERSION = "discreet-encrypted-model", 1
DEEPEST = 3  # layers of weights


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Outputs `weights @ inputs + bias`, through an activation where there is one."""

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    activation: Polynomial | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Layers, and the link that the key holder applies after decryption, one of `discreet.crypto.links`.

    With `link` "probability" the last activation is the polynomial sigmoid, evaluated on ciphertexts. `names` are those of the
    columns, in their order, where they are known.
    """

    layers: tuple[Layer, ...]
    link: str
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.layers) <= DEEPEST:
            raise InvalidValue(f"A model on ciphertexts has 1 to {DEEPEST} layers; found {len(self.layers)}.")
        for layer in self.layers:
            if layer.weights.ndim != 2 or layer.bias.shape != layer.weights.shape[:1]:
                raise InvalidValue("A layer has weights of shape (outputs, inputs) and one bias for each output.")
            if not (np.isfinite(layer.weights).all() and np.isfinite(layer.bias).all()):
                raise InvalidValue("Weights and biases must be finite; found NaN or infinity. Fit the model again.")
            if not np.abs(layer.weights).max(axis=1).all():
                raise InvalidValue("An output has only weights of 0: it is the same for every row. Leave it out.")
        if any(one.weights.shape[0] != other.weights.shape[1] for one, other in pairwise(self.layers)):
            raise InvalidValue("The outputs of each layer must be the inputs of the next.")
        if any(layer.activation is None for layer in self.layers[:-1]):
            raise InvalidValue("Two linear layers in a row are one: multiply their weights.")
        if self.names is not None:
            column_names(self.names, self.features)

    @property
    def features(self) -> int:
        return int(self.layers[0].weights.shape[1])

    @property
    def outputs(self) -> int:
        return int(self.layers[-1].weights.shape[0])

    @property
    def purpose(self) -> str:
        """The keys that it needs."""
        levels = sum(1 + 2 * (layer.activation is not None) for layer in self.layers)
        return "linear" if levels == 1 else "logistic" if levels == 3 else "network"

    @property
    def approximation(self) -> tuple[str, ...]:
        """For each polynomial what it stands for, where, and its largest error there."""
        used = [layer.activation for layer in self.layers if layer.activation is not None]
        return tuple(f"{p.activation} on [-{p.radius:g}, {p.radius:g}], error at most {p.error:.3g}" for p in used)

    def __call__(self, rows: Any) -> NDArray[np.float64]:
        """The same computation on plain rows, with the same polynomials: scores before the link."""
        values = np.atleast_2d(np.asarray(rows, np.float64))
        for layer in self.layers:
            values = values @ layer.weights.T + layer.bias
            values = values if layer.activation is None else layer.activation(values)
        return values

    def to_json(self) -> dict[str, Any]:
        layers = [
            {"weights": layer.weights.tolist(), "bias": layer.bias.tolist(),
             "activation": None if layer.activation is None else
             {"name": layer.activation.activation, "radius": layer.activation.radius}}
            for layer in self.layers
        ]  # fmt: skip
        named = {} if self.names is None else {"names": list(self.names)}
        return {"format": FORMAT, "version": VERSION, "link": self.link, "layers": layers, **named}

    @classmethod
    def from_json(cls, document: Any) -> Model:
        written = document if isinstance(document, dict) else {}
        if written.get("format") != FORMAT or written.get("version") != VERSION:
            raise InvalidDocument(
                f"This is not a model of format {FORMAT!r}, version {VERSION}; write one with "
                "discreet.crypto.convert(fitted).save(...)."
            )
        parts = members("model", document, required=("format", "version", "link", "layers"), optional=("names",))
        if not is_link(parts["link"]) or not isinstance(parts["layers"], list):
            raise InvalidDocument("The model names a link that this discreet does not know, or has no list of layers.")
        try:
            names = None if parts.get("names") is None else column_names(parts["names"])
            return cls(tuple(_layer(item) for item in parts["layers"]), parts["link"], names)
        except InvalidValue as error:
            raise InvalidDocument(f"The model is not valid: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> Path:
        return write_whole(path, json.dumps(self.to_json()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        return cls.from_json(read_plain(path))


def _layer(document: Any) -> Layer:
    parts = members("layer", document, required=("weights", "bias", "activation"))
    activation = None
    if parts["activation"] is not None:
        named = members("activation", parts["activation"], required=("name", "radius"))
        activation = fit(named["name"], named["radius"])
    return Layer(numbers("weights", parts["weights"], (2,)), numbers("bias", parts["bias"], (1,)), activation)
