"""What a run has committed itself to before it reads a row: everything its privacy depends on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

from discreet.accounting import calibrate, curve
from discreet.core import Claim, Game, Unit, check
from discreet.core import event as events
from discreet.core.event import Event
from discreet.errors import InvalidValue

COUNT_SHARE = 0.02  # of epsilon, for a noisy count of the units where no divisor is given
COUNT_EPSILON = 0.02  # the same where the noise is given instead of epsilon
FEWEST, MOST = 0.1, 1e6  # how often a unit may be expected to take part


class Sampler(Protocol):
    """Draws the units of a step and names the event that all steps make."""

    @property
    def rate(self) -> float: ...
    def draw(self, key: bytes, step: int, units: int) -> Any: ...
    def event(self, noise: Event, steps: int) -> Event: ...


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
    grid: bool = False  # whether sums are whole numbers (see grid.py)
    trusted: tuple[str, ...] = ()  # what the way to the gradients leaves to trust (see path.py)

    def event(self, steps: int | None = None) -> Event:
        """What ran when so many steps have been taken (all of them unless told)."""
        steps = self.steps if steps is None else steps
        parts: list[Event] = [] if self.count_scale is None else [events.DiscreteLaplace(self.count_scale)]
        if steps:
            parts.append(self.sampler.event(events.Gaussian(self.noise_multiplier), steps))
        return events.Zero() if not parts else parts[0] if len(parts) == 1 else events.Sequence(parts)

    def claim(self) -> Claim:
        first = _ON_GRID if self.grid else _IN_FLOATS
        return Claim(game=Game(self.unit, {"transcript"}), event=self.event(), assumptions=(first, *ASSUMPTIONS, *self.trusted))

    def epsilon(self, steps: int | None = None) -> float:
        return float(curve(self.event(steps)).epsilon(self.delta))

    def spending(self, points: int = 16) -> list[list[float]]:
        """Epsilon against steps, for a report: pairs of a number of steps and what it costs."""
        steps = sorted({max(1, self.steps * k // points) for k in range(1, points + 1)})
        return [[0, 0.0], *([step, self.epsilon(step)] for step in steps)]

    def document(self) -> dict[str, Any]:
        """What a checkpoint must agree with to be continued."""
        return {"claim": replace(self, trusted=()).claim().to_json(), "clip_norm": self.clip_norm, "steps": self.steps}


_IN_FLOATS = "Noise and sums are floating-point numbers; the bound is that of real ones."
_ON_GRID = "A unit's gradient, which is computed by itself, comes out the same whatever other units there are."
ASSUMPTIONS = (
    "Batches, losses, gradients before noise, and the key of the run were shown to nobody.",
    "Hyper-parameters, architecture and preprocessing do not depend on this data, or their choice was paid for separately.",
)


def planned(
    *, unit: Unit, sampler: Sampler, rate: float, steps: int, clip_norm: float, delta: float,
    epsilon: float | None, noise_multiplier: float | None, counted: bool, grid: bool = False,
) -> Plan:  # fmt: skip
    """The plan for a budget (the least noise that keeps it) or for given noise."""
    if (epsilon is None) == (noise_multiplier is None):
        given = "both" if epsilon is not None else "neither"
        raise InvalidValue(f"Say either epsilon or noise_multiplier, which decides the other; got {given}.")
    steps, delta = check.whole("steps", steps), check.open_fraction("delta", delta)
    expected = rate * steps
    if not FEWEST <= expected <= MOST:
        raise InvalidValue(
            f"rate {rate:g} x steps {steps} takes each unit {expected:g} times on average, which cannot be meant. "
            "rate is the share of all units in one batch (batch size / number of units), steps the number of batches."
        )
    if unit.relation != "add_remove":
        raise InvalidValue(
            f"Poisson batches are accounted for units that are added or removed; got the relation {unit.relation}."
        )
    scale = None
    if counted:
        scale = math.ceil(1 / (COUNT_EPSILON if epsilon is None else COUNT_SHARE * check.positive("epsilon", epsilon)))

    def plan(noise: float) -> Plan:
        return Plan(
            unit=unit, sampler=sampler, steps=steps, noise_multiplier=noise, clip_norm=check.positive("clip_norm", clip_norm),
            delta=delta, count_scale=scale, grid=grid,
        )  # fmt: skip

    if noise_multiplier is not None:
        return plan(check.positive("noise_multiplier", noise_multiplier))
    return plan(calibrate(lambda noise: plan(noise).event(), check.positive("epsilon", epsilon), delta))
