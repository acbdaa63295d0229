"""Conformance suites for strangers' mechanisms and attacks: does it keep to the protocol, and is its claim true?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from discreet.audit.bounds import epsilon_lower_bound
from discreet.audit.columns import Outputs
from discreet.audit.distinguish import learn_flat
from discreet.audit.flatten import Flat, Raised, flatten
from discreet.audit.floats import Hints
from discreet.audit.judge import verdict
from discreet.audit.play import audit, scored, stays
from discreet.audit.worlds import Pair, checked
from discreet.core import Attack, Claim, Evidence, Game, Mechanism, Verdict, Worlds, check
from discreet.core.game import VIEWS
from discreet.errors import ClaimRefuted, InvalidValue
from discreet.figures import down, up

Neighbours = Iterable[tuple[Any, Any]]


def check_mechanism(
    mechanism: Mechanism[Any, Any],
    neighbours: Neighbours | None = None,
    *,
    runs: int = 4000,
    confidence: float = 0.999999,
    seed: int | None = None,
) -> list[tuple[Evidence, Verdict]]:
    """Audit every claim of a mechanism on every neighbouring pair; raise ClaimRefuted where one is false.

    `neighbours` yields pairs (data with the unit, data without it); without it the mechanism's own `neighbours()` is
    used. Choose worst cases: a claim is only as tested as its pairs. A distinguisher learns on half of the `runs` and is
    judged on the other half. It takes outputs apart, whatever they are nested in; an error that a run raises is its
    output; a part that cannot be looked into makes the verdict inconclusive. A true claim is called false with
    probability at most 1 - confidence, all pairs and claims together. `seed` makes the worlds repeatable, not the mechanism.

    >>> from discreet.core import record
    >>> from discreet.noise import LaplaceNoise
    >>> found = check_mechanism(LaplaceNoise(scale=1, sensitivity=1, unit=record()), [(1, 0)], runs=400)
    >>> found[0][1].outcome
    'holds'
    """
    runs = check.whole("runs", runs, least=8)
    check.open_fraction("confidence", confidence)
    claims, pairs = _claims(mechanism), _pairs(mechanism, neighbours)
    share = 1.0 - (1.0 - confidence) / (len(pairs) * len(claims))
    found: list[tuple[Evidence, Verdict]] = []
    for number, (with_unit, without_unit) in enumerate(pairs):
        worlds = Pair(with_unit, without_unit, seed=None if seed is None else seed + number)
        for game in dict.fromkeys(claim.game for claim in claims):
            mine = [claim for claim in claims if claim.game == game]
            hints = Hints.of((with_unit, without_unit), [claim.event for claim in mine])
            trial = distinguish(mechanism, worlds, game, runs=runs, alpha=1.0 - share, hints=hints)
            for claim in mine:
                judged = trial.judged(verdict(claim, trial.evidence, confidence=share))
                found.append((trial.evidence, judged))
                _refuse(mechanism, claim, found[-1], number, confidence)
            if trial.error is not None:
                with stays():
                    raise trial.error
    if _claims(mechanism) != claims:
        raise InvalidValue(f"{_named(mechanism)}.claims() changed while it ran; a claim must not depend on the data.")
    return found


@dataclass(frozen=True, slots=True)
class Trial:
    """What the distinguisher scored, what of the outputs it could not look at, and the error if every run raised one."""

    evidence: Evidence
    unseen: dict[str, str]
    error: BaseException | None

    def judged(self, verdict: Verdict) -> Verdict:
        """A verdict never holds on what nobody looked at."""
        if verdict.outcome != "holds" or not self.unseen:
            return verdict
        parts = [f"{name} ({why})" for name, why in islice(self.unseen.items(), 3)]
        more = f" and {len(self.unseen) - 3} more parts" if len(self.unseen) > 3 else ""
        reason = f"not all of the output could be looked at: {', '.join(parts)}{more}. In the rest, {verdict.reason}"
        return replace(verdict, outcome="inconclusive", reason=reason)


def distinguish(
    mechanism: Mechanism[Any, Any], worlds: Worlds[Any], game: Game, *, runs: int, alpha: float, hints: Hints
) -> Trial:  # fmt: skip
    """Evidence from a distinguisher that learned on the first half of the runs and scores the second.

    A run that raises an error has an output too: the error.
    """
    flats: list[Flat] = []
    truths: list[bool] = []
    errors: list[BaseException] = []
    for run in range(runs):
        data, _, inside = checked(worlds.draw(run))
        try:
            output = mechanism.run(data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: it would end the check without a verdict
            output = Raised(error)
            errors.append(error)
        flats.append(flatten(output))  # at once: the mechanism may use the same object again
        truths.append(bool(inside[0]))
    half, truth = runs // 2, np.array(truths)
    learned, judged = Outputs(flats[:half]), Outputs(flats[half:])
    witness = learn_flat(learned, truth[:half], view=game.view, delta=0.0, alpha=alpha, hints=hints)
    evidence = Evidence(
        game=game, attack=witness.name, score=witness.score_flat(judged), inside=truth[half:],
        run=np.arange(half, runs), design="paired",
    )  # fmt: skip
    return Trial(evidence, Outputs(flats).unseen, errors[0] if len(errors) == runs else None)


def check_attack(
    attack: Attack[Any],
    mechanism: Mechanism[Any, Any],
    worlds: Worlds[Any],
    *,
    runs: int = 64,
    confidence: float = 0.999999,
) -> Evidence:
    """Check an attack against the protocol, and that it claims nothing where there is nothing to find.

    It must name itself and a view that the mechanism's claims cover, give one finite score per target, and the same
    scores for the same release. Then it plays `runs` rounds on releases from *other* worlds than those whose targets it is
    asked about: it should find nothing, and if it does it reads the truth from elsewhere than its view. A sound attack
    fails with probability at most 1 - confidence. Returns the evidence of an honest audit.

    >>> from discreet.audit import Pair, Readout
    >>> from discreet.core import record
    >>> from discreet.noise import LaplaceNoise
    >>> len(check_attack(Readout(), LaplaceNoise(scale=1, sensitivity=1, unit=record()), Pair(1, 0)))
    64
    """
    runs = check.whole("runs", runs)
    check.open_fraction("confidence", confidence)
    _declared(attack)
    claims = _claims(mechanism)
    if not any(Game(claim.game.unit, attack.view).within(claim.game) for claim in claims):
        raise InvalidValue(
            f"{attack.name} sees {', '.join(sorted(attack.view))}, which no claim of {_named(mechanism)} covers; "
            "it can only be compared with claims about what it sees."
        )
    with stays():
        data, targets, _ = checked(worlds.draw(0))
        seen = mechanism.run(data)
    if not np.array_equal(scored(attack, seen, targets), scored(attack, seen, targets)):
        raise InvalidValue(f"{attack.name} gives different scores for the same release; fix its seed.")
    _finds_nothing(attack, mechanism, worlds, runs, confidence)
    return audit(mechanism, attack, worlds, runs=runs, unit=claims[0].game.unit)


def _finds_nothing(
    attack: Attack[Any], mechanism: Mechanism[Any, Any], worlds: Worlds[Any], runs: int, confidence: float
) -> None:
    """Scores on releases that know nothing of the targets asked about."""
    columns = []
    for run in range(runs):
        with stays():
            data, _, _ = checked(worlds.draw(runs + run))
            _, targets, inside = checked(worlds.draw(run))
            seen = mechanism.run(data)
        columns.append((scored(attack, seen, targets), inside, np.full(len(inside), run)))
    score, inside, number = (np.concatenate(column) for column in zip(*columns))
    floor = epsilon_lower_bound(score, inside, number, 0.0, confidence)
    if floor > 0:
        raise InvalidValue(
            f"{attack.name} shows epsilon >= {down(floor)} on releases that know nothing of its targets; "
            "it must be reading the truth from the targets or from an earlier run."
        )


def _claims(mechanism: Any) -> tuple[Claim, ...]:
    if not isinstance(mechanism, Mechanism):
        raise InvalidValue(f"A mechanism has claims() and run(data); {_named(mechanism)} lacks one of them.")
    with stays():
        claims = mechanism.claims()
    if not isinstance(claims, tuple) or not claims or not all(isinstance(claim, Claim) for claim in claims):
        raise InvalidValue(
            f"{_named(mechanism)}.claims() must return a tuple of at least one Claim; got {type(claims).__name__}."
        )
    return claims


def _pairs(mechanism: Any, neighbours: Neighbours | None) -> list[tuple[Any, Any]]:
    if neighbours is None and not hasattr(mechanism, "neighbours"):
        raise InvalidValue(
            f"{_named(mechanism)} names no neighbouring data sets; pass neighbours=[(with_unit, without_unit)], "
            "or give it a neighbours() method."
        )
    with stays():
        given = mechanism.neighbours() if neighbours is None else neighbours
        pairs = list(given) if isinstance(given, Iterable) else []
    if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise InvalidValue("neighbours must yield pairs (data with the unit, data without it), at least one.")
    return pairs


def _refuse(mechanism: Any, claim: Claim, found: tuple[Evidence, Verdict], number: int, confidence: float) -> None:
    evidence, judged = found
    if judged.outcome == "refuted":
        raise ClaimRefuted(
            f"{_named(mechanism)} claims epsilon {up(judged.ceiling)} at delta {judged.delta:.2g} ({claim.event}), but on "
            f"neighbouring pair {number} {evidence.attack} shows at least {down(judged.floor)} (confidence {confidence:.6g}, "
            f"{len(evidence)} runs). Look at what that feature of the output reveals, or claim more."
        )


def _declared(attack: Any) -> None:
    if not isinstance(attack, Attack):
        raise InvalidValue(f"An attack has name, view and score(seen, targets); {_named(attack)} lacks one of them.")
    check.word("attack name", attack.name)
    if not isinstance(attack.view, frozenset) or not attack.view or not attack.view <= set(VIEWS):
        raise InvalidValue(f"view of {attack.name} must be a frozenset of {', '.join(VIEWS)}; got {attack.view!r}.")


def _named(thing: Any) -> str:
    return type(thing).__name__
