"""Was this text, or this author, in the training set of a language model?"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from discreet.attack.text.attacks import ATTACKS, MinK, MinKPlus, ReferencedObservation, TextAttack, TextObservation
from discreet.attack.text.models import LanguageModel, utf8
from discreet.core import Evidence, Game, Unit, check, record, user
from discreet.errors import InvalidValue

Array = NDArray[np.float64]
Authors = tuple[Sequence[Hashable], Sequence[Hashable]]


def text_membership(
    target: LanguageModel, members: Sequence[str], nonmembers: Sequence[str], *,
    attacks: str | Iterable[str | TextAttack] = "all", reference: LanguageModel | None = None,
    authors: Authors | None = None, share: float = 0.2, encode: Callable[[str], NDArray[np.int64]] = utf8,
) -> dict[str, Evidence]:  # fmt: skip
    """What each attack says of texts that `target` was trained on and of texts that it was not.

    `reference` is a model of the same language that saw neither; without one, "all" leaves that attack out. With `authors`
    (whose each text is, for members and for nonmembers) the question is about people: members are then texts *by authors* who
    were inside, not necessarily the texts trained on, and an author's score is the mean over the texts known of them.

    >>> from discreet.attack.text import NGram
    >>> model = NGram([utf8("the cat sat on the mat"), utf8("a dog lay by the door")])
    >>> result = text_membership(model, ["the cat sat on the mat", "a dog lay by the door"], ["birds fly", "fish swim"])
    >>> result["loss"].auc()
    1.0
    """
    for model in (target, reference):
        if model is not None and not isinstance(model, LanguageModel):
            raise InvalidValue(
                f"A {type(model).__name__} does not say log_probabilities(tokens); wrap a torch module: Causal(…)."
            )
    chosen = _chosen(attacks, reference, check.open_fraction("share", share))
    inside, outside = _texts("members", members), _texts("nonmembers", nonmembers)
    if authors is None and (shared := len(set(inside) & set(outside))):
        raise InvalidValue(f"{shared} of {len(outside)} nonmembers are members too. Leave them out of nonmembers.")
    texts = [*inside, *outside]
    seen = TextObservation(target, texts, encode)
    if reference is not None and any(attack.needs.reference for attack in chosen):
        seen = ReferencedObservation(target=target, texts=texts, encode=encode, reference=reference)
    scores = _scores(seen, chosen)
    truth = np.arange(len(inside) + len(outside)) < len(inside)
    if authors is None:
        return {attack.name: _evidence(attack, attack.name, score, truth, record()) for attack, score in zip(chosen, scores)}
    names = _named(authors, len(inside), len(outside))
    unit = user("author", rows=None)
    return {
        attack.name: _evidence(attack, f"{attack.name}, by author", *by_author(score, truth, names), unit)
        for attack, score in zip(chosen, scores)
    }


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


def _chosen(attacks: str | Iterable[str | TextAttack], reference: LanguageModel | None, share: float) -> list[TextAttack]:
    known = {
        attack.name: replace(attack, share=share) if isinstance(attack, (MinK, MinKPlus)) else attack for attack in ATTACKS
    }
    if attacks == "all":
        return [attack for attack in known.values() if reference is not None or not attack.needs.reference]
    chosen = [
        known[check.word("attacks", attack, tuple(known))] if isinstance(attack, str) else attack
        for attack in ([attacks] if isinstance(attacks, str) else attacks)
    ]
    needing = [attack.name for attack in chosen if attack.needs.reference]
    if needing and reference is None:
        raise InvalidValue(f"The attack {needing[0]!r} needs a model that saw none of the texts: reference=….")
    return chosen


def _texts(name: str, texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str) or not len(texts) or not all(isinstance(text, str) and text for text in texts):
        raise InvalidValue(f"{name} must be a list of texts, none of them empty, and at least one.")
    return list(texts)


def _named(authors: Authors, inside: int, outside: int) -> list[Hashable]:
    if len(authors) != 2 or (len(authors[0]), len(authors[1])) != (inside, outside):
        raise InvalidValue(f"authors must name who wrote each text: {inside} for the members and {outside} for the nonmembers.")
    return [*authors[0], *authors[1]]


def _scores(seen: TextObservation, chosen: list[TextAttack]) -> list[Array]:
    """The scores of every attack. Each text is read once for all of them: a reading is large, and takes a pass of the model."""
    table = [[attack.signal(reading) for attack in chosen] for reading in map(seen.read, range(len(seen.texts)))]
    return list(np.array(table, np.float64).reshape(len(seen.texts), len(chosen)).T)


def _evidence(attack: TextAttack, name: str, score: Array, inside: NDArray[np.bool_], unit: Unit) -> Evidence:
    return Evidence(
        game=Game(unit, attack.view), attack=f"text {name}", score=score, inside=inside,
        run=np.zeros(len(score), np.int64), design="post_hoc",
    )  # fmt: skip
