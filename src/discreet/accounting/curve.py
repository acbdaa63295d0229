"""The trade-off curve of an event."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence

from discreet.accounting import profile as profiles
from discreet.accounting import table
from discreet.accounting.bound import Bound, Failing
from discreet.accounting.composition import Composition
from discreet.accounting.least import MANY, Least
from discreet.accounting.plan import Plan, plan
from discreet.accounting.profile import Profile
from discreet.accounting.single import Single
from discreet.core import check
from discreet.core.event import Event
from discreet.errors import InvalidValue

_SHARES = (0.999, 0.99, 0.9, 0.5, 0.1, 0.01, 1e-3, 1e-5)


def curve(event: Event) -> TradeOff:
    """The ceiling that `event` puts on every adversary.

    >>> from discreet.accounting import Gaussian, Poisson, Repeat
    >>> round(curve(Repeat(Poisson(0.01, Gaussian(1.0)), 10_000)).epsilon(1e-5), 2)
    6.19
    """
    if not isinstance(event, Event):
        raise InvalidValue(f"event must be an event, such as Gaussian(1.0); got {type(event).__name__}.")
    try:
        parts = plan(event)
    except RecursionError:
        raise InvalidValue("event is nested too deeply; flatten it with Sequence and Repeat.") from None
    except OverflowError:  # so many, or so large, that no float holds them
        return TradeOff(event, Single(profiles.unbounded()))
    if not parts.bounded or parts.told > 1 - 1e-9 or any(profiles.tells_all(item) for item, _ in parts.parts):
        return TradeOff(event, Single(profiles.unbounded()))
    bound = _bound(parts)
    return TradeOff(event, Failing(bound, parts.told) if parts.told else bound)


def _bound(parts: Plan) -> Bound:
    if not parts.parts:
        return Single(profiles.pure(0.0))
    if len(parts.parts) == 1 and parts.parts[0][1] == 1:
        return Single(parts.parts[0][0])
    composed = Composition(parts.parts)
    return Least(parts.counts, composed) if composed.terms >= MANY or parts.loose else composed


def composed_profile(parts: Plan) -> Profile:
    """The profile of a composition, by its atoms: for sampling around several steps."""
    if any(profiles.tells_all(item) for item, _ in parts.parts):
        return profiles.unbounded()
    composed = Composition(parts.parts)
    if composed.huge:
        return profiles.unbounded()
    return profiles.pure(composed.most) if composed.tiny else table.composed(composed)


class _Falling:
    """The answers that were given: no later one contradicts that the truth falls.

    Each is an upper bound on a grid of its own, so two of them may come in the wrong order by a hair. A bound at a smaller
    place is one at every larger place, and a bound that is raised stays one: an answer is put between those of its neighbours.
    """

    def __init__(self) -> None:
        self._answers: list[tuple[float, float]] = []

    def get(self, place: float) -> float | None:
        """The answer that was given at this place."""
        after = bisect_left(self._answers, (place, -math.inf))
        there = after < len(self._answers) and self._answers[after][0] == place
        return self._answers[after][1] if there else None

    def put(self, place: float, bound: float) -> float:
        if (given := self.get(place)) is not None:
            return given
        after = bisect_left(self._answers, (place, -math.inf))
        if after:
            bound = min(bound, self._answers[after - 1][1])
        if after < len(self._answers):
            bound = max(bound, self._answers[after][1])
        insort(self._answers, (place, bound))
        return bound


class TradeOff:
    """What (epsilon, delta), power and posterior belief an event allows at most. Built by `curve`.

    All answers of one curve agree: epsilon never rises with delta, delta never with epsilon, and power never falls with the
    level.
    """

    def __init__(self, event: Event, bound: Bound) -> None:
        self.event = event
        self._bound = bound
        self._lines: list[profiles.Deltas] | None = None
        self._epsilons, self._deltas, self._powers = _Falling(), _Falling(), _Falling()

    def epsilon(self, delta: float) -> float:
        """The least epsilon for which (epsilon, delta)-DP is proven; infinity where none is.

        >>> from discreet.accounting import Laplace
        >>> curve(Laplace(2.0)).epsilon(0)
        0.5
        """
        delta = check.small_fraction("delta", delta)
        if (given := self._epsilons.get(delta)) is not None:
            return given
        least = self._bound.epsilon(delta)
        return self._epsilons.put(delta, math.inf if math.isnan(least) else least)

    def delta(self, epsilon: float) -> float:
        """The least delta for which (epsilon, delta)-DP is proven."""
        epsilon = _ceiling("epsilon", epsilon)
        if (given := self._deltas.get(epsilon)) is not None:
            return given
        least = self._bound.delta(epsilon) + 0.0  # no -0.0
        if least == 0 and epsilon < self._bound.most:
            least = profiles.LEAST  # too small for a float is not 0
        return self._deltas.put(epsilon, 1.0 if math.isnan(least) else least)

    def rough_log_delta(self, epsilon: float) -> float:
        """About log delta(epsilon), quickly: where a search should begin. Not a bound."""
        return self._bound.rough_log_delta(epsilon)

    def power(self, level: float) -> float:
        """The largest true-positive rate of any test with false-positive rate `level`.

        Every (epsilon, delta(epsilon)) bounds it by delta + e^epsilon level and by 1 - e^-epsilon (1 - delta - level)
        (Wasserman & Zhou 2010); the least of all these is the trade-off function (Dong, Roth, Su 2022).

        >>> from discreet.accounting import Pure
        >>> round(curve(Pure(1.0)).power(0.1), 4)
        0.2718
        """
        level = check.fraction("level", level)
        if (given := self._powers.get(-level)) is not None:
            return given
        sides = self._bound.near(level)
        most = max(float(profiles.power_bound(*side, level).min()) for side in sides)
        return self._powers.put(-level, min(max(most, level), 1.0))

    def powers(self, levels: Sequence[float]) -> list[float]:
        """`power` at many levels, for a drawing: from one look at the whole curve, so a hair above it here and there.

        >>> from discreet.accounting import Pure
        >>> [round(each, 4) for each in curve(Pure(1.0)).powers([0.1, 0.5])]
        [0.2718, 0.8161]
        """
        if self._lines is None:
            self._lines = self._bound.everywhere()
        if not self._lines:
            return [self.power(level) for level in levels]
        known = [max(float(profiles.power_bound(*side, level).min()) for side in self._lines) for level in levels]
        return [min(max(most, level), 1.0) for most, level in zip(known, levels, strict=True)]

    def posterior(self, prior: float, delta: float = 1e-6) -> float:
        """The most that someone who believed `prior` can believe afterwards, except with probability `delta`.

        If the loss exceeds x with probability at most delta when the unit is inside, the odds grow by at most e^x.
        That x follows from the curve: Pr[loss > x] <= delta(y) / (1 - e^{y-x}) for every y < x. Some mechanism with this
        delta(y) reaches it, so of (epsilon, delta)-DP alone nothing follows for this very delta: ask for a larger one.

        >>> from discreet.accounting import Pure
        >>> round(curve(Pure(1.0)).posterior(0.5), 3)
        0.731
        """
        prior = check.fraction("prior", prior)
        delta = check.small_fraction("delta", delta)
        growth = min([self._bound.most, *(self.epsilon(delta * s) - math.log1p(-s) for s in self._shares(delta))])
        if prior in (0.0, 1.0):
            return prior
        odds = math.log(prior) - math.log1p(-prior) + growth
        return 1.0 if odds > 700 else 1 / (1 + math.exp(-odds))

    def _shares(self, delta: float) -> list[float]:
        """The parts of `delta` to try as delta(y): some, and what is just enough for the probability that all is told."""
        if not delta:
            return []
        told = self.delta(math.inf) / delta
        enough = [told * (1 + more) for more in (4e-16, 1e-6)]  # exactly, and where rounding in a composition asks for more
        return [*_SHARES, *(share for share in enough if 1e-9 < share < 1)]

    def __repr__(self) -> str:
        return f"TradeOff({self.event!r})"


def _ceiling(name: str, value: float) -> float:
    if value == math.inf:
        return math.inf
    return check.nonnegative(name, value)
