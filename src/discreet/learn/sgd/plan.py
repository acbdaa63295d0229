"""The plan of a run, fixed before a row is read, and the run's state; a checkpoint stores both with model and optimizer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from discreet.accounting import calibrate, curve
from discreet.core import Claim, Game, Unit, check
from discreet.core import event as events
from discreet.core.adjacency import replaced
from discreet.core.event import Event
from discreet.errors import InvalidValue
from discreet.learn.sgd.options import StudentNoise, Word

COUNT_SHARE = 0.02  # of epsilon, for a noisy count of the units where no divisor is given
COUNT_EPSILON = 0.02  # the same where the noise is given instead of epsilon
FEWEST, MOST = 0.1, 1e6  # how often a unit may be expected to take part


class Sampler(Protocol):
    """Draws the units of a step and states the event of all steps."""

    @property
    def rate(self) -> float: ...
    def draw(self, key: bytes, step: int, units: int) -> Any: ...
    def event(self, noise: Event, steps: int) -> Event: ...
    def rounds(self, start: int, stop: int) -> int: ...
    def repeated(self, noise: Event, rounds: int) -> Event: ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sampling, clipping, noise and number of steps of a run, with the event they make."""

    unit: Unit
    sampler: Sampler
    steps: int
    noise_multiplier: float
    clip_norm: float
    delta: float
    count_scale: float | None  # noise of the count of units that gives the divisor; None: the divisor is public
    fixed_point: bool = False  # whether sums are whole numbers (see fixed_point.py)
    target: float | None = None  # the epsilon that the noise was calibrated to; None: the noise was given
    student: StudentNoise | None = None  # instead of Gaussian noise
    word: Word | None = None  # the numbers of a code word, where gradients are encoded (see clipping.Encoded)
    trusted: tuple[str, ...] = ()  # what the way to the gradients leaves to trust (see path.py)

    def asked(self) -> tuple[float, float]:
        """The (epsilon, delta) that the run was asked for: in these terms a ledger shows it."""
        return (self.epsilon() if self.target is None else self.target), self.delta

    def event(self, steps: int | None = None) -> Event:
        """The event of so many steps, by default of all."""
        return self.of_rounds(self.sampler.rounds(0, self.steps if steps is None else steps))

    def of_rounds(self, rounds: int) -> Event:
        """The event of so many rounds of the sampler, including steps repeated with fresh noise."""
        parts: list[Event] = [] if self.count_scale is None else [events.DiscreteLaplace(self.count_scale)]
        if rounds:
            parts.append(self.again(rounds))
        return events.Zero() if not parts else parts[0] if len(parts) == 1 else events.Sequence(parts)

    def again(self, rounds: int) -> Event:
        """The event of so many rounds alone, which is charged in addition to the plan where steps are repeated."""
        sampled = self.sampler.repeated(self.noise(), rounds)
        return replaced(sampled) if self.unit.relation == "replace" else sampled

    def noise(self) -> Event:
        """The event of one step for its participants."""
        if self.student is None:
            return events.Gaussian(self.noise_multiplier)
        return self.student.event(self.noise_multiplier, self.word)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise over the clip norm."""
        return self.noise_multiplier * (1.0 if self.student is None else self.student.deviation)

    def claim(self, extra: int = 0) -> Claim:
        """The claim of the whole plan, and of `extra` rounds that were taken again."""
        first = _IN_WHOLE_NUMBERS if self.fixed_point else _IN_FLOATS
        assumptions = (first, *ASSUMPTIONS, *self.trusted, *((INTERRUPTED,) if extra else ()))
        event = self.of_rounds(self.sampler.rounds(0, self.steps) + extra) if extra else self.event()
        return Claim(game=Game(self.unit, {"transcript"}), event=event, assumptions=assumptions)

    def epsilon(self, steps: int | None = None) -> float:
        return float(curve(self.event(steps)).epsilon(self.delta))

    def spending(self, extra: int = 0, points: int = 16) -> list[list[float]]:
        """Epsilon against steps, for a report: pairs of a number of steps and what it costs."""
        steps = sorted({max(1, self.steps * k // points) for k in range(1, points + 1)})
        last = [[self.steps + extra, float(curve(self.claim(extra).event).epsilon(self.delta))]] if extra else []
        return [[0, 0.0], *([step, self.epsilon(step)] for step in steps), *last]

    def document(self) -> dict[str, Any]:
        """The values that a checkpoint must match to be resumed."""
        document = {"claim": replace(self, trusted=()).claim().to_json(), "clip_norm": self.clip_norm, "steps": self.steps}
        return document if self.student is None else {**document, "degrees": self.student.degrees}


_IN_FLOATS = "Noise and sums are floating-point numbers; the bound is that of real ones."
_IN_WHOLE_NUMBERS = "A unit's gradient, which is computed by itself, comes out the same whatever other units there are."
ASSUMPTIONS = (
    "Batches, losses, gradients before noise, and the key of the run were shown to nobody.",
    "Hyper-parameters, architecture and preprocessing do not depend on this data, or their choice was paid for separately.",
)
INTERRUPTED = "When the run was interrupted, which made it repeat steps with fresh noise, did not depend on private values."


def planned(
    *, unit: Unit, sampler: Sampler, rate: float, steps: int, clip_norm: float, delta: float,
    epsilon: float | None, noise_multiplier: float | None, counted: bool, fixed_point: bool = False,
    student: StudentNoise | None = None, word: Word | None = None,
) -> Plan:  # fmt: skip
    """The plan for a budget (the least noise that keeps it) or for given noise."""
    if (epsilon is None) == (noise_multiplier is None):
        stated = "both" if epsilon is not None else "neither"
        raise InvalidValue(f"Say either epsilon or noise_multiplier, which decides the other; got {stated}.")
    steps, delta = check.whole("steps", steps), check.open_fraction("delta", delta)
    expected = rate * steps
    if not FEWEST <= expected <= MOST:
        raise InvalidValue(
            f"rate {rate:g} x steps {steps} takes each unit {expected:g} times on average, which cannot be meant. "
            "rate is the share of all units in one batch (batch size / number of units), steps the number of batches."
        )
    scale = None
    if counted:
        scale = math.ceil(1 / (COUNT_EPSILON if epsilon is None else COUNT_SHARE * check.positive("epsilon", epsilon)))

    def plan(noise: float) -> Plan:
        return Plan(
            unit=unit, sampler=sampler, steps=steps, noise_multiplier=noise, clip_norm=check.positive("clip_norm", clip_norm),
            delta=delta, count_scale=scale, fixed_point=fixed_point, target=epsilon,
            student=student, word=word,
        )  # fmt: skip

    def near() -> float | None:
        """A first guess of the noise by Fisher information: a word's numbers are many and small, so its cost is near it."""
        if student is None or word is None or epsilon is None:
            return None
        gaussian = calibrate(lambda noise: replace(plan(noise), student=None).event(), epsilon, delta)
        return gaussian * math.sqrt((student.degrees + 1) / (student.degrees + 3))

    if noise_multiplier is not None:
        return plan(check.positive("noise_multiplier", noise_multiplier))
    return plan(calibrate(lambda noise: plan(noise).event(), check.positive("epsilon", epsilon), delta, near=near()))


