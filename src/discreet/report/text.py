"""Claims, views and events in words that a reader without Python understands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from discreet.core import Claim, Curve, Event, Unit
from discreet.core import event as events
from discreet.figures import listed as listed
from discreet.figures import short as short
from discreet.figures import up

_RELATIONS = {"add_remove": "added or removed", "replace": "replaced by another", "zero_out": "blanked out"}
_VIEWS = {
    "labels": "the predicted labels",
    "scores": "the predicted probabilities",
    "logits": "the raw outputs of the model",
    "weights": "the final weights of the model",
    "transcript": "every step of training",
    "updates": "what each participant sends",
    "aggregate": "the sum over participants",
    "table": "the released table",
    "answers": "the published answers",
    "ciphertexts": "encrypted values only",
}
_ORDER = tuple(_VIEWS)[::-1]
DESIGNS = {
    "paired": "paired: one target per run, in or out by a fair coin",
    "canary": "canaries: many targets per run, each in or out by its own fair coin",
    "post_hoc": "post hoc: members against others, of something finished; it can warn, it cannot refute",
}


def stopped(text: str) -> str:
    """A heading that runs on into a sentence.

    >>> stopped("A count"), stopped("How many?")
    ('A count.', 'How many?')
    """
    return text if text.endswith((".", "?", "!", "…")) else f"{text}."


def an(noun: str) -> str:
    """A noun with its article, by its first letter.

    >>> an("table"), an("int")
    ('a table', 'an int')
    """
    return f"{'an' if noun[:1].lower() in set('aeiou') else 'a'} {noun}"


def unit(of: Unit) -> str:
    """Who is protected: 'one user (at most 4 rows, known by patient_id)'."""
    rows = "any number of rows" if of.rows is None else "1 row" if of.rows == 1 else f"at most {of.rows:,} rows"
    return f"one {short(of.name, 60)} ({rows}{f', known by {short(of.key, 60)}' if of.key else ''})"


def relation(of: Unit) -> str:
    return _RELATIONS[of.relation]


def view(names: Iterable[str]) -> str:
    """What the adversary sees, strongest first."""
    return listed(_VIEWS[name] for name in sorted(names, key=_ORDER.index))


def mechanism(event: Event) -> str:
    """What ran.

    >>> mechanism(events.Repeat(events.Poisson(0.01, events.Gaussian(1.0)), 1000))
    '1,000 times: on a Poisson sample at rate 0.01, Gaussian noise of 1 × the sensitivity'
    """
    return short(_told(event), 400)


def _told(event: Any, depth: int = 0) -> str:
    if depth > 6:
        return "…"
    if isinstance(event, events.Sequence):
        parts = [_told(each, depth + 1) for each in event.events[:6]]
        more = f"; and {len(event.events) - 6:,} more" if len(event.events) > 6 else ""
        return "; then ".join(parts) + more
    if isinstance(event, events.Repeat):
        return f"{event.times:,} times: {_told(event.event, depth + 1)}"
    inner = f", {_told(event.event, depth + 1)}" if hasattr(event, "event") else ""
    return f"{_NAMES[event.kind](event)}{inner}"


_NAMES: dict[str, Callable[[Any], str]] = {
    "zero": lambda e: "nothing private was touched",
    "non_private": lambda e: "released without a bound",
    "pure": lambda e: f"a mechanism that is {up(e.epsilon)}-differentially private",
    "approximate": lambda e: f"a mechanism that is ({up(e.epsilon)}, {up(e.delta)})-differentially private",
    "gaussian": lambda e: f"Gaussian noise of {e.noise_multiplier:.4g} × the sensitivity",
    "laplace": lambda e: f"Laplace noise of {e.noise_multiplier:.4g} × the sensitivity",
    "discrete_gaussian": lambda e: f"exact Gaussian noise on whole numbers (σ {e.sigma:.4g}, sensitivity {e.sensitivity:,})",
    "discrete_laplace": lambda e: f"exact Laplace noise on whole numbers (scale {e.scale:.4g}, sensitivity {e.sensitivity:,})",
    "concentrated": lambda e: f"noise known by its Rényi divergences (zCDP, ρ {up(e.rho)})",
    "exponential": lambda e: f"a choice by the exponential mechanism (ε {up(e.epsilon)})",
    "noisy_max": lambda e: f"the largest of noisy scores (ε {up(e.epsilon)})",
    "objective_perturbation": lambda e: (
        f"objective perturbation (noise {e.noise_multiplier:.4g} × the largest gradient, curvature {e.curvature:.3g})"
    ),
    "student_t": lambda e: (
        f"noise of Student's t ({e.degrees:.4g} degrees of freedom, scale {e.noise_multiplier:.4g}) "
        f"on {sum(e.counts):,} numbers"
    ),
    "randomized_response": lambda e: f"randomised response among {e.categories:,} answers (ε {up(e.epsilon)})",
    "poisson": lambda e: f"on a Poisson sample at rate {e.rate:.4g}",
    "poisson_replace": lambda e: f"on a Poisson sample at rate {e.rate:.4g}, one unit replaced",
    "without_replacement": lambda e: f"on a sample of fixed size, a share {e.rate:.4g} of all",
    "random_allocation": lambda e: f"in a pass of {e.bins:,} steps, each unit in one of them",
    "shuffled": lambda e: f"{e.users:,} reports, shuffled",
    "group": lambda e: f"{e.size:,} units together",
}

_SAMPLING = {
    "poisson": "Poisson sampling, where every unit is taken on its own by a coin and who was taken is not seen",
    "poisson_replace": "Poisson sampling, where every unit is taken on its own by a coin and who was taken is not seen",
    "without_replacement": "samples of a fixed size, drawn without replacement, where who was drawn is not seen",
    "random_allocation": "that each unit takes part in one random step of every pass, and in which is not seen",
    "shuffled": "that reports are shuffled by someone who is trusted to forget their order",
}


def sampling(event: Event) -> str:
    """What the proof assumes about sampling."""
    kinds = sorted({kind for each in _walk(event) if (kind := each.kind) in _SAMPLING})
    if not kinds:
        return "no sampling: the bound holds with every unit taking part"
    return "; ".join(dict.fromkeys(_SAMPLING[kind] for kind in kinds))


def _walk(event: Any) -> Iterable[Any]:
    """The events inside an event, each kind of inside once: what is repeated is not walked through again."""
    todo, seen = [event], 0
    while todo and seen < 10_000:
        each = todo.pop()
        seen += 1
        yield each
        todo += list(getattr(each, "events", ())) or [inner for inner in [getattr(each, "event", None)] if inner is not None]


def checkpoints(seen: Iterable[str]) -> str:
    """Which parts of the release the guarantee covers: all checkpoints, or only the last."""
    names = set(seen)
    if "transcript" in names:
        return (
            "It covers every intermediate checkpoint and the final model, whoever sees all of them, "
            "and whatever is computed from them, however many questions are asked"
        )
    if "weights" in names:
        return "It covers the final weights and whatever is computed from them; intermediate checkpoints are not covered"
    if names & {"labels", "scores", "logits"}:
        return f"It covers {view(names)} and nothing else: not the weights, and not intermediate checkpoints"
    return f"It covers {view(names)}, and whatever is computed from them"


MACHINE_RAN = "the machine computed on encrypted values, and the key holder decrypted the answer"


def of_machine(told: str) -> str:
    """A guarantee for the machine that computed on ciphertexts: it is none for the answer."""
    return (
        f"For the machine that computed, and for nobody else: {told} There is no claim about what was decrypted and released: "
        "there is no ceiling on what that gives away."
    )


def guarantee(claim: Claim, curve: Curve, delta: float) -> str:
    """The whole wording of a guarantee: unit, relation, epsilon and delta, what is covered, and the sampling it assumes."""
    whose = claim.game.unit
    epsilon = curve.epsilon(delta)
    return (
        f"Differential privacy with ε = {up(epsilon)} at δ = {small(delta)}, rounded up, for {unit(whose)}, {relation(whose)}. "
        f"{checkpoints(claim.game.view)}. It assumes {sampling(claim.event)}."
    )


def small(value: float) -> str:
    """A delta that was chosen, as people write it.

    >>> small(1e-05), small(0.001)
    ('1e-5', '0.001')
    """
    return up(value, 6)
