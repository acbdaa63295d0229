"""Rows of numbers as packed ciphertexts, and answers back: what travels between the key holder and the computing machine.

Two layouts. `rows`: one ciphertext for each feature, up to 4,096 (or 8,192) rows in its slots. `row`: one row in one
ciphertext; in its coefficients under keys for `linear`, otherwise repeated until the slots are full. Each message has an
identifier; an answer names the request that it answers, and neither side accepts one twice.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core.document import members
from discreet.crypto.container import is_name, pack, read_file, unpack, write_file
from discreet.crypto.engine import Seal, numbers, saved
from discreet.crypto.keys import PublicContext, SecretContext, block
from discreet.crypto.links import applied, is_link
from discreet.crypto.names import column_names
from discreet.crypto.packing import slots
from discreet.crypto.parameters import WEIGHT_BITS, RingParameters, checked_bound
from discreet.errors import InvalidDocument, InvalidValue

__all__ = ["Encrypted", "decrypt", "encrypt"]

LAYOUTS = ("row", "rows", "scores")
_HEADER = ("key", "parameters", "layout", "rows", "width", "bound", "message", "answers", "link")


@dataclass(frozen=True, slots=True, eq=False)
class Encrypted:
    """Ciphertexts of a table, or of scores. `width` counts features or outputs; `bound` is what values were checked against."""

    key: str
    parameters: RingParameters
    layout: str
    rows: int
    width: int
    bound: float
    parts: tuple[Any, ...] = field(repr=False)  # ciphertexts, or as bytes before they are needed
    message: str = field(default_factory=lambda: secrets.token_hex(16))
    answers: str | None = None  # the message that this one answers
    link: str = "identity"
    names: tuple[str, ...] | None = None  # of the columns of rows, where they are known

    def to_bytes(self) -> bytes:
        header = {name: getattr(self, name) for name in _HEADER if name != "parameters"}
        if self.names is not None:
            header["names"] = list(self.names)
        parts = [part if isinstance(part, bytes) else saved(part) for part in self.parts]
        return pack("ciphertext", {**header, "parameters": self.parameters.to_json()}, parts)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "The message") -> Encrypted:
        return cls._from(*unpack(data, "ciphertext", name))

    @classmethod
    def _from(cls, header: Any, parts: list[bytes]) -> Encrypted:
        found = members("ciphertexts", header, required=_HEADER, optional=("names",))
        sizes = (found["rows"], found["width"])
        words = (found["link"], found["layout"])
        names = (found["key"], found["message"], found["message"] if found["answers"] is None else found["answers"])
        if not all(isinstance(word, str) for word in words) or not all(map(is_name, names)):
            raise InvalidDocument("The header of the ciphertexts has names that discreet does not write.")
        if not all(type(size) is int and size > 0 for size in sizes):
            raise InvalidDocument("The header of the ciphertexts has values of other types than discreet writes.")
        if found["layout"] not in LAYOUTS or not is_link(found["link"]):
            raise InvalidDocument("The header of the ciphertexts names a layout or a link that this discreet does not know.")
        if type(found["bound"]) is not float or not 0 < found["bound"] <= 1024:
            raise InvalidDocument("The header of the ciphertexts has values of other types than discreet writes.")
        parameters = RingParameters.from_json(found["parameters"])
        if len(parts) != (1 if found["layout"] == "row" else found["width"]) or found["rows"] > parameters.slots:
            raise InvalidDocument(f"{len(parts)} ciphertexts do not hold a table of {sizes[0]} rows and {sizes[1]} columns.")
        try:
            columns = None if found.get("names") is None else column_names(found["names"], found["width"])
        except InvalidValue as error:
            raise InvalidDocument(f"The header of the ciphertexts is not valid: {error}") from None
        return cls(**{**found, "parameters": parameters, "bound": float(found["bound"]), "names": columns}, parts=tuple(parts))

    def save(self, path: str | os.PathLike[str]) -> Path:
        return write_file(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Encrypted:
        return cls._from(*read_file(path, "ciphertext"))

    def ciphertexts(self, cipher: Seal) -> list[Any]:
        """The ciphertexts themselves, each of which SEAL has found valid for the ring."""
        return [cipher.from_bytes("Ciphertext", part) if isinstance(part, bytes) else part for part in self.parts]

    def same_key(self, context: PublicContext | SecretContext) -> None:
        """Refuse what was made under another key."""
        if self.key != context.id or self.parameters != context.parameters:
            raise InvalidValue(
                f"These ciphertexts belong to key {self.key[:8]} and the key here is {context.id[:8]}. "
                "Use the key files of the keygen that encrypted them."
            )


def encrypt(secret: SecretContext, rows: Any, *, bound: float = 8.0, names: list[str] | None = None) -> Encrypted:
    """A table of numbers, packed by feature; a single row (one dimension) in one ciphertext.

    Values above `bound` in magnitude are refused before anything is encrypted, since they could leave the range of the
    encoding after the computation; standardise or clip features first. `names` of the columns (a data frame's own, unless
    given) are compared with those of the model before it scores them; they are not encrypted, and a client does not send them.

    >>> from discreet.crypto import keygen
    >>> secret, public = keygen("linear", features=2)
    >>> encrypt(secret, [[0.5, 1.0], [2.0, -1.0]]).layout, encrypt(secret, [0.5, 1.0]).layout
    ('rows', 'row')
    """
    context, table = secret.public, numbers("rows", rows, (1, 2))
    if context.purpose in ("sum", "training"):
        raise InvalidValue(f"These keys are for {context.purpose}; scoring needs keys for linear, logistic or network.")
    bound = checked_bound(bound)
    if table.shape[-1] != context.features:
        raise InvalidValue(f"These keys are for rows of {context.features} features; found {table.shape[-1]}.")
    if np.abs(table).max() > bound:
        raise InvalidValue(
            f"A value is outside [-{bound:g}, {bound:g}], the range of the encoding. Nothing was encrypted; "
            "standardise or clip the features, or raise bound."
        )
    if table.ndim == 2 and len(table) > context.parameters.slots:
        raise InvalidValue(
            f"{len(table)} rows do not fit the {context.parameters.slots} slots of a ciphertext. Encrypt them in parts."
        )
    named = getattr(rows, "columns", None) if names is None else names
    called = None if named is None else column_names([str(name) for name in named], table.shape[-1])
    scale = 2.0**context.parameters.scale_bits
    if table.ndim == 2:
        parts = tuple(secret.hidden(column, 0, scale) for column in table.T)
    elif context.parameters.levels:
        parts = (secret.hidden(_repeated(table, context), 0, scale),)
    else:
        parts = (secret.seeded(context.cipher.encode(_coefficients(table, context, scale), 0, scale)),)
    return Encrypted(
        secret.id, context.parameters, "row" if table.ndim == 1 else "rows", len(np.atleast_2d(table)), table.shape[-1],
        bound, parts, names=called,
    )  # fmt: skip


def _repeated(row: NDArray[np.float64], context: PublicContext) -> NDArray[np.float64]:
    size = block(context.features)
    return np.tile(np.pad(row, (0, size - len(row))), context.parameters.slots // size)


def _coefficients(row: NDArray[np.float64], context: PublicContext, scale: float) -> NDArray[np.complex128]:
    """The slots of the polynomial whose coefficients are the row: there each value is rounded by itself."""
    steps = np.pad(np.rint(row * scale), (0, context.parameters.degree - len(row)))
    return np.asarray(slots(context.parameters.degree, steps) / scale)


def decrypt(secret: SecretContext, answer: Encrypted, *, request: Encrypted | None = None) -> NDArray[np.float64]:
    """The scores of an answer: (rows, outputs), for the key holder's own eyes.

    Pass the request to make sure that it is this one that was answered. What does not decrypt to numbers that the
    computation can give is refused. A server that computes something else is not noticed: encryption has no integrity.
    To hand scores to another party, use `discreet.crypto.disclose`.
    """
    return opened(secret, answer, request)[0]


def opened(secret: SecretContext, answer: Encrypted, request: Encrypted | None) -> tuple[NDArray[np.float64], float]:
    """The scores, and the standard deviation of their noise: that of the imaginary parts, which are noise and nothing else."""
    return read(secret, answer, answered(secret, answer, request))


def answered(secret: SecretContext, answer: Encrypted, request: Encrypted | None) -> list[Any]:
    """The ciphertexts of an answer, where they have the form of scores: all that can be refused before decryption."""
    answer.same_key(secret)
    if answer.layout != "scores":
        raise InvalidValue("These are encrypted rows, and no scores: send them to the server first.")
    if request is not None and (answer.answers != request.message or answer.rows != request.rows):
        raise InvalidDocument("The answer is to another request: it was replayed, or sent to the wrong client. Ask again.")
    cipher = secret.public.cipher
    ciphertexts = answer.ciphertexts(cipher)
    if any(not _of_scores(ciphertext, answer.parameters) for ciphertext in ciphertexts):
        raise InvalidDocument(
            "The answer has another form than scores have: its scale would show the noise. The server sent something else."
        )
    return ciphertexts


def read(secret: SecretContext, answer: Encrypted, ciphertexts: list[Any]) -> tuple[NDArray[np.float64], float]:
    """What `opened` says, of ciphertexts that were looked at."""
    values = np.stack([secret.slots(ciphertext) for ciphertext in ciphertexts], axis=1)
    scores, noise = values.real[: answer.rows], float(np.sqrt(np.mean(values.imag**2, axis=0)).max())
    if not np.isfinite(scores).all() or np.abs(scores).max() > capacity(answer.parameters):
        raise InvalidDocument(
            "The answer does not decrypt to scores: it is damaged, of another computation, or the server sent something else."
        )
    return applied(scores, answer.link), noise


def capacity(parameters: RingParameters) -> float:
    """Scores at most this large in magnitude fit the last prime."""
    return float(2.0 ** (parameters.primes[0] - 2)) / _score_scale(parameters)


def _score_scale(parameters: RingParameters) -> float:
    return 2.0 ** (parameters.scale_bits + (WEIGHT_BITS if parameters.levels == 0 else 0))


def _of_scores(ciphertext: Any, parameters: RingParameters) -> bool:
    """Whether a ciphertext has two parts, and the scale of scores up to what approximate rescaling leaves of it."""
    return bool(ciphertext.size() == 2 and abs(ciphertext.scale / _score_scale(parameters) - 1) < 1e-2)
