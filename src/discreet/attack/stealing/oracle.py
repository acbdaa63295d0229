"""A model behind an interface: rows in, answers out, each query counted; a server that fails is asked again later."""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import check
from discreet.errors import DiscreetError, InvalidValue, ModelUnreachable
from discreet.models.predict import adapt, is_module

Floats = NDArray[np.float64]
LONGEST_WAIT = 300.0  # seconds between two attempts
_HEAD = struct.Struct("<16sqq")


class Oracle:
    """A model that is asked, with what is asked counted.

    `model` is a torch module (asked in its own precision), a scikit-learn model (its probabilities, else its decision values,
    else its predictions), anything with `scores`, or a function of rows. Where it raises `ModelUnreachable`, a `TimeoutError`
    or a `ConnectionError`, as an interface does that fails or limits its rate, the oracle waits: `wait` seconds, then twice
    that, and so on, `attempts` times. With a `journal` (a file) answers are kept, and the same attack started again with the
    same seed goes on where it stopped. `most` bounds the queries.

    >>> oracle = Oracle(lambda X: X.sum(1))
    >>> oracle([[1.0, 2.0]]).tolist(), oracle.queries
    ([[3.0]], 1)
    """

    def __init__(
        self, model: Any, *, most: int | None = None, attempts: int = 8, wait: float = 1.0, journal: str | Path | None = None,
        batch: int | None = None, sleep: Callable[[float], object] = time.sleep,
    ) -> None:  # fmt: skip
        self._ask, self.most = _asker(model), None if most is None else check.whole("most", most)
        self.attempts, self.wait, self._sleep = check.whole("attempts", attempts), check.nonnegative("wait", wait), sleep
        self._journal = None if journal is None else Journal(Path(journal))
        self.batch = None if batch is None else check.whole("batch", batch)
        self.queries, self.waited, self.outputs = 0, 0.0, 0

    def __call__(self, rows: ArrayLike) -> Floats:
        """The answers [rows, outputs] as 64-bit floats."""
        rows = np.atleast_2d(np.asarray(rows, np.float64))
        if self.most is not None and self.queries + len(rows) > self.most:
            raise InvalidValue(
                f"The attack needs more than the {self.most} queries that it may make. Raise most, or attack less."
            )
        if self.batch is not None and len(rows) > self.batch:
            return np.concatenate([self(rows[at : at + self.batch]) for at in range(0, len(rows), self.batch)])
        kept = None if self._journal is None else self._journal.next(rows)
        found = self._answers(rows) if kept is None else kept
        self.queries, self.outputs = self.queries + len(rows), found.shape[1]
        return found

    def _answers(self, rows: Floats) -> Floats:
        try:
            found = np.asarray(self._patiently(rows))
        except (ValueError, TypeError, IndexError) as error:
            if isinstance(error, DiscreetError):
                raise
            raise InvalidValue(
                f"The model cannot be asked about rows of {rows.shape[1]} numbers: {str(error)[:200]}"
            ) from error
        if found.dtype.kind not in "fiub":
            raise InvalidValue(f"The model must answer with numbers; it answers with {found.dtype}. Number its labels.")
        found = found.astype(np.float64)
        found = found[:, None] if found.ndim == 1 else found
        if found.ndim != 2 or len(found) != len(rows) or (self.outputs and found.shape[1] != self.outputs):
            raise InvalidValue(f"The model must give one line of numbers for each of {len(rows)} rows; got {found.shape}.")
        if not np.isfinite(found).all():
            raise InvalidValue("The model answers NaN or infinity; ask it about rows of the size that it was made for.")
        if self._journal is not None:
            self._journal.add(rows, found)
        return found

    def _patiently(self, rows: Floats) -> Any:
        pause = self.wait
        for attempt in range(self.attempts):
            try:
                return self._ask(rows)
            except (ModelUnreachable, TimeoutError, ConnectionError) as error:
                if attempt + 1 == self.attempts:
                    more = " Start it again with the same journal and seed to go on." if self._journal else (
                        " An attack that keeps a journal can be started again and goes on.")  # fmt: skip
                    raise ModelUnreachable(
                        f"The model did not answer {self.attempts} times in a row, after {self.queries} queries.{more}"
                    ) from error
                pause = max(pause, getattr(error, "retry_after", None) or 0.0)
            self._sleep(min(pause, LONGEST_WAIT))
            self.waited, pause = self.waited + min(pause, LONGEST_WAIT), 2 * pause
        raise AssertionError("unreachable")


