"""Query any model: scores, labels, and for torch modules the gradient of every example.

`adapt(model)` wraps a torch module (Hugging Face models among them), a scikit-learn classifier, an ONNX file, a server that
speaks the prediction protocol of TensorFlow Serving, KServe and MLflow, or a plain function, in one interface.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from discreet.errors import InvalidValue, MissingExtra, ModelUnreachable
from discreet.figures import place_name

Array = NDArray[Any]
AT_ONCE = 4096  # rows given to a torch module
SMALLEST_PROBABILITY = 1e-12


@runtime_checkable
class Model(Protocol):
    """A model that can be queried: `scores(X)` has a row for each example and a column for each class."""

    def scores(self, X: Array) -> Array: ...


class TorchModel:
    """A torch module, run in evaluation mode without gradients; outputs with `.logits` (Hugging Face) count as those."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def scores(self, X: Array) -> Array:
        import torch

        device, was_training = next((p.device for p in self.module.parameters()), None), self.module.training
        self.module.eval()
        try:
            with torch.no_grad():
                batches = torch.as_tensor(X, dtype=torch.float32).split(AT_ONCE)
                parts = [_logits_of(self.module(rows.to(device))).float().cpu() for rows in batches]
        except (RuntimeError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise InvalidValue(
                f"The target cannot be asked about rows of shape {np.shape(X)[1:]}, as 32-bit floats: "
                f"{' '.join(str(error).split())[:200]}. Where it takes whole numbers (tokens), say x.long() in its forward; "
                "where its weights have another precision, give target.float()."
            ) from error
        finally:
            self.module.train(was_training)
        return torch.cat(parts).numpy()

    def gradient_norms(self, X: Array, y: Array) -> Array:
        """The norm of each example's gradient, by parameter [rows, parameters]."""
        from discreet.models.gradients import gradient_norms

        return gradient_norms(self.module, X, y)[0]


class Classifier:
    """A scikit-learn classifier: log-probabilities, or decision values, a column per class in the order of its classes."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def scores(self, X: Array) -> Array:
        with warnings.catch_warnings():  # columns are in the order of those it was fitted on, whatever they were called
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            if hasattr(self.estimator, "predict_proba"):
                return logarithms(np.asarray(self.estimator.predict_proba(X), np.float64))
            if hasattr(self.estimator, "decision_function"):
                values = np.asarray(self.estimator.decision_function(X), np.float64)
                return np.stack([-values, values], 1) if values.ndim == 1 else values
        raise InvalidValue(
            f"{type(self.estimator).__name__} gives neither probabilities nor decision values; membership needs one of them."
        )


class Function:
    """A function from rows to scores."""

    def __init__(self, function: Callable[[Array], Any]) -> None:
        self.function = function

    def scores(self, X: Array) -> Array:
        return np.asarray(self.function(X))


class Onnx:
    """A model in an ONNX file: its last table of floats is its scores, logits or probabilities."""

    def __init__(self, file: Path) -> None:
        try:
            import onnxruntime  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError:
            raise MissingExtra("onnxruntime", "onnx", "Reading ONNX models") from None
        try:
            self._session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        except Exception as error:
            raise InvalidValue(f"{str(file)!r} cannot be read as ONNX: {' '.join(str(error).split())[:200]}") from None
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise InvalidValue(f"{str(file)!r} has {len(inputs)} inputs; a model under attack is given one table of numbers.")
        self._input = inputs[0].name

    def scores(self, X: Array) -> Array:
        try:
            outputs = self._session.run(None, {self._input: np.asarray(X, np.float32)})
        except Exception as error:
            raise InvalidValue(f"The model cannot be asked about these rows: {' '.join(str(error).split())[:200]}") from None
        tables = [
            output for output in outputs if isinstance(output, np.ndarray) and output.ndim == 2 and output.dtype.kind == "f"
        ]
        if not tables:
            raise InvalidValue("The model gives no table of scores, one column per class; export it with its probabilities.")
        return np.asarray(tables[-1], np.float64)


class Http:
    """A model behind a URL: rows go as {"instances": [...]}, scores come back as {"predictions": [...]}, or labels alone."""

    def __init__(self, url: str, *, timeout: float = 60.0, batch: int = 256) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidValue(f"url must begin with http:// or https://; got {place_name(url)!r}.")
        self.url, self.timeout, self.batch = url, timeout, batch

    def scores(self, X: Array) -> Array:
        found = self.answers(X)
        if found.ndim != 2:
            raise InvalidValue(
                f"The model at {place_name(self.url)} gives one number for each row, a label perhaps: needed is a score for "
                "each class. Attacks on labels are discreet attack stealing --answers labels, and inversion --access labels."
            )
        return found

    def answers(self, X: Array) -> Array:
        """What comes back: scores [rows, classes], or a number for each row."""
        X = np.asarray(X)
        parts = [self._answers(X[at : at + self.batch]) for at in range(0, len(X), self.batch)]
        if len({part.shape[1:] for part in parts}) != 1:
            raise InvalidValue(f"The model at {place_name(self.url)} gave answers of different shapes.")
        return np.concatenate(parts)

    def _answers(self, rows: Array) -> Array:
        body = json.dumps({"instances": rows.tolist()}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                scores = np.asarray(json.loads(answer.read())["predictions"], np.float64)
        except (urllib.error.URLError, OSError) as error:
            code, message = getattr(error, "code", 503), f"The model at {place_name(self.url)} did not answer: {error}."
            if code < 500 and code not in (408, 425, 429):
                raise InvalidValue(message) from None
            wait = (getattr(error, "headers", None) or {}).get("Retry-After", "")
            raise ModelUnreachable(message, retry_after=float(wait) if wait.isdigit() else None) from None
        except (ValueError, KeyError, TypeError):
            raise InvalidValue(
                f'The model at {place_name(self.url)} must answer {{"predictions": [[...], ...]}}, a score for each class, or '
                '{"predictions": [...]}, a label for each row.'
            ) from None
        if scores.ndim not in (1, 2) or len(scores) != len(rows):
            raise InvalidValue(f"The model at {place_name(self.url)} gave scores of shape {scores.shape} for {len(rows)} rows.")
        return scores


def adapt(model: Any) -> Model:
    """The model as one that can be queried.

    >>> adapt(lambda X: np.zeros((len(X), 2))).scores(np.ones((3, 1))).shape
    (3, 2)
    """
    if is_module(model):
        return TorchModel(model)
    if hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        return Classifier(model)
    if isinstance(model, Model):
        return model
    if callable(model):
        return Function(model)
    if is_module(getattr(model, "model", None)):  # a finished training run
        return TorchModel(model.model)
    raise InvalidValue(
        f"target must be a torch module, a classifier or a function that gives scores; got {type(model).__name__}."
    )


def scores(model: Any, X: Array) -> Array:
    """The model's scores, a column per class: logits, log-probabilities, decision values or probabilities."""
    return adapt(model).scores(X)


def logits(model: Any, X: Array) -> Array:
    """The same, with probabilities replaced by their logarithms; needs enough rows to recognise probabilities."""
    return as_logits(scores(model, X))


def labels(model: Any, X: Array) -> NDArray[np.int64]:
    """The predicted label alone, for every row."""
    return np.asarray(scores(model, X)).argmax(1)


def is_module(model: Any) -> bool:
    """Whether the model is a torch module, whose weights are available."""
    return hasattr(model, "state_dict") and hasattr(model, "forward")


def names_classes(model: Any) -> bool:
    """Whether labels are the names that a scikit-learn model gives its classes."""
    return not is_module(model) and hasattr(model, "classes_")


def class_numbers(y: Array, classes: Any, role: str) -> NDArray[np.int64]:
    """Labels as places among the classes that a model names."""
    known = {name: place for place, name in enumerate(np.asarray(classes).tolist())}
    places = [known.get(label, -1) for label in np.asarray(y).tolist()]
    unknown = places.count(-1)
    if unknown == len(places):
        raise InvalidValue(
            f"None of the labels of the {role} is one of the model's {len(known)} classes. Labels must be written as the model "
            "names its classes; what a regression predicts is no class, and is not attacked here."
        )
    if unknown:
        raise InvalidValue(
            f"{unknown} of {len(places)} labels of the {role} are none of the model's {len(known)} classes. Leave such rows "
            "out: who has a class that the model does not know was not trained on."
        )
    return np.array(places, np.int64)


def logarithms(probabilities: Array) -> Array:
    """Logarithms of probabilities; 0 counts as half of the least positive one.

    In a forest of 20 trees a 0 means less than 1/20; replacing it by 1e-12 would make such rows extreme outliers.

    >>> np.exp(logarithms(np.array([[1.0, 0.0], [0.9, 0.1]]))).round(3).tolist()
    [[1.0, 0.05], [0.9, 0.1]]
    """
    positive = probabilities[probabilities > 0]
    least = max(SMALLEST_PROBABILITY, 0.5 * float(positive.min(initial=1.0)))
    return np.log(np.clip(probabilities, least, 1.0))


def as_logits(scores: Array) -> Array:
    """Scores as they are; probabilities (none below 0, every row summing to 1) by their logarithm."""
    scores = np.asarray(scores)
    if scores.ndim < 2 or not scores.size or not (scores.min() >= 0) or not np.allclose(scores.sum(-1), 1.0, atol=1e-3):
        return scores
    return logarithms(scores.astype(np.float64))


def _logits_of(output: Any) -> Any:
    return getattr(output, "logits", output)
