"""A certified lower bound on the epsilon of a run of sampled Gaussians: the reference of `accounting_tight`.

It shares no code with discreet.accounting, and every step of it goes down where that goes up.

1. **Bins.** The noise z is reported only as the interval of width 1/50 in which it lies. That is post-processing, so delta of
   the binned mechanism is at most the true one. Values of z outside a finite range are left out, which lowers delta again.
2. **Smoothing.** w(y) = (1 - e^{epsilon - y})+ grows with y, so E[w(Y - U)] <= E[w(Y)] for every U >= 0. U is a sum of `FOLD`
   uniform numbers, at most a 4/10,000 to 2/1,000 part of epsilon together, independent of Y.
3. **A series.** Under a tilt t, E[w(Y - U)] wrapped around a period W is a sum over the frequencies w_k = 2 pi k / W,

       1/W sum_k F(t + i w_k) e^{-(t + i w_k) epsilon} / ((t + i w_k)(t + 1 + i w_k)),

   F the moment function of Y - U. Wrapping adds e^{-tmW} delta(epsilon - mW) for every m other than 0: at most 1/(e^{tW} - 1)
   from m > 0, and at most the sum over j of e^{K(t + s) - (t + s)epsilon - sjW} from m = -j (Chernoff). Both are subtracted.
4. **The rest.** |E e^{-(t + iw)U}| <= (2 FOLD / (a w))^FOLD for U <= a, which bounds all frequencies after the last. Those
   between the last that is summed and there are either all below e^-30, which a coarse look shows, or summed as well. The
   bound on what is not summed and an allowance for rounding are subtracted.

**Rare large losses.** Where single losses rule (little noise at a small rate), the terms of 3 are far larger than delta at
every tilt, because most of the mass sits at 0. Then only outcomes with at least one loss above a cut are counted, which lowers
delta once more. Their moment function M^n - S^n, with S that of one loss below the cut, is S^n expm1(n log1p(L / S)): nothing
cancels.

**Far losses.** Where some losses are far above epsilon, no tilt suits all. Outcomes whose largest loss is above `top` report
only the bin of that loss, post-processing again. Their share of delta, the sum of (P(i) - e^epsilon Q(i))+ over these bins, is
known in closed form, since the largest of n losses is at most the i-th with probability P(loss <= i)^n. All other outcomes
have losses up to `top`.

**The coarse look.** |E e^{iwY}|^2 of one step is the characteristic function of the difference of two independent losses.
Its second derivative is at most 2 Var, so between two frequencies d apart it is at most the larger value plus d^2 Var / 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

WIDTH = 0.02  # of a bin, in standard deviations of the noise
FOLD = 12  # uniform numbers that add up to the smoothing
SMOOTHING = (4e-4, 1e-3, 2e-3)  # shares of epsilon that smoothing may cost; the first that is quick enough is taken
DROPPED = 9.0  # large losses of which less than e^-9 of delta is left are dropped
ALIAS = 12.0  # wrapping adds about e^-12 of delta at either end
FADED = 30.0
INF = math.inf
WAYS = (*((0.0, top) for top in (INF, 20.0, 6.0, 3.0, 2.0, 0.5)), (0.3, INF), (0.6, INF), (0.8, INF), (0.9, INF), (0.6, 6.0))
CLOSE = 3e-3  # a bound as near as this to the epsilon in question ends the search for a better one
AMPLIFIED = 14.0  # log of how much larger than delta the terms may be, for the sake of rounding
MOST = 1 << 16  # frequencies, while more smoothing can be had
WORK = 1_500_000_000  # frequencies times bins
UNIT = 2.0**-53
NODES = np.polynomial.legendre.leggauss(6)
SERIES = [1 / math.factorial(k) for k in range(19, 1, -1)]


@dataclass
class Step:
    """One binned step: losses seen from the world that is tested, log of the masses in the other, what was dropped."""

    loss: np.ndarray
    log_mass: np.ndarray
    sign: int  # 1 where the sampled world is tested against the other, -1 the other way
    dropped: tuple[float, float]  # mass without the unit and with it

    def tilted(self, tilt: float) -> tuple[np.ndarray, float]:
        """The distribution under a tilt, and the log-moment."""
        exponent = self.log_mass + self._power(tilt) * self.sign * self.loss
        top = float(exponent.max())
        weight = np.exp(exponent - top)
        total = float(weight.sum())
        return weight / total, self._log(tilt, top + math.log(total))

    def _power(self, tilt: float) -> float:
        """The power of the ratio r of the sampled world to the other whose mean, without the unit, is the moment."""
        return tilt + 1 if self.sign > 0 else -tilt

    def _log(self, tilt: float, log: float) -> float:
        if abs(log) > 0.3:
            return log
        # E[r^a] = 1 + E[r^a - 1 - a(r - 1)], less what was dropped: nothing cancels
        a, log_ratio = self._power(tilt), self.sign * self.loss
        x = a * log_ratio
        small = a * log_ratio**2 * (a * np.polyval(SERIES, x) - np.polyval(SERIES, log_ratio))
        far = np.exp(self.log_mass + np.maximum(x, 30.0)) - np.exp(self.log_mass) * (1 + a * np.expm1(log_ratio))
        near = np.exp(self.log_mass) * (np.expm1(np.minimum(x, 30.0)) - a * np.expm1(log_ratio))
        excess = np.where(np.abs(x) < 0.5, np.exp(self.log_mass) * small, np.where(x > 30, far, near))
        without, with_unit = self.dropped
        return math.log1p(float(excess.sum()) - without - a * (with_unit - without))


def binned(sigma: float, rate: float, times: int, delta: float, backward: bool) -> Step:
    """One step, told only up to the bin of its noise."""
    shift = 1 / sigma
    surprise = math.log(times) - math.log(delta) + DROPPED
    last = max(math.sqrt(2 * surprise), math.sqrt(2 * max(surprise + math.log(rate), 0.0)) + shift)
    low, high = (-10.0, max(last, 10.0)) if not backward else (-max(last, 10.0), 10.0 + shift)
    edge = np.arange(math.floor(low / WIDTH), math.ceil(high / WIDTH) + 1) * WIDTH
    z = edge[:-1, None] + WIDTH / 2 * (1 + NODES[0])
    density = np.exp(-(z * z - edge[:-1, None] ** 2) / 2) * NODES[1]
    weight = density.sum(axis=1)
    excess = (density * np.expm1(shift * z - shift * shift / 2)).sum(axis=1) / weight
    log_ratio = np.log1p(rate * excess)
    log_mass = -(edge[:-1] ** 2) / 2 + np.log(weight * WIDTH / 2 / math.sqrt(2 * math.pi))
    without = float(ndtr(edge[0]) + ndtr(-edge[-1]))
    moved = float(ndtr(edge[0] - shift) + ndtr(shift - edge[-1]))
    dropped = without, (1 - rate) * without + rate * moved
    return Step(-log_ratio if backward else log_ratio, log_mass, -1 if backward else 1, dropped)


def largest(step: Step, times: int, top: float) -> tuple[Step, np.ndarray, np.ndarray]:
    """The step without losses above `top`, and the masses of the largest of `times` losses above it, in either world."""
    far = int(np.searchsorted(step.loss, top, side="right"))
    masses = []
    for log, beyond in ((step.log_mass + step.loss, step.dropped[1]), (step.log_mass, step.dropped[0])):
        mass = np.exp(log[far:])
        after = np.minimum(beyond + np.append(np.cumsum(mass[::-1])[::-1], 0.0)[1:], 1 - 1e-16)  # beyond each bin
        below = times * np.log1p(-after)  # log of the probability that all are in it or below
        masses.append(np.exp(below) * -np.expm1(times * np.log1p(-np.minimum(mass / (1 - after), 1.0))))  # nothing cancels
    gone = [step.dropped[0] + float(np.exp(step.log_mass[far:]).sum())]
    gone.append(step.dropped[1] + float(np.exp(step.log_mass[far:] + step.loss[far:]).sum()))
    return Step(step.loss[:far], step.log_mass[:far], 1, (gone[0], gone[1])), masses[0], masses[1]


@dataclass
class Floor:
    """A lower bound on delta as a function of epsilon, near the place it was made for."""

    scale: float
    tilt: float
    centre: float
    frequency: np.ndarray
    terms: np.ndarray
    left: float  # what was not summed, and rounding
    period: float
    moments: list[tuple[float, float]]  # (s, K(t + s)): Chernoff bounds on what wraps from above
    total: float  # log of the largest delta there can be
    top: tuple[np.ndarray, np.ndarray] = (np.zeros(0), np.zeros(0))  # masses of largest losses that are counted apart

    def log_delta(self, epsilon: float) -> float:
        x = epsilon - self.centre
        inner = float((self.terms * np.exp(-1j * self.frequency * x)).real.sum()) - self.left
        log = self.scale - self.tilt * x + math.log(inner) if inner > 0 else -math.inf
        wrapped = self.wrapped(epsilon)
        log = log + math.log1p(-math.exp(wrapped - log)) if wrapped < log else -math.inf
        return float(np.logaddexp(log, self.above(epsilon)))

    def above(self, epsilon: float) -> float:
        """log of the share of outcomes whose largest loss is counted apart."""
        value = float(np.maximum(self.top[0] - math.exp(min(epsilon, 700.0)) * self.top[1], 0.0).sum())
        return math.log(value) if value > 0 else -math.inf

    def wrapped(self, epsilon: float) -> float:
        """The log of what wrapping may have added to delta."""
        below = self.tilt * self.period + math.log(-math.expm1(-self.tilt * self.period))
        above = min(
            k - (self.tilt + s) * epsilon - s * self.period - math.log(-math.expm1(-s * self.period)) for s, k in self.moments
        )
        return float(np.logaddexp(self.total - below, above))

    def raw(self, epsilon: float) -> float:
        """log delta with nothing subtracted: where to look, not a bound."""
        x = epsilon - self.centre
        inner = float((self.terms * np.exp(-1j * self.frequency * x)).real.sum())
        return float(np.logaddexp(self.scale - self.tilt * x + math.log(max(inner, 1e-300)), self.above(epsilon)))

    def epsilon(self, delta: float, near: float) -> float | None:
        """A lower bound on epsilon(delta), not far below `near`; None where nothing is shown."""
        aim, first = math.log(delta), min(1e-4 * near, 0.1 / self.tilt)
        places = (near - first * 2.0**k for k in range(16) if first * 2.0**k < near / 2)
        low, high = next((place for place in places if self.log_delta(place) > aim), None), near * 1.001
        if low is None:
            return None
        while high - low > 1e-7 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self.log_delta(middle) > aim else (low, middle)
        return low


def floor(sigma: float, rate: float, times: int, delta: float, near: float, backward: bool = False) -> float | None:
    """A lower bound on epsilon(delta) of `times` sampled Gaussians; None where too many frequencies are needed for one.

    `near` is where to look first. Where the answer lies far from it, the search goes on there.
    """
    step = binned(sigma, rate, times, delta, backward)
    least = None
    for cut, top in WAYS:
        if top < math.inf and (backward or top * near > step.loss[-1]):
            continue
        here = _settle(step, times, delta, near, cut, top)
        least = here if least is None else max(least, here or 0.0)
        if least is not None and near < least * (1 + CLOSE):
            break
    return least


def _settle(step: Step, times: int, delta: float, near: float, cut: float, top: float) -> float | None:
    """The bound is made again where it points, until it points to where it was made."""
    aim = math.log(delta)
    for _ in range(12):
        bound = next((b for share in SMOOTHING if (b := _bound(step, times, delta, near, share, cut, top))), None)
        if bound is None:
            return None
        place = near
        for _ in range(20):  # the tilt is about the slope of log delta
            off = bound.raw(place) - aim
            most = min(0.1 * place, bound.period / 8)
            place = max(place + max(min(off / bound.tilt, most), -most), near / 2)
            if abs(off) < 1e-3:
                break
        if not math.isfinite(place):
            return None
        if abs(place - near) < 2 / bound.tilt:
            return bound.epsilon(delta, place * (1 + 1e-5))
        near = place
    return None


def _bound(step: Step, times: int, delta: float, near: float, share: float, cut: float, top: float) -> Floor | None:
    """Several ways to look, each a bound of its own."""
    apart = (np.zeros(0), np.zeros(0))
    if top * near < step.loss[-1]:
        step, *masses = largest(step, times, top * near)
        apart = (masses[0], masses[1])
    plain = Sum(step, times, 0.0, cut * near)
    spread = math.sqrt(plain.moment(plain.saddle(near))[2])
    most = MOST if share < SMOOTHING[-1] else min(WORK // len(step.loss), 1 << 21)
    bound = Sum(step, times, min(share * near, spread / 2), cut * near).floor(near, delta, most)
    return None if bound is None else replace(bound, top=apart)


@dataclass
class Sum:
    """The sum of `times` losses less a random number from 0 to `width`; with a `cut`, one loss is above it."""

    step: Step
    times: int
    width: float
    cut: float = 0.0

    def moment(self, tilt: float) -> tuple[float, float, float]:
        """Log-moment, and about mean and variance, under a tilt."""
        weight, log = self.step.tilted(tilt)
        loss, n = self.step.loss, self.times
        x = tilt * self.width / FOLD
        fade = FOLD * math.log(-math.expm1(-x) / x) if x > 1e-8 else -FOLD * x / 2
        mean = float(weight @ loss)
        if not self.cut:
            variance = n * float(weight @ (loss - mean) ** 2)
            return n * log + fade, n * mean - self.width / 2, variance + self.width**2 / (12 * FOLD)
        rest, (small, low), (large, high) = self.parts(weight)
        count = -n * (math.log1p(-large) if large < 0.5 else math.log(rest))  # about the number of large losses
        many = -math.expm1(-count)
        spread = n * float(low @ (loss[small] - (centre := float(low @ loss[small]))) ** 2)
        far = float(high @ loss[~small])
        wide = float(high @ (loss[~small] - far) ** 2)
        each, square = count / many, (count + count**2) / many
        log = n * log + math.log(many)
        variance = spread + each * wide + max(square - each**2, 0.0) * far**2 + self.width**2 / (12 * FOLD)
        return log + fade, n * centre + each * far - self.width / 2, variance

    def parts(self, weight: np.ndarray) -> tuple[float, tuple[np.ndarray, np.ndarray], tuple[float, np.ndarray]]:
        """The distribution of a loss below the cut and of one above it, each with which losses these are or their share."""
        small = self.step.loss <= self.cut
        large, rest = (max(float(weight[side].sum()), 1e-300) for side in (~small, small))
        return rest, (small, weight[small] / rest), (large, weight[~small] / large)

    def saddle(self, near: float) -> float:
        """The tilt that centres the sum on `near`, or one over twice the spread where that is larger."""
        spread = math.sqrt(self.moment(0.0)[2])
        low, high = 0.0, 1 / spread
        while self.moment(high)[1] < near and high < 1e6 / spread:
            low, high = high, 2 * high
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self.moment(middle)[1] < near else (low, middle)
        return max(high, 0.5 / math.sqrt(max(self.moment(high)[2], 1e-300)))

    def floor(self, near: float, delta: float, most: int) -> Floor | None:
        slope = self.saddle(near)
        period, tilt, moments = min(self.period(share * slope, near, delta) for share in (1.0, 0.85, 0.7, 0.5))
        log_moment, mean, _ = self.moment(tilt)
        scale = log_moment - tilt * mean
        if not (math.isfinite(period) and math.isfinite(scale)):
            return None
        value = (
            math.log(delta) - scale + tilt * (near - mean)
        )  # log of what the series should add up to, and at least of its first term
        value = min(value, -math.log(tilt * (1 + tilt) * period))
        series = _series(self, tilt, mean, period, _last(self.width, value), most)
        return None if series is None else Floor(scale, tilt, mean, *series, period, moments, self.total())

    def total(self) -> float:
        """The log of the probability of all that is counted, at most."""
        if not self.cut:
            return 0.0
        weight, log = self.step.tilted(0.0)
        return min(math.log(self.times * self.parts(weight)[2][0]) + log + 1e-9, 0.0)

    def period(self, tilt: float, near: float, delta: float) -> tuple[float, float, list[tuple[float, float]]]:
        """The period at which wrapping adds about e^-ALIAS of delta at either end; with the moments that show it."""
        aim = math.log(delta) - ALIAS
        log_moment, _, variance = self.moment(tilt)
        spread = math.sqrt(variance)
        if log_moment - tilt * near - math.log1p(tilt * (1 + tilt) * spread) > math.log(delta) + AMPLIFIED:
            return math.inf, tilt, []
        moments = [(c / spread, self.moment(tilt + c / spread)[0]) for c in (0.2, 0.5, 1.0, 3.0, 6.0, 20.0)]
        up = min((k - (tilt + s) * near - aim) / s for s, k in moments)
        return max((self.total() - aim) / tilt, up, 4 * spread), tilt, moments


def _last(width: float, value: float) -> float:
    """The frequency w with (2 FOLD / (width w))^FOLD / w, which bounds what lies beyond, half a thousandth of e^value."""
    last = 4 * FOLD / width
    while FOLD * math.log(2 * FOLD / (width * last)) - math.log(last) - math.log(FOLD) > value - 7.5:
        last *= 1.05
    return last


def _series(whole: Sum, tilt: float, mean: float, period: float, last: float, most: int):
    """Frequencies, terms at the centre, and a bound on what is left out; None where that takes too many frequencies."""
    weight, _ = whole.step.tilted(tilt)
    gap = 2 * math.pi / period
    if not math.isfinite(last / gap):
        return None
    count = math.ceil(last / gap) + 1
    shown = count if whole.cut else _fades(weight, whole.step.loss, whole.times, gap, count)
    if min(shown, count) > most:
        return None
    frequency = np.arange(min(shown, count)) * gap
    value, off = _split(whole, weight, frequency, mean) if whole.cut else _power(whole, weight, frequency, mean)
    s = tilt + 1j * frequency
    x = s * (whole.width / FOLD)
    fade = np.where(np.abs(x) > 1e-6, -np.expm1(-x) / np.where(x == 0, 1, x), 1 - x / 2)
    kernel = (fade / fade[0].real) ** FOLD / (s * (s + 1)) / period
    kernel[1:] *= 2
    terms = kernel * value
    error = np.abs(kernel) * off + np.abs(terms) * UNIT * 64 * (1 + frequency * period)
    beyond = last + gap
    rest = (2 * FOLD / (whole.width * beyond) / fade[0].real) ** FOLD / (FOLD * beyond) / math.pi * 1.5
    if shown < count:
        rest += math.exp(-FADED) / math.pi / (shown * gap)
    return frequency, terms, float(error.sum()) + rest


def _power(whole: Sum, weight: np.ndarray, frequency: np.ndarray, mean: float) -> tuple[np.ndarray, np.ndarray]:
    """The characteristic function of the tilted sum, counted from `mean`, and a bound on its error."""
    log, doubt = _logs(weight, whole.step.loss, frequency, whole.times)
    value = np.exp(np.minimum(log.real, 0) + 1j * (log.imag - frequency * mean))
    return value, np.minimum(np.exp(np.minimum(log.real + doubt, 0.0)) * -np.expm1(-doubt), 1.0)


def _logs(weight: np.ndarray, loss: np.ndarray, frequency: np.ndarray, times: int) -> tuple[np.ndarray, np.ndarray]:
    """`times` times the log of the characteristic function of one loss, and a bound on its error."""
    keep = weight > 1e-26
    dropped = float(weight[~keep].sum())
    middle = float(weight @ loss)
    value, off = _transform(weight[keep], loss[keep] - middle, frequency, times * (keep.sum() + 64.0) * UNIT > 1e-6)
    size = np.maximum(np.abs(value), 1e-300)
    log = times * (np.log(size) + 1j * (np.angle(value) + frequency * middle))
    return log, times * (np.log1p((off + dropped) / size) + 8 * UNIT * (np.abs(np.angle(value)) + np.abs(np.log(size))))


def _split(whole: Sum, weight: np.ndarray, frequency: np.ndarray, mean: float) -> tuple[np.ndarray, np.ndarray]:
    """The same where one loss at least is above the cut: s^n expm1(n log1p(r l / s)) / expm1(n log1p(r))."""
    loss, n = whole.step.loss, whole.times
    rest, (small, low), (large, high) = whole.parts(weight)
    log, doubt = _logs(low, loss[small], frequency, n)
    far, off = _logs(high, loss[~small], frequency, 1)
    ratio = large / rest
    inner = ratio * np.exp(far - log / n)
    with np.errstate(over="ignore", invalid="ignore"):
        grown = _expm1(n * _log1p(inner))
        most = np.exp(np.minimum(n * np.log1p(np.abs(inner)), 700.0))
    whole_of = math.expm1(min(n * math.log1p(ratio), 700.0))
    value = np.exp(log - 1j * frequency * mean) * grown / whole_of
    size = np.exp(np.minimum(log.real, 0.0))
    slope = size * most * n * np.abs(inner) / whole_of  # of the value, in the log of `inner`
    doubt_far = np.minimum(np.expm1(np.minimum(off + doubt / n + 16 * UNIT, 1.0)), 2.0)
    return value, np.minimum(np.abs(value) * np.expm1(np.minimum(doubt + 1e-14, 1.0)) + slope * doubt_far, 2.0)


def _log1p(z: np.ndarray) -> np.ndarray:
    """log(1 + z); numpy's own loses small complex z."""
    return np.log1p(2 * z.real + z.real**2 + z.imag**2) / 2 + 1j * np.arctan2(z.imag, 1 + z.real)


