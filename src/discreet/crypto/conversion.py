"""Fitted models of discreet, scikit-learn and torch as models for ciphertexts, compared with the original before they are used.

What a converted model says of made-up rows must be what the original says of them. Whatever changes predictions and is not
known here (another link, a centred input, a clipped output, a `forward` of one's own) is refused by that, not overlooked.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.crypto.links import applied, with_margin
from discreet.crypto.model import Layer, Model
from discreet.crypto.polynomial import ACTIVATIONS, Polynomial, fit
from discreet.errors import DiscreetError, InvalidValue

__all__ = ["convert"]

_LAST = {"sigmoid": "logistic", "softmax": "softmax"}  # of torch, at the end of a module
_SKLEARN_ACTIVATIONS = {"relu": "relu", "logistic": "sigmoid", "tanh": "tanh"}
SCALES, EACH = (0.0, 0.1, 1.0, 10.0, 100.0, 1000.0), 12  # of made-up rows
UNITS, SOLVED = (
    1.5,
    64,
)  # of scores that are not saturated: most probabilities are within .05 and .95; outputs they are solved for
NEAR = 1e-7  # of the largest value that a computation meets: both sides round in double precision

Array = NDArray[np.float64]


def convert(
    model: Any, *, radius: float | None = None, encrypted_sigmoid: bool = False, names: list[str] | None = None
) -> Model:
    """A fitted model, for ciphertexts.

    discreet's and scikit-learn's linear and logistic models, `MLPClassifier`, `MLPRegressor`; torch: `Linear`, and `Sequential`
    of `Linear` and activations. Decrypted scores are what a torch module returns, or what `predict_proba` says, or without that
    `decision_function` or `predict`; a model for which that cannot be had is refused. A `Sigmoid` or `Softmax` at the end of a
    module is applied after decryption. Activations become polynomials on
    [-radius, radius]: take the largest argument of an activation on your training rows. With `encrypted_sigmoid` a logistic
    model evaluates that too on ciphertexts. `names` of the columns are compared with those of the rows; a model that was
    fitted to a table with names has them.

    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> fitted = SimpleNamespace(coef_=np.array([[1.0, -2.0]]), intercept_=np.array([0.5]), classes_=[0, 1])
    >>> convert(fitted).link
    'logistic'
    """
    is_torch = hasattr(model, "parameters") and hasattr(model, "state_dict")
    found = _torch(model, radius) if is_torch else _sklearn(model, radius)
    named = getattr(model, "feature_names_in_", None) if names is None else names
    columns = None if named is None else tuple(map(str, named))
    if not encrypted_sigmoid:
        return Model(found.layers, found.link, columns)
    if found.link != "logistic":
        raise InvalidValue(
            "encrypted_sigmoid is for models with two classes and no margin, and torch modules with a Sigmoid at the end; this "
            f"one has the link {found.link}."
        )
    last = found.layers[-1]
    layers = (*found.layers[:-1], Layer(last.weights, last.bias, _fitted("sigmoid", radius)))
    return Model(layers, "probability", columns)


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
    if hasattr(model, "coef_"):
        weights = np.atleast_2d(_dense(model.coef_))
        bias = np.broadcast_to(np.asarray(getattr(model, "intercept_", 0.0), np.float64), weights.shape[:1])
        return _like(model, (Layer(weights, bias),))
    if not hasattr(model, "coefs_"):
        raise InvalidValue(
            f"{type(model).__name__} cannot be converted: fit a linear or logistic model or an MLP of scikit-learn, or pass a "
            "torch Linear or Sequential."
        )
    if model.activation not in _SKLEARN_ACTIVATIONS:
        raise InvalidValue(f"An MLP with the activation {model.activation!r} cannot be converted.")
    name = _SKLEARN_ACTIVATIONS[model.activation]
    pairs = list(zip(model.coefs_, model.intercepts_, strict=True))
    hidden = [Layer(np.asarray(w, np.float64).T, np.asarray(b, np.float64), _fitted(name, radius)) for w, b in pairs[:-1]]
    weights, bias = pairs[-1]
    return _like(model, (*hidden, Layer(np.asarray(weights, np.float64).T, np.asarray(bias, np.float64))))


def _dense(weights: Any) -> Array:
    try:
        return np.asarray(weights.toarray() if hasattr(weights, "toarray") else weights, np.float64)
    except (TypeError, ValueError):
        raise InvalidValue("The coefficients of the model are no table of numbers; it cannot be converted.") from None


def _like(model: Any, layers: tuple[Layer, ...]) -> Model:
    """The layers with the link under which they say what the model says."""
    links = list(_links(model, layers[-1].weights.shape[0]))
    asked = "predict_proba" if hasattr(model, "classes_") else "decision_function"
    method = next((name for name in (asked, "decision_function", "predict") if hasattr(model, name)), None)
    if method is None:
        return Model(layers, links[0])  # coefficients alone: there is nothing else that they could mean
    if method != "predict_proba":
        links = ["identity"]
    found = Model(layers, links[0])
    rows = _rows(layers)
    wanted = _asked(getattr(model, method), rows)
    if wanted is not None and method == "predict_proba" and found.outputs == 1 and wanted.shape == (len(rows), 2):
        wanted = wanted[:, 1:]
    for link in links:
        if _same(found, link, rows, wanted):
            return Model(layers, link)
    raise InvalidValue(
        f"{type(model).__name__} cannot be converted: its {method} is another function of its rows than its coefficients and "
        f"{' or '.join(links)} make. Scores of ciphertexts would not be its own."
    )


def _links(model: Any, outputs: int) -> Iterator[str]:
    if not len(getattr(model, "classes_", ())):
        yield "identity"
        return
    margin = getattr(model, "margin", 0.0)
    margin = float(margin) if isinstance(margin, (int, float)) and 0 < margin < np.inf else 0.0
    names = ("logistic",) if outputs == 1 else ("softmax", "one-vs-rest", "logistic")
    yield from names
    if margin:
        yield from (with_margin(name, margin) for name in names if name != "softmax")


def _rows(layers: tuple[Layer, ...]) -> Array:
    """Made-up rows of many sizes: what clips, saturates or bends shows on some of them.

    Links are told apart where they are not saturated. However large weights and biases are, some rows have scores of a few
    units at the first layer (those of least norm, by its pseudo-inverse), and some differ by as much from the score of zeros.
    """
    random, first = np.random.default_rng(0), layers[0]
    features = first.weights.shape[1]
    rows = [scale * random.standard_normal((EACH, features)) for scale in SCALES]
    weights, bias = first.weights[:SOLVED], first.bias[:SOLVED]
    with np.errstate(all="ignore"):
        try:
            solve = np.linalg.pinv(weights).T
            rows.append((UNITS * random.standard_normal((2 * EACH, len(bias))) - bias) @ solve)
        except np.linalg.LinAlgError:
            pass
        steepest = float(np.prod([np.linalg.norm(layer.weights) for layer in layers]))
        if steepest > 0:
            rows.append(UNITS * random.standard_normal((2 * EACH, features)) / steepest)
    made = np.concatenate(rows)
    return np.asarray(made[np.isfinite(made).all(axis=1)])


def _asked(method: Any, rows: Array) -> Array | None:
    """What a model says of rows, (rows, outputs), or None where it says nothing that could be compared."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = np.asarray(method(rows), np.float64)
    except DiscreetError:
        raise
    except Exception:  # a model's own code may raise anything
        return None
    return found[:, None] if found.ndim == 1 else found