class Journal:
    """Answers in a file, in the order in which they were given; each with a digest of what was asked.

    Rows are not kept, only their digests. A record that was cut short is left out.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._at = path, 0
        self._kept: list[tuple[bytes, Floats]] = []
        data, at = path.read_bytes() if path.exists() else b"", 0
        while at + _HEAD.size <= len(data):
            digest, rows, width = _HEAD.unpack_from(data, at)
            end = at + _HEAD.size + 8 * rows * width
            if end > len(data) or rows < 0 or width < 0:
                break
            self._kept.append((digest, np.frombuffer(data[at + _HEAD.size : end], np.float64).reshape(rows, width)))
            at = end
        if at < len(data):
            path.write_bytes(data[:at])

    def next(self, rows: Floats) -> Floats | None:
        """The answer kept for these rows, or None where the journal ends."""
        if self._at >= len(self._kept):
            return None
        digest, found = self._kept[self._at]
        if digest != _digest(rows):
            raise InvalidValue(f"{self.path} is the journal of another attack, or of another seed; name a new file.")
        self._at += 1
        return found

    def add(self, rows: Floats, found: Floats) -> None:
        with self.path.open("ab") as file:
            file.write(_HEAD.pack(_digest(rows), *found.shape) + found.tobytes())


def _digest(rows: Floats) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(rows).tobytes(), digest_size=16).digest()


def _asker(model: Any) -> Callable[[Floats], Any]:
    if is_module(model):
        return lambda rows: _of_module(model, rows)
    for name in ("predict_proba", "decision_function", "predict", "answers"):
        if hasattr(model, name):
            return lambda rows: getattr(model, name)(rows)
    return model if callable(model) and not hasattr(model, "scores") else adapt(model).scores


def _of_module(module: Any, rows: Floats) -> Any:
    """The answers of a torch module in its own precision, whatever that is."""
    import torch

    like = next(iter(module.parameters()), torch.zeros(1))
    before = module.training
    module.eval()
    try:
        with torch.no_grad():
            found = module(torch.as_tensor(rows, dtype=like.dtype, device=like.device))
    except RuntimeError as error:  # of shapes that do not fit
        raise ValueError(str(error)) from error
    finally:
        module.train(before)
    return getattr(found, "logits", found).double().cpu().numpy()


def step_of(answers: Floats) -> float:
    """The distance between numbers that such answers can be: 0 for 64-bit floats, 1 for labels, 0.001 for three decimals.

    >>> step_of(np.array([[0.25, 0.5]])), step_of(np.array([[1.0, 0.0]])), step_of(np.array([[1 / 3, 2 / 3]]))
    (0.01, 1.0, 0.0)
    """
    for decimals in range(12):
        if np.allclose(answers, answers.round(decimals), rtol=0, atol=1e-15 * max(1.0, float(np.abs(answers).max()))):
            return float(10.0**-decimals)
    if np.array_equal(answers, answers.astype(np.float32)):
        return float(np.spacing(np.float32(np.abs(answers).max())))
    return 0.0


def logits_of(answers: Floats) -> Floats:
    """Logits from what a model answers; of probabilities their logarithms, less that of the last class.

    >>> logits_of(np.array([[0.5, 0.5], [0.8, 0.2]])).round(3).tolist()
    [[0.0], [1.386]]
    """
    if not probabilities(answers):
        return answers
    if not (answers > 0).all():
        raise InvalidValue("The model answers probabilities of exactly 0 or 1, whose logits are lost. Ask about smaller rows.")
    logs = np.log(answers)
    return np.asarray(logs[:, :-1] - logs[:, -1:])


def probabilities(answers: Floats) -> bool:
    """Are these probabilities of classes?"""
    return answers.shape[1] > 1 and bool((answers >= 0).all()) and bool(np.allclose(answers.sum(1), 1.0, atol=1e-6))
