"""(n, p)-discoverable extraction (Hayes et al. 2025): would n samples after a prompt give the text's own continuation?

A sample is the continuation with probability p_z, a product of probabilities that the model states; so at least one of n is
with probability 1 - (1 - p_z)^n, and nothing need be sampled. The same is done with texts that the model never saw: what it
would say anyway counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.extraction.reading import Sampling, Tokens, language_model, next_token, of_tokens, read
from discreet.attack.tables.risks import Risk, compared
from discreet.attack.text.models import utf8
from discreet.core import Evidence, Game, check, record
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
TRIES = (1, 10, 100, 1_000, 10_000)


@dataclass(frozen=True)
class Extraction:
    """What `extraction` found: for each number of samples, how many texts of the corpus and of the control come out.

    `log_probability` of the continuation of each text, the corpus first; `near` the same for continuations that differ in at
    most one token (a lower bound). `risks` compares corpus and control; `evidence` is the game.
    """

    risks: dict[int, Risk]
    log_probability: Floats
    near: Floats
    members: int
    prompt: int
    suffix: int
    p: float
    evidence: Evidence
    texts: tuple[str, ...] = field(repr=False, default=())

    def extracted(self, samples: int) -> list[str]:
        """The texts of the corpus that come out within so many samples with probability p, likeliest first. Private."""
        order = np.argsort(-self.log_probability[: self.members])
        chance = discoverable(self.log_probability[order], samples)
        return [self.texts[place] for place, each in zip(order, chance) if each >= self.p]

    def to_json(self) -> list[dict[str, Any]]:
        """The fact `extraction` of a release: numbers, no text."""
        near = [int((discoverable(self.near[: self.members], n) >= self.p).sum()) for n in self.risks]
        return [
            {"samples": n, "p": self.p, "prompt": self.prompt, "suffix": self.suffix, "near": many / self.members,
             **risk.to_json()}
            for (n, risk), many in zip(self.risks.items(), near)
        ]  # fmt: skip


def discoverable(log_probability: Any, samples: int) -> Floats:
    """How likely at least one of so many samples is the continuation.

    >>> discoverable([np.log(0.5)], 2).round(4).tolist()
    [0.75]
    """
    logs = np.minimum(np.asarray(log_probability, np.float64), 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(samples * np.log1p(-np.exp(logs))))


def extraction(
    model: Any, corpus: Sequence[str], control: Sequence[str], *, prompt: int = 32, suffix: int = 32, p: float = 0.5,
    tries: Sequence[int] = TRIES, sampling: Sampling | None = None, encode: Callable[[str], Tokens] = utf8, near: bool = True,
    confidence: float = 0.95,
) -> Extraction:  # fmt: skip
    """Which texts of the corpus come out of the model, beside texts of the same kind that it was not trained on.

    Each text's first `prompt` tokens are the prompt and the next `suffix` tokens what should not come out; shorter texts are
    left out, and texts that begin alike count once.
    """
    model = language_model(model)
    check.whole("prompt", prompt), check.whole("suffix", suffix), check.open_fraction("p", p)
    sampling = sampling or Sampling()
    kept = [_openings(texts, encode, prompt + suffix) for texts in (corpus, control)]
    for name, texts in zip(("corpus", "control"), kept):
        if not texts:
            raise InvalidValue(f"No text of the {name} has {prompt} + {suffix} tokens; make the prompt or the suffix shorter.")
    if shared := len(kept[0].keys() & kept[1].keys()):
        raise InvalidValue(
            f"{shared} texts of the control begin with the same {prompt + suffix} tokens as texts that the model was trained "
            "on. Leave them out of the control."
        )
    rows = np.array([*kept[0], *kept[1]], np.int64)
    exact, about = _of_suffixes(model, rows, prompt, sampling, near)
    risks = {}
    for n in sorted({check.whole("tries", each) for each in tries}):
        out = discoverable(exact, n) >= p
        risks[n] = compared("extraction", out[: len(kept[0])], out[len(kept[0]) :], 0.0, confidence)
    seen = Evidence(
        game=Game(record(), {"scores"}), attack="text extraction", score=np.maximum(exact, -1e6),
        inside=np.arange(len(rows)) < len(kept[0]), run=np.zeros(len(rows), np.int64), design="post_hoc",
    )  # fmt: skip
    return Extraction(risks, exact, about, len(kept[0]), prompt, suffix, p, seen, tuple(kept[0].values()))


def _openings(texts: Sequence[str], encode: Callable[[str], Tokens], length: int) -> dict[tuple[int, ...], str]:
    """The first tokens of each text, with the first text that begins so."""
    found: dict[tuple[int, ...], str] = {}
    for text in texts:
        tokens = encode(text)
        if len(tokens) >= length:
            found.setdefault(tuple(tokens[:length].tolist()), text)
    return found


def _of_suffixes(model: Any, rows: Tokens, prompt: int, sampling: Sampling, near: bool) -> tuple[Floats, Floats]:
    """The log-probability of each continuation, and a lower bound of that of all that differ in at most one token."""
    exact, about = np.zeros(len(rows)), np.zeros(len(rows))
    for place, row in enumerate(rows):
        logs = sampling.log_probabilities(read(model, row[None])[0])
        each = logs[np.arange(len(row)), row][prompt:]
        exact[place] = about[place] = each.sum()
        if near:
            others = _changed(model, row, prompt, logs, sampling)
            about[place] = np.logaddexp.reduce([exact[place], *others])
    return exact, about


def _changed(model: Any, row: Tokens, prompt: int, logs: Floats, sampling: Sampling) -> Floats:
    """Continuations with one token changed to the likeliest other one, each with its own log-probability."""
    places = np.arange(prompt, len(row))
    other = logs[places].copy()
    other[np.arange(len(places)), row[places]] = -np.inf
    changed = np.repeat(row[None], len(places), axis=0)
    changed[np.arange(len(places)), places] = other.argmax(axis=1)
    found = sampling.log_probabilities(read(model, changed))
    return np.asarray(of_tokens(found, changed)[:, prompt:].sum(axis=1))


def sampled(
    model: Any, text: str, samples: int, *, prompt: int, suffix: int, sampling: Sampling | None = None,
    encode: Callable[[str], Tokens] = utf8, seed: int = 0,
) -> int:  # fmt: skip
    """How many of so many samples are the continuation: the brute way, to check `extraction` by."""
    row, random = np.asarray(encode(text), np.int64), np.random.default_rng(check.whole("seed", seed, least=0))
    sampling, hits = sampling or Sampling(), 0
    for at in range(0, check.whole("samples", samples), 512):
        rows = np.repeat(row[None, :prompt], min(512, samples - at), axis=0)
        for _ in range(suffix):
            rows = np.column_stack([rows, drawn(sampling.log_probabilities(next_token(model, rows)), random)])
        hits += int((rows[:, prompt:] == row[prompt : prompt + suffix]).all(axis=1).sum())
    return hits


def drawn(logs: Floats, random: np.random.Generator) -> Tokens:
    """A token for each row, by its probability (the largest of log-probabilities with Gumbel noise)."""
    return np.asarray((logs + random.gumbel(size=logs.shape)).argmax(axis=1), np.int64)
