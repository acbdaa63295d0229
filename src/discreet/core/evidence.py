"""Evidence: the floor that an attack reached, kept as raw scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import check
from discreet.core.claim import game_from_json, game_to_json
from discreet.core.document import members
from discreet.core.game import Game
from discreet.core.roc import Roc
from discreet.errors import InvalidDocument, InvalidValue

DESIGNS = ("paired", "canary", "post_hoc")
UNFAIR = 1e-9  # fair coins fall as unevenly as is refused no more often than this
_JSON_TYPES: dict[str, set[type]] = {"score": {int, float}, "inside": {bool}, "run": {int}}
EARLIER_NAMES = {"student": "bayes_lira"}  # of attacks, in documents written before


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """What one attack scored, target by target.

    `score` is higher where the attack believes more that the target was inside; `inside` is the truth; `run` numbers
    the execution each score came from. `design` says how the worlds were drawn: `paired` (one target per run, inside by
    a fair coin), `canary` (many targets per run, each inside by its own fair coin), or `post_hoc` (members against a
    hold-out of a finished release: it can warn, it cannot refute). Truths that fair coins show less than once in 10^9 tries
    are refused of the first two; in a document that was written before they were, they count as `post_hoc`.

    >>> from discreet.core import Game, record
    >>> e = Evidence(game=Game(record(), {"answers"}), attack="threshold", score=[1.0, -1.0], inside=[True, False],
    ...              run=[0, 1], design="paired")
    >>> len(e)
    2
    """

    game: Game
    attack: str
    score: NDArray[np.float64]
    inside: NDArray[np.bool_]
    run: NDArray[np.int64]
    design: str

    def __init__(self, *, game: Game, attack: str, score: ArrayLike, inside: ArrayLike, run: ArrayLike, design: str) -> None:
        if not isinstance(game, Game):
            raise InvalidValue(f"game must be a Game; got {type(game).__name__}.")
        check.word("attack", attack)
        check.word("design", design, DESIGNS)
        scores, truth, runs = trials(score, inside, run)
        if design != "post_hoc" and not _fair(truth):
            raise InvalidValue(
                f"{int(truth.sum())} of {len(truth)} targets were inside, but the design {design!r} says that each was inside "
                "by its own fair coin, which comes out as unevenly less than once in 10^9 tries. Include each target with "
                "probability 1/2, or say design='post_hoc', which can warn but not refute."
            )
        for name, value in (
            ("game", game), ("attack", attack), ("score", scores), ("inside", truth), ("run", runs), ("design", design),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def randomised(self) -> bool:
        """Was each target inside by its own fair coin, as far as the design says and the truths allow?"""
        return self.design != "post_hoc" and _fair(self.inside)

    def __len__(self) -> int:
        return len(self.score)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Evidence):
            return NotImplemented
        return (self.game, self.attack, self.design) == (other.game, other.attack, other.design) and all(
            np.array_equal(a, b) for a, b in ((self.score, other.score), (self.inside, other.inside), (self.run, other.run))
        )

    def __hash__(self) -> int:
        return hash((self.game, self.attack, self.design, self.score.tobytes(), self.inside.tobytes(), self.run.tobytes()))

    def __repr__(self) -> str:
        members = int(self.inside.sum())
        return (
            f"Evidence({self.attack}, {self.design}: {members} inside, {len(self) - members} outside, "
            f"{len(np.unique(self.run))} runs)"
        )

    def roc(self) -> Roc:
        """Every threshold's false- and true-positive rate."""
        return Roc.of(self.score, self.inside)

    def tpr(self, fpr: float) -> float:
        """The true-positive rate at a false-positive rate of at most `fpr`; `discreet.audit.tpr_interval` bounds it."""
        return self.roc().at(check.open_fraction("fpr", fpr))

    def auc(self) -> float:
        """How often a member outscores a non-member, ties counting half."""
        return self.roc().area()

    def to_json(self) -> dict[str, Any]:
        return {
            "game": game_to_json(self.game),
            "attack": self.attack,
            "design": self.design,
            "score": self.score.tolist(),
            "inside": self.inside.tolist(),
            "run": self.run.tolist(),
        }

    @classmethod
    def from_json(cls, document: Any) -> Evidence:
        parts = members("evidence", document, required=("game", "attack", "design", "score", "inside", "run"))
        for name in ("score", "inside", "run"):
            if not isinstance(parts[name], list):
                raise InvalidDocument(f"{name} of the evidence must be a list; got {check.shown(parts[name])}.")
            if not set(map(type, parts[name])) <= _JSON_TYPES[name]:
                wanted = {"score": "numbers", "inside": "true and false", "run": "whole numbers"}[name]
                raise InvalidDocument(f"{name} of the evidence must hold {wanted} only.")
        try:
            check.word("design", parts["design"], DESIGNS)
            evidence = cls(
                game=game_from_json(parts["game"]), attack=_renamed(parts["attack"]), score=parts["score"],
                inside=parts["inside"], run=parts["run"], design="post_hoc",
            )  # fmt: skip
            object.__setattr__(evidence, "design", parts["design"])  # uneven coins are read, and count as none
            return evidence
        except InvalidValue as error:
            raise InvalidDocument(f"The evidence is not valid: {error}") from None


