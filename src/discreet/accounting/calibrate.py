"""The least noise for a budget."""

from __future__ import annotations

import math
from collections.abc import Callable

from discreet.accounting.curve import curve
from discreet.core import check
from discreet.core.event import Event
from discreet.errors import InvalidValue, UnsupportedEvent

LEAST, MOST = 1e-6, 1e12
PRECISE = 1e-6  # relative


def calibrate(make_event: Callable[[float], Event], epsilon: float, delta: float, *, near: float | None = None) -> float:
    """The least noise for which `make_event(noise)` keeps (epsilon, delta)-DP, to one part in a million, never less.

    `make_event` takes a noise level and gives an event whose loss falls as the noise grows. `near` is a noise that is nearly
    right, which saves the search for one where curves are slow.

    >>> from discreet.accounting import Gaussian, Poisson, Repeat
    >>> round(calibrate(lambda s: Repeat(Poisson(0.01, Gaussian(s)), 1000), epsilon=1.0, delta=1e-5), 2)
    1.41
    """
    from scipy.optimize import brentq

    epsilon, delta = check.positive("epsilon", epsilon), check.small_fraction("delta", delta)
    if not callable(make_event):
        raise InvalidValue(f"make_event must be a function from noise to an event; got {type(make_event).__name__}.")

    def excess(log_noise: float, *, rough: bool = False) -> float:
        """Above zero where the budget is exceeded, in units of log delta (or of log epsilon where delta is zero)."""
        bound = curve(make_event(math.exp(log_noise)))
        if delta == 0:
            return _log(bound.epsilon(0.0)) - math.log(epsilon)
        if rough:
            return bound.rough_log_delta(epsilon) - math.log(delta)
        return _log(bound.delta(epsilon)) - math.log(delta)

    def rough(log_noise: float) -> float:
        return excess(log_noise, rough=True)

    if near is None:
        low, high = _bracket(rough, epsilon)
        start = float(brentq(rough, low, high, xtol=1e-4))
    else:
        start = math.log(check.positive("near", near))
    slope = min((rough(start + 0.01) - rough(start)) / 0.01, -1e-3)
    return _checked(make_event, _polish(excess, start, slope), epsilon, delta)


def _polish(excess: Callable[[float], float], start: float, slope: float) -> float:
    """From a rough root to a point just past the true one: secant steps, halving where they leave the bracket."""
    low, high = -math.inf, math.inf
    x, before = start, None
    for _ in range(80):
        value = excess(x)
        if value > 0:
            low = x
        else:
            high = x
            if value >= slope * PRECISE:
                break
        if high - low < PRECISE:
            break
        if before is not None and before[0] != x:
            slope = min((value - before[1]) / (x - before[0]), -1e-3)
        before = (x, value)
        x = x + min(max(-value / slope, -1.0), 1.0) + PRECISE / 2
        if not low < x < high:
            x = (low + high) / 2
    return high


def _bracket(excess: Callable[[float], float], epsilon: float) -> tuple[float, float]:
    """Two noise levels, one that exceeds the budget and one that does not."""
    low = high = -math.log(min(max(epsilon, 1e-9), 1e9)) / 2
    step = 0.5
    while excess(low) <= 0:
        low -= step
        step *= 2
        if low < math.log(LEAST):
            raise InvalidValue(f"Even noise {LEAST:g} keeps the budget: make_event may not depend on the noise it is given.")
    step = 0.5
    while excess(high) > 0:
        high += step
        step *= 2
        if high > math.log(MOST):
            raise InvalidValue(
                f"No noise up to {MOST:g} keeps the budget. If part of the event does not depend on the noise, "
                "raise epsilon or delta, or take that part out."
            )
    return low, high


def _checked(make_event: Callable[[float], Event], log_noise: float, epsilon: float, delta: float) -> float:
    """Raise the noise by hairs until the curve itself, as the caller will read it, keeps the budget."""
    noise = math.exp(log_noise)
    for _ in range(60):
        over = curve(make_event(noise)).epsilon(delta) / epsilon - 1
        if over <= 0:
            return noise
        noise *= 1 + min(max(PRECISE / 2, over), 0.01)
    raise UnsupportedEvent("The loss of make_event(noise) does not fall steadily with the noise; discreet cannot calibrate it.")


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -1e9
