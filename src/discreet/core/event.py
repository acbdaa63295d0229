"""Events: what ran, with every parameter its privacy loss depends on.

The ledger and every release store events; numbers (epsilon, delta, power) are derived from them by
`discreet.accounting`. An event's meaning never changes: a new meaning is a new event. Reading an event from JSON looks
its kind up in a closed table and never imports anything named in the document.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, runtime_checkable

from discreet.core import check
from discreet.errors import InvalidDocument, InvalidValue

DEEPEST = 64  # how deep events may stand inside one another
MOST_DEGREES = 30.0  # of freedom: with more, noise of Student's t is as good as Gaussian
MOST_SIZES = 64


@runtime_checkable
class Event(Protocol):
    """What ran. `kind` names it in JSON."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]: ...
    def __hash__(self) -> int: ...


class _Value:
    """JSON for events whose fields are numbers, or events."""

    __slots__ = ("_nesting",)
    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"kind": self.kind}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                value = [item.to_json() if isinstance(item, _Value) else item for item in value]
            elif isinstance(value, _Value):
                value = value.to_json()
            document[field.name] = value
        return document

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def nesting(self) -> int:
        """How many events stand around the innermost one here; kept, since sequences may be long."""
        try:
            return int(self._nesting)  # type: ignore[attr-defined]
        except AttributeError:
            inner = [value for field in fields(self) for value in _inner(getattr(self, field.name))]  # type: ignore[arg-type]
            self._set("_nesting", 1 + max(event.nesting() for event in inner) if inner else 0)
            return self.nesting()


@dataclass(frozen=True, slots=True)
class Zero(_Value):
    """No loss: nothing private was touched, or what was seen tells nothing under the assumptions that the claim lists."""

    kind: ClassVar[str] = "zero"


@dataclass(frozen=True, slots=True)
class NonPrivate(_Value):
    """Something private was released with no bound: there is no ceiling."""

    kind: ClassVar[str] = "non_private"


@dataclass(frozen=True, slots=True)
class Pure(_Value):
    """Any mechanism that is epsilon-DP; nothing else is known of it."""

    kind: ClassVar[str] = "pure"
    epsilon: float

    def __post_init__(self) -> None:
        self._set("epsilon", check.nonnegative("epsilon", self.epsilon))


@dataclass(frozen=True, slots=True)
class Approximate(_Value):
    """Any mechanism that is (epsilon, delta)-DP; nothing else is known of it."""

    kind: ClassVar[str] = "approximate"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        self._set("epsilon", check.nonnegative("epsilon", self.epsilon))
        self._set("delta", check.small_fraction("delta", self.delta))


@dataclass(frozen=True, slots=True)
class Gaussian(_Value):
    """Gaussian noise of standard deviation noise_multiplier x the l2 sensitivity."""

    kind: ClassVar[str] = "gaussian"
    noise_multiplier: float

    def __post_init__(self) -> None:
        self._set("noise_multiplier", check.positive("noise_multiplier", self.noise_multiplier))


@dataclass(frozen=True, slots=True)
class Laplace(_Value):
    """Laplace noise of scale noise_multiplier x the l1 sensitivity, on each coordinate."""

    kind: ClassVar[str] = "laplace"
    noise_multiplier: float

    def __post_init__(self) -> None:
        self._set("noise_multiplier", check.positive("noise_multiplier", self.noise_multiplier))


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(_Value):
    """Noise on one whole number, Pr[x] ~ exp(-x^2 / 2 sigma^2), where one unit moves that number by at most `sensitivity`.

    For several numbers, compose one event per number: a vector of discrete Gaussians is not one discrete Gaussian.
    """

    kind: ClassVar[str] = "discrete_gaussian"
    sigma: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        self._set("sigma", check.positive("sigma", self.sigma))
        self._set("sensitivity", check.whole("sensitivity", self.sensitivity))