def _renamed(attack: Any) -> Any:
    """The name that an attack has now, where a document was written under its earlier one."""
    return EARLIER_NAMES.get(attack, attack) if isinstance(attack, str) else attack


def _fair(inside: NDArray[np.bool_]) -> bool:
    """May this have been decided by fair coins? Every bound takes a blind guess of "inside" to be right half of the time."""
    return _as_uneven(int(inside.sum()), len(inside)) > UNFAIR


def _as_uneven(members: int, count: int) -> float:
    """The probability that `count` fair coins fall at least as far from half: the exact two-sided binomial tail.

    >>> round(_as_uneven(1, 10) * 1024, 6), _as_uneven(5, 10)
    (22.0, 1.0)
    """
    least = min(members, count - members)
    term, total = 1.0, 0.0  # the tail, as a multiple of its largest term
    for k in range(least, -1, -1):
        total += term
        term *= k / (count - k + 1)
        if term < 1e-17 * total:
            break
    largest = math.lgamma(count + 1) - math.lgamma(least + 1) - math.lgamma(count - least + 1) - count * math.log(2.0)
    return min(1.0, 2.0 * total * math.exp(largest))


def trials(
    score: ArrayLike, inside: ArrayLike, run: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]]:
    """Three read-only columns of equal length, checked: finite scores, true or false, whole run numbers."""
    with np.errstate(over="ignore"):  # a long double past the range of a float is told below, as infinite
        scores = _column("score", score, "fiub").astype(np.float64)
    truth = _column("inside", inside, "biuf")
    if not np.isin(truth, (0, 1)).all():
        raise InvalidValue("inside must hold true or false for each target; it holds other numbers.")
    truth = truth.astype(np.bool_)
    runs = _column("run", run, "iu")
    if runs.size and int(runs.max()) > np.iinfo(np.int64).max:
        raise InvalidValue(f"run must hold numbers below 2**63; got {int(runs.max())}.")
    runs = runs.astype(np.int64)
    lengths = [len(scores), len(truth), len(runs)]
    if len(set(lengths)) != 1:
        raise InvalidValue(f"score, inside and run must have one entry per target; their lengths are {lengths}.")
    if not lengths[0]:
        raise InvalidValue("score, inside and run hold no targets; an attack must score at least one.")
    bad = int((~np.isfinite(scores)).sum())
    if bad:
        raise InvalidValue(f"score must be finite; {bad} of {len(scores)} are NaN or infinite.")
    for column in (scores, truth, runs):
        column.flags.writeable = False
    return scores, truth, runs


def _column(name: str, value: ArrayLike, kinds: str) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except OverflowError:
        raise InvalidValue(f"{name} must hold numbers that fit a float; one is too large.") from None
    except (ValueError, TypeError, RecursionError):
        raise InvalidValue(f"{name} must be a flat list of numbers; got something else.") from None
    if array.ndim != 1:
        raise InvalidValue(f"{name} must be a flat list; got {array.ndim} dimensions.")
    if array.size and array.dtype.kind not in kinds:
        raise InvalidValue(f"{name} must hold numbers or true and false; got {array.dtype}.")
    return array