def _expm1(z: np.ndarray) -> np.ndarray:
    return np.expm1(z.real) * np.cos(z.imag) - 2 * np.sin(z.imag / 2) ** 2 + 1j * np.exp(z.real) * np.sin(z.imag)


def _transform(weight: np.ndarray, loss: np.ndarray, frequency: np.ndarray, careful: bool) -> tuple[np.ndarray, np.ndarray]:
    """E e^{iwY} of one centred loss, and how far off it may be."""
    reach = frequency * float(weight @ np.abs(loss))
    if careful:
        value = np.empty(len(frequency), complex)
        for start in range(0, len(frequency), 64):
            angle = np.multiply.outer(frequency[start : start + 64], loss)
            value[start : start + 64] = 1 - 2 * np.sin(angle / 2) ** 2 @ weight + 1j * (np.sin(angle) @ weight)
        return value, UNIT * (2 + 64 * np.minimum(reach, 2.0))
    block = math.isqrt(len(frequency)) + 1
    gap = frequency[1] if len(frequency) > 1 else 0.0
    fine = np.exp(1j * np.multiply.outer(loss, gap * np.arange(block)))
    coarse = np.exp(1j * np.multiply.outer(gap * block * np.arange(-(-len(frequency) // block)), loss)) * weight
    return (coarse @ fine).ravel()[: len(frequency)], UNIT * (len(loss) + 64 + 8 * reach)


def _fades(weight: np.ndarray, loss: np.ndarray, times: int, gap: float, count: int) -> int:
    """The number of frequencies after which all, up to `count`, are shown to be below e^-FADED; `count` where none is."""
    loss = loss - float(weight @ loss)
    variance = float(weight @ loss**2)
    spread = math.sqrt(times * variance)
    coarse = 4.0 / spread  # between two of these the square of one step's transform grows by at most 4 / times
    first = math.sqrt(2 * (FADED + 4)) / spread
    if times < 200 or first > count * gap or count * gap / coarse > 2e4:
        return count
    at = np.arange(0.0, count * gap + coarse, coarse)
    square = np.abs(_transform(weight, loss, at, False)[0]) ** 2 + coarse**2 * variance / 4 + 1e-12
    size = np.maximum(square[:-1], square[1:])
    high = np.flatnonzero(times / 2 * np.log(np.minimum(size, 1.0)) > -FADED)
    return min(math.ceil(at[high[-1] + 1] / gap) + 1, count) if len(high) else 2