@dataclass
class State:
    """The changing numbers of a run.

    A run has one key at a time, which draws batches and noise from step `start` on (see resume.py). Until a run is paid for it
    has no key.
    """

    plan: Plan
    divisor: float = 0.0  # by which sums are divided; 0: units will be counted with noise when the run begins
    number: int = 0  # steps taken
    key: bytes = b""
    repeatable: bool = False  # whether the key came from a seeded source, which only tests may use
    entries: tuple[str, ...] = ()  # of the ledger that paid
    start: int = 0  # the first step under the present key
    used: int = 0  # rounds that were released under earlier keys
    extra: int = 0  # rounds beside the plan
    noted: int = 0  # lines that the journal had when the checkpoint was written

    @property
    def begun(self) -> bool:
        """Whether the run was paid for and has its key."""
        return bool(self.key)

    @property
    def done(self) -> bool:
        return self.number >= self.plan.steps

    def spent(self) -> float:
        """Epsilon at the plan's delta for the steps taken so far."""
        if not self.begun:
            return 0.0
        rounds = self.used + self.plan.sampler.rounds(self.start, self.number)
        return float(curve(self.plan.of_rounds(rounds)).epsilon(self.plan.delta))

    def state(self) -> dict[str, Any]:
        """In the form in which a checkpoint holds it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "plan": self.plan.document(), "entries": list(self.entries)}

    def restore(self, document: Mapping[str, Any]) -> None:
        """Take over what a checkpoint of the same plan holds."""
        for field in fields(self):
            if field.name != "plan":
                setattr(self, field.name, document[field.name])
        self.entries = tuple(document["entries"])
