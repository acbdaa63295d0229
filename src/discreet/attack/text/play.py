"""Was this text, or this author, in the training set of a language model?"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from discreet.attack.text import signals
from discreet.attack.text.models import LanguageModel, utf8
from discreet.core import Evidence, Game, Unit, check, record, user
from discreet.errors import InvalidValue

Array = NDArray[np.float64]
SIGNALS = ("loss", "zlib", "min_k", "min_k_plus", "reference")
UNSUMMED = 0.05  # logarithm of a sum of probabilities: narrow types and clipping leave some
Authors = tuple[Sequence[Hashable], Sequence[Hashable]]


def text_membership(
    target: LanguageModel, members: Sequence[str], nonmembers: Sequence[str], *, attacks: str | Iterable[str] = "all",
    reference: LanguageModel | None = None, authors: Authors | None = None, share: float = 0.2,
    encode: Callable[[str], NDArray[np.int64]] = utf8,
) -> dict[str, Evidence]:  # fmt: skip
    """What each attack says of texts that `target` was trained on and of texts that it was not.

    `reference` is a model of the same language that saw neither; without one, "all" leaves that attack out. With `authors`
    (whose each text is, for members and for nonmembers) the question is about people: members are then texts *by authors* who
    were inside, not necessarily the texts trained on, and an author's score is the mean over the texts known of them.

    >>> from discreet.attack.text import NGram
    >>> model = NGram([utf8("the cat sat on the mat"), utf8("a dog lay by the door")])
    >>> found = text_membership(model, ["the cat sat on the mat", "a dog lay by the door"], ["birds fly", "fish swim"])
    >>> found["loss"].auc()
    1.0
    """
    for model in (target, reference):
        if model is not None and not isinstance(model, LanguageModel):
            raise InvalidValue(
                f"A {type(model).__name__} does not say log_probabilities(tokens); wrap a torch module: Causal(…)."
            )
    chosen = _chosen(attacks, reference)
    inside, outside = _texts("members", members), _texts("nonmembers", nonmembers)
    if authors is None and (shared := len(set(inside) & set(outside))):
        raise InvalidValue(f"{shared} of {len(outside)} nonmembers are members too. Leave them out of nonmembers.")
    check.open_fraction("share", share)
    scores = _scores(target, reference, [*inside, *outside], chosen, share, encode)
    truth = np.arange(len(inside) + len(outside)) < len(inside)
    if authors is None:
        return {name: _evidence(name, score, truth, record()) for name, score in scores.items()}
    names = _named(authors, len(inside), len(outside))
    unit = user("author", rows=None)
    return {name: _evidence(f"{name}, by author", *by_author(score, truth, names), unit) for name, score in scores.items()}


def by_author(
    score: Array, inside: NDArray[np.bool_], authors: Sequence[Hashable]
) -> tuple[Array, NDArray[np.bool_]]:  # fmt: skip
    """One score for each author, the mean over their texts, and whether the author was inside.

    >>> by_author(np.array([1.0, 3.0, 0.0]), np.array([True, True, False]), ["ann", "ann", "bob"])
    (array([2., 0.]), array([ True, False]))
    """
    places = {name: place for place, name in enumerate(dict.fromkeys(authors))}
    number = np.array([places[name] for name in authors])
    count = np.bincount(number)
    held = np.bincount(number, inside)
    if ((held > 0) & (held < count)).any():
        raise InvalidValue("An author has texts among members and among nonmembers: whether they were inside has no answer.")
    return np.bincount(number, score) / count, held > 0


def _chosen(attacks: str | Iterable[str], reference: LanguageModel | None) -> list[str]:
    if attacks == "all":
        return [name for name in SIGNALS if name != "reference" or reference is not None]
    names = [check.word("attacks", name, SIGNALS) for name in ([attacks] if isinstance(attacks, str) else attacks)]
    if "reference" in names and reference is None:
        raise InvalidValue("The attack 'reference' needs a model that saw none of the texts: reference=….")
    return names


def _texts(name: str, texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str) or not len(texts) or not all(isinstance(text, str) and text for text in texts):
        raise InvalidValue(f"{name} must be a list of texts, none of them empty, and at least one.")
    return list(texts)


def _named(authors: Authors, inside: int, outside: int) -> list[Hashable]:
    if len(authors) != 2 or (len(authors[0]), len(authors[1])) != (inside, outside):
        raise InvalidValue(f"authors must name who wrote each text: {inside} for the members and {outside} for the nonmembers.")
    return [*authors[0], *authors[1]]


def _scores(
    target: LanguageModel, reference: LanguageModel | None, texts: list[str], chosen: list[str], share: float,
    encode: Callable[[str], NDArray[np.int64]],
) -> dict[str, Array]:  # fmt: skip
    found: dict[str, list[float]] = {name: [] for name in chosen}
    for text in texts:
        tokens = np.asarray(encode(text), np.int64)
        if not len(tokens):
            raise InvalidValue("encode gives no token for a text; leave texts out that have none.")
        law = _asked(target, tokens)
        other = _asked(reference, tokens) if reference is not None and "reference" in found else law
        for name, scores in found.items():
            scores.append(_signal(name, law, other, tokens, text, share))
    return {name: np.array(scores) for name, scores in found.items()}


def _signal(name: str, law: Array, other: Array, tokens: NDArray[np.int64], text: str, share: float) -> float:
    match name:
        case "loss":
            return signals.loss(law, tokens)
        case "zlib":
            return signals.zlib_ratio(law, tokens, text)
        case "min_k":
            return signals.min_k(law, tokens, share)
        case "min_k_plus":
            return signals.min_k_plus(law, tokens, share)
    return signals.reference_ratio(law, other, tokens)


def _asked(model: LanguageModel, tokens: NDArray[np.int64]) -> Array:
    law = np.asarray(model.log_probabilities(tokens), np.float64)
    if law.ndim != 2 or len(law) != len(tokens) or (len(tokens) and int(tokens.max()) >= law.shape[1]):
        raise InvalidValue(f"The model must give log-probabilities [{len(tokens)}, vocabulary]; got shape {law.shape}.")
    if not np.isfinite(law).all():
        raise InvalidValue("The model gives NaN or infinite log-probabilities; clip probabilities of 0.")
    off = float(np.abs(np.logaddexp.reduce(law, 1)).max())
    if off > UNSUMMED:
        raise InvalidValue(
            f"The model's log-probabilities of one place sum to exp({off:.3g}) or its inverse and not to 1: give logarithms of "
            "probabilities (log_softmax of logits) over the whole vocabulary."
        )
    return law


def _evidence(name: str, score: Array, inside: NDArray[np.bool_], unit: Unit) -> Evidence:
    return Evidence(
        game=Game(unit, {"scores"}), attack=f"text {name}", score=score, inside=inside,
        run=np.zeros(len(score), np.int64), design="post_hoc",
    )  # fmt: skip