@dataclass(frozen=True, slots=True)
class DiscreteLaplace(_Value):
    """Noise on whole numbers, Pr[x] ~ exp(-|x| / scale) each, where one unit moves them by at most `sensitivity` in l1."""

    kind: ClassVar[str] = "discrete_laplace"
    scale: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        self._set("scale", check.positive("scale", self.scale))
        self._set("sensitivity", check.whole("sensitivity", self.sensitivity))


@dataclass(frozen=True, slots=True)
class Concentrated(_Value):
    """Any mechanism that is rho-zCDP: its Rényi divergence of every order a > 1 is at most rho x a, in both directions.

    Discrete Gaussians on a vector that one unit moves by at most D in l2 have rho = D^2 / 2 sigma^2, however the unit is
    spread over the vector; nothing else need be known of it (Bun & Steinke 2016; Canonne, Kamath & Steinke 2020).
    """

    kind: ClassVar[str] = "concentrated"
    rho: float

    def __post_init__(self) -> None:
        self._set("rho", check.nonnegative("rho", self.rho))


@dataclass(frozen=True, slots=True)
class Exponential(_Value):
    """A mechanism whose privacy loss has a range of at most epsilon, as the exponential mechanism's has.

    Choosing with probability ~ exp(epsilon x score / 2 x sensitivity) is epsilon-bounded-range (Durfee & Rogers 2019),
    a stronger fact than epsilon-DP. Permute-and-flip and report-noisy-max do not have it: see NoisyMax.
    """

    kind: ClassVar[str] = "exponential"
    epsilon: float

    def __post_init__(self) -> None:
        self._set("epsilon", check.nonnegative("epsilon", self.epsilon))


@dataclass(frozen=True, slots=True)
class NoisyMax(_Value):
    """The index of the largest noisy score (Laplace or exponential noise, permute-and-flip): epsilon-DP, not bounded-range."""

    kind: ClassVar[str] = "noisy_max"
    epsilon: float

    def __post_init__(self) -> None:
        self._set("epsilon", check.nonnegative("epsilon", self.epsilon))


@dataclass(frozen=True, slots=True)
class ObjectivePerturbation(_Value):
    """The exact minimum of a strongly convex sum of losses of a linear model, with a Gaussian linear term in the objective.

    The objective is the sum of f(y x.w) over rows, plus (lam/2) |w|^2, plus b.w; f is convex and falls, so that the gradient of
    a row is -a y x G / |x|, with a share a in [0, 1] of the largest gradient G. `noise_multiplier` is the standard deviation of
    each coordinate of b over G. `curvature` is the largest f''(m) |x|^2 / lam; where `tapered`, f''(m) |x|^2 / lam is at most
    4 curvature a (1 - a), as it is for the logistic loss. One unit is one row, added or removed.
    """

    kind: ClassVar[str] = "objective_perturbation"
    noise_multiplier: float
    curvature: float
    tapered: bool = False

    def __post_init__(self) -> None:
        self._set("noise_multiplier", check.positive("noise_multiplier", self.noise_multiplier))
        self._set("curvature", check.nonnegative("curvature", self.curvature))
        if not isinstance(self.tapered, bool):
            raise InvalidValue(f"tapered must be True or False; got {check.shown(self.tapered)}.")