def _same(model: Model, link: str, rows: Array, wanted: Array | None) -> bool:
    """Whether the model, with its activations themselves, says the same of all rows up to rounding."""
    values, largest = rows, np.abs(rows).max(axis=1)
    with np.errstate(all="ignore"):
        for layer in model.layers:
            largest = np.abs(layer.weights).sum(axis=1).max() * largest + np.abs(layer.bias).max()
            values = values @ layer.weights.T + layer.bias
            values = values if layer.activation is None else ACTIVATIONS[layer.activation.activation][0](values)
        said = applied(values, link)
        if wanted is None or said.shape != wanted.shape:
            return False
        return bool((np.abs(said - wanted) <= NEAR * (1 + largest)[:, None]).all())


def _torch(model: Any, radius: float | None) -> Model:
    parts = list(model.children()) or [model]
    names = [type(part).__name__.lower() for part in parts]
    link = _LAST.get(names[-1], "identity") if len(parts) > 1 else "identity"
    if link != "identity":  # the key holder's
        parts, names = parts[:-1], names[:-1]
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
    found = Model(tuple(layers), link)
    rows = _rows(found.layers)
    if not _same(found, link, rows, _asked(_forward(model), rows)):
        raise InvalidValue(
            f"{type(model).__name__} cannot be converted: it computes something else than its layers one after the other, or "
            "an activation has settings of its own. Scores of ciphertexts would not be its own."
        )
    return found


def _forward(model: Any) -> Any:
    """The module itself in double precision, as it predicts."""
    import torch

    module = copy.deepcopy(model).cpu().double().eval()

    def said(rows: Array) -> Any:
        with torch.no_grad():
            return module(torch.from_numpy(rows)).numpy()

    return said
