"""Exposure (Carlini et al. 2019, "The Secret Sharer"): how much likelier than all other secrets a model finds the one it saw.

Canaries are texts of a template with a random secret in it, put into the training data. The exposure of a canary is log2 of how
many secrets there are, less log2 of its rank among them by probability. It is 1 bit on average for a secret that was not seen,
and log2 of the number of secrets for one that the model says first. The same canaries audit epsilon where a coin decided
which of them were put in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.extraction.reading import Tokens, language_model, of_tokens, read
from discreet.attack.extraction.search import likeliest
from discreet.attack.text.models import utf8
from discreet.core import Evidence, Game, check, record, user
from discreet.errors import InvalidValue

__all__ = ["Exposure", "Template", "canary_evidence", "exposure"]

Floats = NDArray[np.float64]
RESAMPLES = 200


@dataclass(frozen=True)
class Template:
    """A text with one pair of braces where a secret of `length` letters of the `alphabet` stands.

    >>> Template("my code is {}.", length=4).secrets(2, seed=1)
    ['4579', '0189']
    """

    text: str
    length: int = 9
    alphabet: str = "0123456789"

    def __post_init__(self) -> None:
        check.whole("length", self.length)
        if self.text.count("{}") != 1 or self.text.startswith("{}"):
            raise InvalidValue("The text of a template must hold {} once, for the secret, and begin with something else.")
        if len(set(self.alphabet)) != len(self.alphabet) or len(self.alphabet) < 2:
            raise InvalidValue("The alphabet must be two letters or more, none of them twice.")

    @property
    def space(self) -> int:
        """How many secrets there are."""
        return int(len(self.alphabet) ** self.length)

    def fill(self, secret: str) -> str:
        return self.text.replace("{}", secret)

    def secrets(self, count: int, *, seed: int) -> list[str]:
        """Different secrets, uniform."""
        if check.whole("count", count) > self.space // 2:
            raise InvalidValue(f"{count} secrets are asked for; half of the {self.space} that there are is the most.")
        random, found = np.random.default_rng(seed), dict[str, None]()
        while len(found) < count:
            found["".join(self.alphabet[i] for i in random.integers(0, len(self.alphabet), self.length))] = None
        return list(found)


@dataclass(frozen=True)
class Exposure:
    """Of one secret: in bits, with an interval, and how it was found.

    `method` is "exact" (the rank is known), or "extrapolated" (a skew-normal distribution fitted to random secrets; the
    interval is that of the fit, by the bootstrap, and does not cover that the form may be wrong). `log_probability` is natural.
    """

    bits: float
    low: float
    high: float
    rank: int | None
    log_probability: float
    method: str


def exposure(
    model: Any, template: Template, secrets: Sequence[str], *, encode: Callable[[str], Tokens] = utf8, samples: int = 2_000,
    budget: int = 5_000, confidence: float = 0.95, seed: int = 0,
) -> list[Exposure]:  # fmt: skip
    """The exposure of each secret: exact where its rank can be found by asking about `budget` prefixes, else extrapolated.

    Every letter of the alphabet must be one token. A secret of probability q has a rank of at most 1/q, so those that are
    memorised are ranked exactly, however many secrets there are.
    """
    model = language_model(model)
    check.whole("samples", samples, least=50), check.open_fraction("confidence", confidence)
    prompt, alphabet, rows = _encoded(template, secrets, encode)
    others = template.secrets(min(samples, template.space // 2), seed=seed)
    logs = _log(model, np.concatenate([rows, _encoded(template, others, encode)[2]]), len(prompt))
    ours, spread = logs[: len(rows)], logs[len(rows) :]
    found = []
    for log in ours:
        rank = _rank(model, prompt, alphabet, template.length, float(log), budget)
        bits = math.log2(template.space)
        if rank is not None:
            exact = bits - math.log2(rank)
            found.append(Exposure(exact, exact, exact, rank, float(log), "exact"))
        else:
            found.append(_extrapolated(float(log), spread, bits, confidence, seed))
    return found


def _encoded(template: Template, secrets: Sequence[str], encode: Callable[[str], Tokens]) -> tuple[Tokens, Tokens, Tokens]:
    """The tokens of the prompt, of the letters, and of the prompt with each secret."""
    before = template.text[: template.text.index("{}")]
    prompt = np.asarray(encode(before), np.int64)
    rows = [np.asarray(encode(before + secret), np.int64) for secret in secrets]
    letters = np.array([np.asarray(encode(before + letter), np.int64)[-1] for letter in template.alphabet])
    if not secrets or any(len(secret) != template.length or not set(secret) <= set(template.alphabet) for secret in secrets):
        raise InvalidValue(f"Each secret must be {template.length} letters of the alphabet of the template, and there be one.")
    whole = all(len(row) == len(prompt) + template.length and (row[: len(prompt)] == prompt).all() for row in rows)
    if not whole or len(set(letters.tolist())) != len(template.alphabet):
        raise InvalidValue(
            "The tokenizer joins letters of the secret into one token, or with the text before it. Choose a template whose "
            "letters are tokens of their own (often with blanks between them), or a model of bytes."
        )
    return prompt, letters, np.array(rows)


def _log(model: Any, rows: Tokens, prompt: int) -> Floats:
    """The log-probability of the secret in each row."""
    parts = [of_tokens(read(model, part), part)[:, prompt:].sum(axis=1) for part in np.array_split(rows, -(-len(rows) // 256))]
    return np.concatenate(parts)


def _rank(model: Any, prompt: Tokens, alphabet: Tokens, length: int, log: float, budget: int) -> int | None:
    """One more than how many secrets are likelier, or None where that would take too many questions."""
    few = len(alphabet) ** (length - 1) * 1.2 < budget  # all prefixes can be asked about
    if not few and log < -math.log(budget) - 4:  # a secret of probability q may have 1/q before it
        return None
    found = likeliest(model, prompt, alphabet.tolist(), length, most=budget, least=log + 1e-6, budget=budget)
    return 1 + len(found.found) if found.complete else None


def _extrapolated(log: float, spread: Floats, bits: float, confidence: float, seed: int) -> Exposure:
    random, tail = np.random.default_rng(seed), (1 - confidence) / 2
    again = [_bits(log, random.choice(spread, len(spread)), bits) for _ in range(RESAMPLES)]
    low, high = np.quantile(again, [tail, 1 - tail])
    value = _bits(log, spread, bits)
    return Exposure(value, float(min(low, value)), float(max(high, value)), None, log, "extrapolated")


def _bits(log: float, spread: Floats, most: float) -> float:
    """-log2 of the share of secrets that are likelier, under the skew-normal with the moments of the sample."""
    from scipy.stats import skewnorm

    mean, deviation = float(spread.mean()), float(spread.std()) or 1e-12
    skew = float(np.clip(((spread - mean) ** 3).mean() / deviation**3, -0.99, 0.99))
    part = abs(skew) ** (2 / 3)
    delta = math.copysign(math.sqrt(math.pi / 2 * part / (part + ((4 - math.pi) / 2) ** (2 / 3))), skew)
    scale = deviation / math.sqrt(1 - 2 * delta**2 / math.pi)
    place = mean - scale * delta * math.sqrt(2 / math.pi)
    shape = delta / math.sqrt(max(1 - delta**2, 1e-12))
    return float(np.clip(-skewnorm.logsf(log, shape, place, scale) / math.log(2), 0.0, most))


def canary_evidence(found: Sequence[Exposure], inside: Sequence[bool], *, repetitions: int = 1) -> Evidence:
    """The same canaries as an audit of epsilon: `inside` says which were put into training, each by a fair coin of its own.

    A canary that was put in several times is one unit of so many rows, and is compared with claims about such a unit.
    """
    unit = record() if check.whole("repetitions", repetitions) == 1 else user("canary", rows=repetitions)
    return Evidence(
        game=Game(unit, {"scores"}), attack="canary exposure", score=[each.log_probability for each in found],
        inside=list(inside), run=np.zeros(len(found), np.int64), design="canary",
    )  # fmt: skip
