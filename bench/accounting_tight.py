"""How far above the truth epsilon is, over a grid of noise, rate, steps and delta.

    python bench/accounting_tight.py [--quick] [--out bench/results/accounting-tight.json]

Two truths, neither of which uses a lattice or a fitted grid. Gaussian mechanisms that hide what they are compose to one
Gaussian, known in closed form (50 digits). Sampled Gaussians are integrated on a contour through the saddle point in the
plane of the Laplace transform, with excesses over 1 computed by series, so that 10^9 steps lose no digits; cells where that
integral does not settle (rare losses, where the integrand hardly decays) are counted and left out.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import dataclasses
import itertools
import math
import time
import warnings

import mpmath as mp
import numpy as np
from scipy.optimize import brentq

from _record import write
from discreet.accounting import Gaussian, Poisson, Repeat, curve
from discreet.accounting import profile as profiles
from discreet.accounting.composition import Composition

warnings.simplefilter("ignore")
SERIES = [1 / math.factorial(k) for k in range(19, 1, -1)]
DELTAS = (1e-300, 1e-100, 1e-30, 1e-15, 1e-10, 1e-7, 1e-5, 1e-3)


def one_gaussian(mu: float, delta: float) -> float:
    """epsilon of one Gaussian mechanism with shift mu, in high precision."""
    with mp.workdps(50):
        m = mp.mpf(mu)

        def at(e: mp.mpf) -> mp.mpf:
            a, b = e / m - m / 2, e / m + m / 2
            return (mp.erfc(a / mp.sqrt(2)) - mp.exp(e) * mp.erfc(b / mp.sqrt(2))) / 2

        low, high = mp.mpf(0), 60 * m + m * m
        if at(low) <= delta:
            return 0.0
        for _ in range(90):
            middle = (low + high) / 2
            low, high = (low, middle) if at(middle) <= delta else (middle, high)
        return float(high)


class Contour:
    """E[(1 - e^{epsilon - Y})+] of sampled Gaussians as an integral along Re s = t."""

    def __init__(self, sigma: float, rate: float, times: int, backward: bool, delta: float) -> None:
        self.sigma, self.rate, self.times, self.backward = sigma, rate, times, backward
        # what lies beyond has a probability far below delta, but may rule a moment; without it the truth is not overstated
        self.last = math.sqrt(2 * (math.log(times) - math.log(delta) + 25)) + 1 / sigma

    def nodes(self, power: float) -> tuple[np.ndarray, np.ndarray]:
        """Losses and log-masses where nobody is in the sample, on a trapezoid grid that follows r^power."""
        rough = np.linspace(-45, self.last, 8000)
        heavy = rough[(exponent := -rough * rough / 2 + power * self.loss(rough)) > exponent.max() - 60]
        low, high = min(-40.0, heavy[0] - 3) if heavy[0] < 60 else heavy[0] - 3, min(heavy[-1] + 3, self.last)
        count = int(min((high - low) / min(0.025, self.sigma / 10), 2e5)) + 2
        z, gap = np.linspace(low, high, count, retstep=True)
        return self.loss(z), -z * z / 2 + math.log(gap / math.sqrt(2 * math.pi))

    def loss(self, z: np.ndarray) -> np.ndarray:
        u = z / self.sigma - 0.5 / self.sigma**2
        return np.where(u > 300, u + math.log(self.rate), np.log1p(self.rate * np.expm1(np.minimum(u, 300))))

    def tilted(self, t: float) -> tuple[float, float, float, np.ndarray, np.ndarray]:
        """log-moment, mean and variance of the sum, and weights and losses of one step."""
        power = -t if self.backward else t + 1
        loss, log = self.nodes(power)
        top = float((log + power * loss).max())
        weight = np.exp(log + power * loss - top)
        total = weight.sum()
        moment = top + math.log(total)
        if abs(moment) < 0.3:  # E[r^a] - 1 = E[e^{aL} - 1 - a(e^L - 1)], by series where that is small
            x = power * loss
            small = power * loss * loss * (power * np.polyval(SERIES, x) - np.polyval(SERIES, loss))
            moment = math.log1p(
                float((np.exp(log) * np.where(abs(x) < 0.5, small, np.expm1(x) - power * np.expm1(loss))).sum())
            )
        weight, y = weight / total, -loss if self.backward else loss
        mean = float(weight @ y)
        return self.times * moment, self.times * mean, self.times * float(weight @ (y - mean) ** 2), weight, y - mean

    def epsilon(self, delta: float, near: float) -> float | None:
        """epsilon at delta, not far from `near`; None where the integrand does not die away."""
        spread = math.sqrt(self.tilted(0.0)[2])
        low, high = 0.0, 1 / spread
        if self.tilted(low)[1] < near:
            for _ in range(60):
                if self.tilted(high)[1] > near:
                    break
                high *= 2
            else:
                return None
            t = float(brentq(lambda t: self.tilted(t)[1] - near, low, high, xtol=1e-5 / spread, rtol=1e-5))
        else:
            t = 0.0
        t = max(t, 0.5 / spread)
        log_moment, mean, variance, weight, y = self.tilted(t)
        if not variance > 0:
            return None
        keep = weight > 1e-24
        weight, y, gap = weight[keep], y[keep], min(0.1 / math.sqrt(variance), t / 8)
        turn, log = [], []
        for start in range(0, 8192, 256):
            w = (np.arange(start, start + 256) + 0.5) * gap
            half = np.sin(np.multiply.outer(w, y) / 2)
            g = (-2 * half * half) @ weight + 1j * (np.sin(np.multiply.outer(w, y)) @ weight)
            turn.append(w)
            log.append(self.times * (np.log1p(2 * g.real + abs(g) ** 2) / 2 + 1j * np.angle(1 + g)))
            if log[-1].real.max() < -40:
                break
        else:
            return None
        w, f = np.concatenate(turn), np.exp(np.concatenate(log))
        kernel = f / ((t + 1j * w) * (t + 1 + 1j * w)) * gap / math.pi

        def excess(e: float) -> float:
            value = float((kernel * np.exp(-1j * w * (e - mean))).real.sum())
            return log_moment - t * e + math.log(max(value, 1e-300)) - math.log(delta)

        width = min(0.2 * near, 1.0 / t)
        if excess(0.0) <= 0 and near < 2 / t:
            return 0.0
        if not excess(max(near - width, 0.0)) > 0 >= excess(near + width):
            return None
        return float(brentq(excess, max(near - width, 0.0), near + width, xtol=1e-13 * near))


def gaussian_rows(quick: bool) -> list[dict]:
    rows = []
    counts = (10, 10**4, 10**9) if quick else (2, 10, 100, 10**3, 10**4, 10**5, 10**6, 10**7, 10**8, 10**9)
    for shift, times, delta in itertools.product((1e-6, 1e-3, 0.1, 1.0, 5.0, 30.0), counts, DELTAS):
        sigma = math.sqrt(times) / shift
        hidden = dataclasses.replace(profiles.gaussian(sigma), shift=None)
        found = Composition(((hidden, times),)).epsilon(delta)
        rows.append(
            {"sigma": sigma, "rate": 1.0, "times": times, "delta": delta, "epsilon": found, "truth": one_gaussian(shift, delta)}
        )
    return rows


def sampled_rows(quick: bool, seconds: float) -> list[dict]:
    sigmas = (0.5, 1.0, 100.0) if quick else (0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 20.0, 1e2, 1e3, 1e5)
    rates = (1e-3, 0.1) if quick else (1e-7, 1e-5, 1e-3, 1e-2, 0.1, 0.5, 0.9)
    counts = (1000, 10**9) if quick else (100, 1000, 10**4, 10**5, 10**6, 10**7, 10**8, 10**9)
    grid = list(itertools.product(sigmas, rates, counts, DELTAS))
    np.random.default_rng(0).shuffle(grid)
    rows, began = [], time.perf_counter()
    for sigma, rate, times, delta in grid:
        if time.perf_counter() - began > seconds:
            break
        times = int(times)
        found = curve(Repeat(Poisson(rate, Gaussian(sigma)), times)).epsilon(delta)
        truth: float | None = 0.0
        if 0 < found < math.inf:
            sides = [Contour(sigma, rate, times, backward, delta).epsilon(delta, found) for backward in (False, True)]
            truth = None if sides[0] is None else max(sides[0], sides[1] or 0.0)
        rows.append({"sigma": sigma, "rate": rate, "times": times, "delta": delta, "epsilon": found, "truth": truth})
    return rows


def summary(rows: list[dict]) -> dict:
    known = [row for row in rows if row["truth"] and row["epsilon"] < math.inf]
    excess = sorted(row["epsilon"] / row["truth"] - 1 for row in known)
    return {
        "cells": len(rows), "infinite": sum(row["epsilon"] == math.inf for row in rows), "truth known": len(known),
        "least": excess[0], "median": excess[len(excess) // 2], "99 %": excess[int(0.99 * len(excess))], "largest": excess[-1],
        "above 0.5 %": sum(x > 5e-3 for x in excess),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few points only")
    parser.add_argument("--seconds", type=float, default=240.0, help="how long to go through the shuffled sampled cells")
    parser.add_argument("--out", help="write the figures here as JSON")
    options = parser.parse_args()
    tables = {"gaussian": gaussian_rows(options.quick), "sampled": sampled_rows(options.quick, options.seconds)}
    result: dict = {name: summary(rows) for name, rows in tables.items()}
    for name, rows in tables.items():
        worst = sorted((r for r in rows if r["truth"]), key=lambda r: -r["epsilon"] / r["truth"])[:20]
        result[name]["worst"] = worst
        print(name, {key: value for key, value in result[name].items() if key != "worst"})
        for row in worst[:8]:
            print("  ", row, row["epsilon"] / row["truth"] - 1)
    write(options.out, result)


if __name__ == "__main__":
    main()
