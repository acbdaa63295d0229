"""Unprompted extraction (Carlini et al. 2021): samples of the model, ranked by how likely they are memorised."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.extraction.reading import Sampling, Tokens, language_model, next_token, of_tokens, read
from discreet.attack.extraction.suffixes import drawn
from discreet.attack.text.models import utf8
from discreet.core import check
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Generation:
    """A generated text: its score (higher: more likely memorised), and whether a run of its tokens is in corpus and control."""

    tokens: tuple[int, ...]
    score: float
    in_corpus: bool
    in_control: bool


def generate_and_rank(
    model: Any, corpus: Sequence[str], control: Sequence[str], *, count: int = 200, length: int = 64, run: int = 24,
    start: Sequence[int] = (), reference: Any = None, sampling: Sampling | None = None,
    encode: Callable[[str], Tokens] = utf8, seed: int = 0,
) -> list[Generation]:  # fmt: skip
    """Texts that the model makes by itself, the most memorised first, each looked up in the corpus and in the control.

    The score is the log-probability, less that of the `reference` model, or per byte that zlib needs. A text counts as found
    where `run` tokens in a row are those of a text. What is found in the control is common, not memorised.
    """
    model = language_model(model)
    check.whole("count", count), check.whole("length", length, least=2), check.whole("run", run)
    if run > length:
        raise InvalidValue(f"run is {run} tokens, but texts of {length} are made.")
    random, sampling = np.random.default_rng(check.whole("seed", seed, least=0)), sampling or Sampling(top_k=40)
    known = [_runs([np.asarray(encode(text), np.int64) for text in texts], run) for texts in (corpus, control)]
    rows = np.tile(np.asarray(start, np.int64), (count, 1)).reshape(count, len(start))
    while rows.shape[1] < len(start) + length:
        rows = np.column_stack([rows, drawn(sampling.log_probabilities(next_token(model, rows)), random)])
    scores = _scores(model, reference, rows)
    made = []
    for place in np.argsort(-scores):
        own = _runs([rows[place, len(start) :]], run)
        made.append(Generation(tuple(rows[place].tolist()), float(scores[place]), bool(own & known[0]), bool(own & known[1])))
    return made


def _scores(model: Any, reference: Any, rows: Tokens) -> Floats:
    ours = of_tokens(read(model, rows), rows).mean(axis=1)
    if reference is not None:
        return np.asarray(ours - of_tokens(read(language_model(reference), rows), rows).mean(axis=1))
    return np.asarray([log / len(zlib.compress(row.astype(np.int32).tobytes())) for log, row in zip(ours, rows)])


def _runs(texts: Sequence[Tokens], length: int) -> set[bytes]:
    return {text[at : at + length].tobytes() for text in texts for at in range(len(text) - length + 1)}
