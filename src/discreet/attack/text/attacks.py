"""The attacks on language models. Each is an object that says what it needs, and scores texts.

To add one, write a class with `name`, `view`, `needs`, `signal` and `score`, and put it into `ATTACKS`; or give an
object of it to `text_membership(attacks=[…])`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from discreet.attack.text import signals
from discreet.attack.text.models import LanguageModel, utf8
from discreet.errors import InvalidValue

Array = NDArray[np.float64]
Tokens = NDArray[np.int64]
SCORES = frozenset({"scores"})
UNSUMMED = 0.05  # logarithm of a sum of probabilities: narrow types and clipping leave some


@dataclass(frozen=True)
class Reading:
    """A text, its tokens, and the log-probability of every token of the vocabulary at every place."""

    text: str
    tokens: Tokens
    target: Array


@dataclass(frozen=True)
class ReferencedReading(Reading):
    """The same beside those of a model that saw none of the texts."""

    reference: Array


@dataclass(frozen=True)
class TextObservation:
    """A language model and texts; a reading is made when it is asked for, since each is as large as the vocabulary."""

    target: LanguageModel
    texts: Sequence[str]
    encode: Callable[[str], Tokens] = utf8

    def read(self, place: int) -> Reading:
        tokens = self.tokens(place)
        return Reading(self.texts[place], tokens, log_probabilities(self.target, tokens))

    def tokens(self, place: int) -> Tokens:
        tokens = np.asarray(self.encode(self.texts[place]), np.int64)
        if not len(tokens):
            raise InvalidValue("encode gives no token for a text; leave texts out that have none.")
        return tokens


@dataclass(frozen=True, kw_only=True)
class ReferencedObservation(TextObservation):
    """The same beside a `reference`: a model of the same language that saw none of the texts."""

    reference: LanguageModel

    def read(self, place: int) -> ReferencedReading:
        tokens = self.tokens(place)
        target, reference = (log_probabilities(model, tokens) for model in (self.target, self.reference))
        return ReferencedReading(self.texts[place], tokens, target, reference)


def log_probabilities(model: LanguageModel, tokens: Tokens) -> Array:
    """The model's log-probabilities [tokens, vocabulary], if they are such."""
    table = np.asarray(model.log_probabilities(tokens), np.float64)
    if table.ndim != 2 or len(table) != len(tokens) or (len(tokens) and int(tokens.max()) >= table.shape[1]):
        raise InvalidValue(f"The model must give log-probabilities [{len(tokens)}, vocabulary]; got shape {table.shape}.")
    if not np.isfinite(table).all():
        raise InvalidValue("The model gives NaN or infinite log-probabilities; clip probabilities of 0.")
    off = float(np.abs(np.logaddexp.reduce(table, 1)).max())
    if off > UNSUMMED:
        raise InvalidValue(
            f"The model's log-probabilities of one place sum to exp({off:.3g}) or its inverse and not to 1: give logarithms of "
            "probabilities (log_softmax of logits) over the whole vocabulary."
        )
    return table


@dataclass(frozen=True)
class TextNeeds:
    """What an attack needs beside the target's probabilities."""

    reference: bool = False  # a model that saw none of the texts; `signal` is then given a ReferencedReading


@runtime_checkable
class TextAttack(Protocol):
    """A `discreet.core.Attack` on a language model: `signal` is the score of one text, higher where more likely inside."""

    @property
    def name(self) -> str: ...
    @property
    def view(self) -> frozenset[str]: ...
    @property
    def needs(self) -> TextNeeds: ...

    def signal(self, reading: Any) -> float: ...
    def score(self, seen: Any, targets: Sequence[int]) -> Array: ...


class _ByText:
    """Scores texts one by one."""

    view: ClassVar[frozenset[str]] = SCORES
    needs: ClassVar[TextNeeds] = TextNeeds()

    def signal(self, reading: Any) -> float:
        raise NotImplementedError

    def score(self, seen: TextObservation, targets: Sequence[int]) -> Array:
        return np.array([self.signal(seen.read(place)) for place in targets])


class Loss(_ByText):
    """The mean log-probability of the tokens (Yeom et al. 2018)."""

    name = "loss"

    def signal(self, reading: Reading) -> float:
        return signals.loss(reading.target, reading.tokens)


class Zlib(_ByText):
    """The loss over the bytes that zlib needs (Carlini et al. 2021)."""

    name = "zlib"

    def signal(self, reading: Reading) -> float:
        return signals.zlib_ratio(reading.target, reading.tokens, reading.text)


@dataclass(frozen=True)
class MinK(_ByText):
    """The mean over the least likely share of tokens (Shi et al. 2024)."""

    share: float = 0.2
    name: ClassVar[str] = "min_k"

    def signal(self, reading: Reading) -> float:
        return signals.min_k(reading.target, reading.tokens, self.share)


@dataclass(frozen=True)
class MinKPlus(_ByText):
    """Min-K%++ (Zhang et al. 2025)."""

    share: float = 0.2
    name: ClassVar[str] = "min_k_plus"

    def signal(self, reading: Reading) -> float:
        return signals.min_k_plus(reading.target, reading.tokens, self.share)


class Reference(_ByText):
    """How much likelier the text is than to a model that never saw it (Carlini et al. 2021)."""

    name = "reference"
    needs = TextNeeds(reference=True)

    def signal(self, reading: ReferencedReading) -> float:
        return signals.reference_ratio(reading.target, reading.reference, reading.tokens)


ATTACKS: tuple[TextAttack, ...] = (Loss(), Zlib(), MinK(), MinKPlus(), Reference())
