"""Models for ciphertexts: linear, logistic, softmax, and small networks, converted from scikit-learn or torch."""

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
from discreet.crypto.packed import LINKS
from discreet.crypto.polynomial import ACTIVATIONS, Polynomial, fit
from discreet.errors import InvalidDocument, InvalidValue

__all__ = ["Layer", "Model", "convert"]

FORMAT, VERSION = "discreet-encrypted-model", 1
DEEPEST = 3  # layers of weights
_SKLEARN_ACTIVATIONS = {"relu": "relu", "logistic": "sigmoid", "tanh": "tanh", "identity": None}


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Outputs `weights @ inputs + bias`, through an activation where there is one."""

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    activation: Polynomial | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Layers, and the link that the key holder applies after decryption: logistic, softmax, or none (identity).

    With `link` "probability" the last activation is the polynomial sigmoid, evaluated on ciphertexts.
    """

    layers: tuple[Layer, ...]
    link: str

    def __post_init__(self) -> None:
        if not 1 <= len(self.layers) <= DEEPEST:
            raise InvalidValue(f"A model on ciphertexts has 1 to {DEEPEST} layers; found {len(self.layers)}.")
        for layer in self.layers:
            if layer.weights.ndim != 2 or layer.bias.shape != layer.weights.shape[:1]:
                raise InvalidValue("A layer has weights of shape (outputs, inputs) and one bias for each output.")
            if not np.abs(layer.weights).max(axis=1).all():
                raise InvalidValue("An output has only weights of 0: it is the same for every row. Leave it out.")
        if any(one.weights.shape[0] != other.weights.shape[1] for one, other in pairwise(self.layers)):
            raise InvalidValue("The outputs of each layer must be the inputs of the next.")
        if any(layer.activation is None for layer in self.layers[:-1]):
            raise InvalidValue("Two linear layers in a row are one: multiply their weights.")

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
        return {"format": FORMAT, "version": VERSION, "link": self.link, "layers": layers}

    @classmethod
    def from_json(cls, document: Any) -> Model:
        parts = members("model", document, required=("format", "version", "link", "layers"))
        if parts["format"] != FORMAT or parts["version"] != VERSION:
            raise InvalidDocument(f"This is not a model of format {FORMAT!r}, version {VERSION}; write it with Model.save.")
        if parts["link"] not in LINKS or not isinstance(parts["layers"], list):
            raise InvalidDocument("The model names a link that this discreet does not know, or has no list of layers.")
        try:
            return cls(tuple(_layer(item) for item in parts["layers"]), parts["link"])
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


def convert(model: Any, *, radius: float | None = None, encrypted_sigmoid: bool = False) -> Model:
    """A fitted scikit-learn or torch model, for ciphertexts.

    scikit-learn: linear and logistic models, `MLPClassifier`, `MLPRegressor`; torch: `Linear`, and `Sequential` of `Linear` and
    activations, whose outputs are scores. Activations become polynomials on [-radius, radius]: take the largest argument
    of an activation on your training rows. With `encrypted_sigmoid` a logistic model evaluates that too on ciphertexts.

    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> fitted = SimpleNamespace(coef_=np.array([[1.0, -2.0]]), intercept_=np.array([0.5]), classes_=[0, 1])
    >>> convert(fitted).link
    'logistic'
    """
    found = _torch(model, radius) if hasattr(model, "parameters") and hasattr(model, "state_dict") else _sklearn(model, radius)
    if not encrypted_sigmoid:
        return found
    if found.link != "logistic":
        raise InvalidValue(f"encrypted_sigmoid is for models with two classes; this one has the link {found.link}.")
    last = found.layers[-1]
    return Model((*found.layers[:-1], Layer(last.weights, last.bias, _fitted("sigmoid", radius))), "probability")


def _fitted(activation: str, radius: float | None) -> Polynomial:
    if radius is None:
        raise InvalidValue(
            f"The model has the activation {activation}, which becomes a polynomial on [-radius, radius]. Pass radius: the "
            "largest argument of an activation on your training rows."
        )
    return fit(activation, radius)


def _sklearn(model: Any, radius: float | None) -> Model:
    if hasattr(model, "named_steps"):
        raise InvalidValue(
            "A pipeline cannot be converted whole: what comes before the model is the key holder's, who transforms rows before "
            "they are encrypted. Convert the last step, convert(pipeline[-1]), and encrypt pipeline[:-1].transform(rows)."
        )
    if not hasattr(model, "coef_") and not hasattr(model, "coefs_"):
        raise InvalidValue(
            f"{type(model).__name__} cannot be converted: fit a linear or logistic model or an MLP of scikit-learn, or pass a "
            "torch Linear or Sequential."
        )
    classes = len(getattr(model, "classes_", ()))
    probabilistic = hasattr(model, "predict_proba") or not hasattr(model, "decision_function")
    link = "identity" if not classes or not probabilistic else "logistic" if classes == 2 else "softmax"
    if hasattr(model, "coef_"):
        weights = np.atleast_2d(np.asarray(model.coef_, np.float64))
        return Model((Layer(weights, np.broadcast_to(np.asarray(model.intercept_, np.float64), weights.shape[:1])),), link)
    if model.activation not in _SKLEARN_ACTIVATIONS or model.activation == "identity":
        raise InvalidValue(f"An MLP with the activation {model.activation!r} cannot be converted.")
    name = str(_SKLEARN_ACTIVATIONS[model.activation])
    pairs = list(zip(model.coefs_, model.intercepts_, strict=True))
    hidden = [Layer(np.asarray(w, np.float64).T, np.asarray(b, np.float64), _fitted(name, radius)) for w, b in pairs[:-1]]
    weights, bias = pairs[-1]
    return Model((*hidden, Layer(np.asarray(weights, np.float64).T, np.asarray(bias, np.float64))), link)


def _torch(model: Any, radius: float | None) -> Model:
    parts = list(model.children()) or [model]
    names = [type(part).__name__.lower() for part in parts]
    layers: list[Layer] = []
    for name, part in zip(names, parts, strict=True):
        if name == "linear":
            weights = part.weight.detach().cpu().double().numpy()
            bias = np.zeros(len(weights)) if part.bias is None else part.bias.detach().cpu().double().numpy()
            layers.append(Layer(weights, bias))
        elif name in ACTIVATIONS and layers and layers[-1].activation is None:
            layers[-1] = Layer(layers[-1].weights, layers[-1].bias, _fitted(name, radius))
        elif name not in ("dropout", "identity", "flatten"):
            raise InvalidValue(
                f"A torch layer {type(part).__name__} cannot be evaluated on ciphertexts here; use Linear and one of "
                f"{', '.join(ACTIVATIONS)}."
            )
    outputs = len(layers[-1].bias) if layers else 0
    return Model(tuple(layers), "identity" if layers and layers[-1].activation else "logistic" if outputs == 1 else "softmax")