@dataclass(frozen=True, slots=True)
class StudentT(_Value):
    """Noise of Student's t on a vector of numbers, each on its own, that one unit moves by a word of a code.

    `noise_multiplier` is the scale of the noise. Put in descending order, the numbers of the word are in absolute value at most
    `sizes`, of which each stands `counts` times, so several units together are no event of the same kind. A vector of which
    only the l2 norm is known is not this: Gaussian() bounds that (docs/theory/encoded-gradients.md).
    """

    kind: ClassVar[str] = "student_t"
    noise_multiplier: float
    degrees: float
    sizes: tuple[float, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        self._set("noise_multiplier", check.positive("noise_multiplier", self.noise_multiplier))
        self._set("degrees", check.positive("degrees", self.degrees))
        if not 1 <= self.degrees <= MOST_DEGREES:
            raise InvalidValue(f"degrees of freedom must be from 1 to {MOST_DEGREES:g}; got {self.degrees:g}.")
        sizes, counts = (tuple(check.items(name, getattr(self, name), "a list of numbers")) for name in ("sizes", "counts"))
        if not 1 <= len(sizes) == len(counts) <= MOST_SIZES:
            raise InvalidValue(
                f"sizes and counts must be as long as each other, from 1 to {MOST_SIZES}; got {len(sizes)} and {len(counts)}."
            )
        self._set("sizes", tuple(check.nonnegative("sizes", size) for size in sizes))
        if not any(self.sizes):
            raise InvalidValue("sizes must hold one above 0; where nothing is moved, the event is Zero().")
        self._set("counts", tuple(check.whole("counts", count) for count in counts))


@dataclass(frozen=True, slots=True)
class RandomizedResponse(_Value):
    """One answer out of `categories`: the truth with odds e^epsilon against each other answer."""

    kind: ClassVar[str] = "randomized_response"
    epsilon: float
    categories: int = 2

    def __post_init__(self) -> None:
        self._set("epsilon", check.nonnegative("epsilon", self.epsilon))
        self._set("categories", check.whole("categories", self.categories, least=2))


@dataclass(frozen=True, slots=True)
class Poisson(_Value):
    """`event` on a sample that takes each unit on its own with probability `rate`; relation add/remove.

    Empty samples count. A shuffled or fixed-size batch is not a Poisson sample. For units that are replaced, write
    PoissonReplace; a unit that is blanked out contributes nothing, which is the same pair as removing it.
    """

    kind: ClassVar[str] = "poisson"
    rate: float
    event: Event

    def __post_init__(self) -> None:
        self._set("rate", check.fraction("rate", self.rate))
        check_event("event", self.event, inside=True)


@dataclass(frozen=True, slots=True)
class PoissonReplace(_Value):
    """`event` on a sample that takes each unit on its own with probability `rate`; relation replace.

    The inner event is the one that stands in Poisson: its sensitivity is that of one unit added to the sample or removed
    from it. Two versions of a unit may lie twice as far apart, and the curve counts that.
    """

    kind: ClassVar[str] = "poisson_replace"
    rate: float
    event: Event

    def __post_init__(self) -> None:
        self._set("rate", check.fraction("rate", self.rate))
        check_event("event", self.event, inside=True)


@dataclass(frozen=True, slots=True)
class WithoutReplacement(_Value):
    """`event` on a sample of fixed size, a share `rate` of all units, drawn without replacement; relation replace.

    The inner event's sensitivity is that of replacing one unit.
    """

    kind: ClassVar[str] = "without_replacement"
    rate: float
    event: Event

    def __post_init__(self) -> None:
        self._set("rate", check.fraction("rate", self.rate))
        check_event("event", self.event, inside=True)


@dataclass(frozen=True, slots=True)
class RandomAllocation(_Value):
    """A pass of `bins` steps: each unit takes part in just one of them, chosen uniformly and on its own; relation add/remove.

    `event` is what one step costs those in it. All steps are seen, and what a step does may depend on those before it;
    who is in which step is not seen. Passes are repeated with Repeat, each with a fresh choice. Batches of fixed size,
    and a shuffled order, are not this.
    """

    kind: ClassVar[str] = "random_allocation"
    event: Event
    bins: int

    def __post_init__(self) -> None:
        check_event("event", self.event, inside=True)
        self._set("bins", check.whole("bins", self.bins))


@dataclass(frozen=True, slots=True)
class Shuffled(_Value):
    """`event` by each of `users` people on their own value, one report each, all reports shuffled; relation replace.

    `event` is what one report costs its sender, whatever two values they might hold. Who shuffles is trusted, and only
    with forgetting the order. A shuffled data loader is not this: there nobody noised their own row.
    """

    kind: ClassVar[str] = "shuffled"
    event: Event
    users: int

    def __post_init__(self) -> None:
        check_event("event", self.event, inside=True)
        self._set("users", check.whole("users", self.users))


@dataclass(frozen=True, slots=True)
class Repeat(_Value):
    """`event`, `times` over, with fresh noise each time; inputs may depend on earlier outputs, parameters may not."""

    kind: ClassVar[str] = "repeat"
    event: Event
    times: int

    def __post_init__(self) -> None:
        check_event("event", self.event, inside=True)
        self._set("times", check.whole("times", self.times))


@dataclass(frozen=True, slots=True)
class Sequence(_Value):
    """Several events, one after another, their parameters fixed beforehand."""

    kind: ClassVar[str] = "sequence"
    events: tuple[Event, ...]

    def __init__(self, events: Iterable[Event]) -> None:
        members = check.items("events", events, "a list of events")
        items = tuple(check_event("events", item, inside=True) for item in members)
        if not items:
            raise InvalidValue("events must hold at least one event; got none. For nothing at all, use Zero().")
        self._set("events", items)


@dataclass(frozen=True, slots=True)
class Group(_Value):
    """`event` as seen by `size` units that differ together (group privacy)."""

    kind: ClassVar[str] = "group"
    event: Event
    size: int

    def __post_init__(self) -> None:
        check_event("event", self.event, inside=True)
        self._set("size", check.whole("size", self.size))


KINDS: dict[str, type[_Value]] = {
    cls.kind: cls
    for cls in (
        Zero, NonPrivate, Pure, Approximate, Gaussian, Laplace, DiscreteGaussian, DiscreteLaplace, Concentrated, Exponential,
        NoisyMax, ObjectivePerturbation, StudentT, RandomizedResponse, Poisson, PoissonReplace, WithoutReplacement,
        RandomAllocation, Shuffled, Repeat, Sequence, Group,
    )
}  # fmt: skip


def event_from_json(document: Any, *, depth: int = 0) -> Event:
    """The event a JSON document describes.

    >>> event_from_json({"kind": "gaussian", "noise_multiplier": 1.0})
    Gaussian(noise_multiplier=1.0)
    """
    if depth > DEEPEST:
        raise InvalidDocument(_TOO_DEEP)
    if not isinstance(document, dict):
        raise InvalidDocument(f"An event is a JSON object with a kind; got {type(document).__name__}.")
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidDocument(f"Unknown event kind {check.shown(kind)}; known kinds: {', '.join(sorted(KINDS))}.")
    cls = KINDS[kind]
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    extra = sorted(set(map(str, document)) - set(names) - {"kind"})
    if extra:
        raise InvalidDocument(
            f"The {kind} event does not know {', '.join(map(check.shown, extra[:5]))}; "
            f"it takes {', '.join(names) or 'nothing'}."
        )
    values: dict[str, Any] = {name: document[name] for name in names if name in document}
    if "event" in values:
        values["event"] = event_from_json(values["event"], depth=depth + 1)
    if "events" in values:
        if not isinstance(values["events"], list):
            raise InvalidDocument(f"events of a {kind} event must be a list; got {type(values['events']).__name__}.")
        values["events"] = [event_from_json(item, depth=depth + 1) for item in values["events"]]
    try:
        built: Event = cls(**values)
    except InvalidValue as error:
        raise InvalidDocument(f"The {kind} event is not valid: {error}") from None
    except TypeError:
        lacking = [name for name in names if name not in values]
        raise InvalidDocument(f"The {kind} event lacks {', '.join(lacking)}.") from None
    return built


_TOO_DEEP = f"This event is nested more than {DEEPEST} deep; flatten it with Sequence and Repeat."


def check_event(name: str, value: Any, *, inside: bool = False) -> Event:
    """The value, if it is an event of the closed table above; `inside` another it must leave room for that one."""
    if not isinstance(value, _Value):
        raise InvalidValue(f"{name} must be an event, such as Gaussian(1.0); got {check.shown(value)}.")
    if inside and value.nesting() >= DEEPEST:
        raise InvalidValue(_TOO_DEEP)
    return value


def _inner(value: Any) -> tuple[_Value, ...]:
    if isinstance(value, _Value):
        return (value,)
    return tuple(item for item in value if isinstance(item, _Value)) if isinstance(value, tuple) else ()
