"""Language models as an attack sees them: the probability of every token at every place of a text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import check
from discreet.errors import InvalidValue

Tokens = NDArray[np.int64]
Array = NDArray[np.float64]


@runtime_checkable
class LanguageModel(Protocol):
    """Row i of the answer is log p(. | tokens before i), a column for each token of the vocabulary."""

    def log_probabilities(self, tokens: Tokens) -> Array: ...


def utf8(text: str) -> Tokens:
    """A text as the bytes of its UTF-8, a vocabulary of 256.

    >>> utf8("hé").tolist()
    [104, 195, 169]
    """
    return np.frombuffer(text.encode(), np.uint8).astype(np.int64)


class NGram:
    """Counts of up to `order` tokens in a row, longer ones falling back on shorter ones.

    p(c | context) = (count(context c) + backoff p(c | shorter context)) / (count(context) + backoff): Dirichlet priors, one on
    top of the other (MacKay and Peto 1995), with the uniform distribution at the bottom.

    >>> model = NGram([utf8("abababab")], order=2)
    >>> int(model.log_probabilities(utf8("ab"))[1].argmax()) == ord("b")
    True
    """

    def __init__(self, texts: Iterable[ArrayLike], *, order: int = 5, vocabulary: int = 256, backoff: float = 1.0) -> None:
        self.order, self.vocabulary = check.whole("order", order), check.whole("vocabulary", vocabulary, least=2)
        self.backoff = check.positive("backoff", backoff)
        if self.order * np.log2(self.vocabulary) >= 63:
            raise InvalidValue(f"{order} tokens out of {vocabulary} do not fit a number of 63 bits; lower order.")
        read = [_tokens(text, self.vocabulary) for text in texts]
        self._counts = [self._counted(read, length) for length in range(self.order)]

    def _counted(self, texts: list[Tokens], length: int) -> tuple[Tokens, Tokens]:
        """Every run of `length` tokens and the one after it, as one number, and how often it was seen."""
        parts = [contexts(text, length, self.vocabulary)[length:] * self.vocabulary + text[length:] for text in texts]
        keys, counts = np.unique(np.concatenate([*parts, np.zeros(0, np.int64)]), return_counts=True)
        return keys, counts.astype(np.int64)

    def log_probabilities(self, tokens: Tokens) -> Array:
        tokens = _tokens(tokens, self.vocabulary)
        probabilities = np.full((len(tokens), self.vocabulary), 1.0 / self.vocabulary)
        for length, (keys, counts) in enumerate(self._counts):
            probabilities[length:] = self._refined(
                probabilities[length:], keys, counts, contexts(tokens, length, self.vocabulary)[length:]
            )
        return np.asarray(np.log(probabilities), np.float64)

    def _refined(self, probabilities: Array, keys: Tokens, counts: Tokens, places: Tokens) -> Array:
        """The distribution of the next token with one more token of context."""
        low, high = (np.searchsorted(keys, bound * self.vocabulary) for bound in (places, places + 1))
        row = np.repeat(np.arange(len(places)), high - low)
        at = np.arange(len(row)) - np.repeat(np.cumsum(high - low) - (high - low), high - low) + np.repeat(low, high - low)
        weights = self.backoff * probabilities
        weights[row, keys[at] % self.vocabulary] += counts[at]
        return np.asarray(weights / weights.sum(1, keepdims=True), np.float64)


def contexts(tokens: Tokens, length: int, vocabulary: int) -> Tokens:
    """The `length` tokens before each place as one number; the first places, which have fewer, are not to be used."""
    numbers = np.zeros(len(tokens), np.int64)
    for back in range(length, 0, -1):
        numbers[back:] = numbers[back:] * vocabulary + tokens[:-back] if back < len(tokens) else numbers[back:]
    return numbers


class Causal:
    """A torch module that maps tokens [1, length] to scores [1, length, vocabulary], each for the token after it; or to
    something that has them as `logits`, as models of Hugging Face do.

    The first token is asked for after `start`. Texts longer than `longest` are asked in pieces of that length.
    """

    def __init__(self, module: Any, *, start: int = 0, longest: int = 1024) -> None:
        self.module, self.start, self.longest = module, check.whole("start", start, least=0), check.whole("longest", longest)

    def log_probabilities(self, tokens: Tokens) -> Array:
        import torch

        inputs = torch.as_tensor(np.concatenate([[self.start], tokens[:-1]]))
        device, before = next(iter(self.module.parameters())).device, self.module.training
        self.module.eval()
        pieces = [inputs[at : at + self.longest] for at in range(0, len(inputs), self.longest)]
        try:
            with torch.no_grad():
                outputs = [self.module(piece[None].to(device)) for piece in pieces]
                parts = [getattr(each, "logits", each)[0].double().log_softmax(-1).cpu() for each in outputs]
        except IndexError:
            raise InvalidValue(
                f"The module cannot be asked about a text of {len(tokens)} tokens: one is not in its vocabulary, or it is too "
                "long for it. Give the encode that it was trained with, or a smaller longest."
            ) from None
        finally:
            self.module.train(before)
        return np.asarray(torch.cat(parts).numpy(), np.float64)

    def batch(self, rows: Tokens) -> Array:
        """The same for texts of one length, [texts, length, vocabulary]."""
        return self._together(rows, slice(None))

    def last(self, rows: Tokens) -> Array:
        """What is said of the last token of each text alone, [texts, vocabulary]."""
        return np.asarray(self._together(rows, slice(-1, None))[:, 0])

    def _together(self, rows: Tokens, part: slice) -> Array:
        import torch

        if rows.shape[1] > self.longest:
            raise InvalidValue(f"The model takes {self.longest} tokens at once; these texts have {rows.shape[1]}.")
        inputs = torch.as_tensor(np.column_stack([np.full(len(rows), self.start), rows[:, :-1]]))
        device, before = next(iter(self.module.parameters())).device, self.module.training
        self.module.eval()
        try:
            with torch.no_grad():
                outputs = self.module(inputs.to(device))
            found = getattr(outputs, "logits", outputs)[:, part].double().log_softmax(-1).cpu().numpy()
        except IndexError:
            raise InvalidValue("A token is not in the model's vocabulary. Give the encode that it was trained with.") from None
        finally:
            self.module.train(before)
        return np.asarray(found, np.float64)


def _tokens(text: ArrayLike, vocabulary: int) -> Tokens:
    tokens = np.asarray(text)
    if tokens.ndim != 1 or (tokens.size and (tokens.dtype.kind not in "iu" or tokens.min() < 0 or tokens.max() >= vocabulary)):
        raise InvalidValue(f"A text must be a flat list of tokens from 0 to {vocabulary - 1}; got something else.")
    return tokens.astype(np.int64)
