"""How often does a verdict refute a true claim, and how often a false one? And how tight is Clopper–Pearson?

    PYTHONPATH=src python bench/verdicts.py [--quick] [--runs 2000] [--jobs 2] [--part size|power|monotone|twins|rates]
                                            [--out bench/results/verdicts.json]

`size`: mechanisms that attain their claim exactly (pure, approximate, Gaussian, subsampled), audited with the best score
there is; a verdict at 95 % may refute them in 5 % of runs, `limit` adds two standard errors. `power`: false claims, audited
at 99.9 % by `verdict` (whole), by `fixed`, the rule before (guesses counted over all runs with three quarters of the error, as
if their number had been fixed beforehand), and by `one_delta`, the rule before that, for growing numbers of runs. `unsure` is
how often `verdict` does not say "holds". `monotone`: 40 runs that leak, followed by 400 of noise, of the opposite, or of copies
with the truths reversed; and leaks that come and go: how often either rule takes a refutation back at a longer prefix.
`twins`: as `power` for the planted bugs of tests/stats/test_audit_twins.py, scored by the distinguisher. `rates`: the bound
`clopper_pearson` beside the published one on two rates, at thresholds fixed beforehand with the error split over them
(Bonferroni), and beside that of a threshold chosen on half of the runs.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from _record import write
from discreet.accounting import curve
from discreet.audit import epsilon_lower_bound, verdict
from discreet.audit.binomial import rate_ceiling, rate_floor
from discreet.audit.bounds.betting import from_guesses
from discreet.audit.bounds.clopper_pearson import clopper_pearson, on_the_other_half
from discreet.audit.bounds.gaussian import mu_of
from discreet.audit.bounds.order import surest_first
from discreet.audit.judge import _one_by_one, worth_testing
from discreet.audit.lines import lines_of, violation
from discreet.core import Approximate, Claim, Event, Evidence, Game, Gaussian, Poisson, Pure, Repeat, record

GAME = Game(record(), {"answers"})
ALPHA, SURE = 0.05, 0.999
PARTS = ("size", "power", "monotone", "twins", "rates")
SIZES = (300,)  # runs of each audit of a true claim
Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def laplace(epsilon: float) -> Draw:
    return lambda draw, inside: inside + draw.laplace(scale=1 / epsilon, size=len(inside))


def gaussian(sigma: float) -> Draw:
    return lambda draw, inside: inside + sigma * draw.normal(size=len(inside))


def leaks(epsilon: float, delta: float) -> Draw:
    """Randomised response that gives the truth away with probability `delta`."""

    def scores(draw: np.random.Generator, inside: np.ndarray) -> np.ndarray:
        kept = inside ^ (draw.random(len(inside)) > 1 / (1 + math.exp(-epsilon)))
        return np.where(draw.random(len(inside)) < delta, np.where(inside, 9.0, -9.0), np.where(kept, 1.0, -1.0))

    return scores


def sampled(rate: float, sigma: float, steps: int) -> Draw:
    """The log-likelihood ratio of noisy sums of Poisson samples."""

    def scores(draw: np.random.Generator, inside: np.ndarray) -> np.ndarray:
        part = inside[:, None] & (draw.random((len(inside), steps)) < rate)
        sums = part + sigma * draw.normal(size=part.shape)
        return np.log1p(rate * np.expm1((sums - 0.5) / sigma**2)).sum(axis=1)

    return scores


def uneven(share: float, epsilon: float) -> Draw:
    """One event of this share of the members, e^epsilon times rarer among others, in noise: nothing tells of who is outside."""

    def scores(draw: np.random.Generator, inside: np.ndarray) -> np.ndarray:
        often = np.where(inside, share, share * math.exp(-epsilon))
        return np.where(draw.random(len(inside)) < often, 9.0, draw.normal(size=len(inside)))

    return scores


TRUE: dict[str, tuple[Event, Draw]] = {
    "pure 1": (Pure(1.0), laplace(1.0)),
    "pure 4": (Pure(4.0), laplace(4.0)),
    "approximate 1, 0.01": (Approximate(1.0, 0.01), leaks(1.0, 0.01)),
    "approximate 0.5, 0.1": (Approximate(0.5, 0.1), leaks(0.5, 0.1)),
    "gaussian 1": (Gaussian(1.0), gaussian(1.0)),
    "gaussian 2": (Gaussian(2.0), gaussian(2.0)),
    "subsampled 4 x 0.25, 1": (Repeat(Poisson(0.25, Gaussian(1.0)), 4), sampled(0.25, 1.0, 4)),
    "subsampled 8 x 0.1, 0.7": (Repeat(Poisson(0.1, Gaussian(0.7)), 8), sampled(0.1, 0.7, 8)),
}
FALSE: dict[str, tuple[Event, Draw, tuple[int, ...]]] = {
    "leak 0.009 under 1, 1e-6": (Approximate(1.0, 1e-6), leaks(0.0, 0.009), (10**4, 10**5, 10**6)),
    "leak 0.009 under 1, 1e-3": (Approximate(1.0, 1e-3), leaks(0.0, 0.009), (10**4, 10**5, 10**6)),
    "leak 10 x delta under 1, 1e-3": (Approximate(1.0, 1e-3), leaks(1.0, 0.01), (10**4, 10**5, 10**6)),
    "leak 10 x delta under 1, 1e-4": (Approximate(1.0, 1e-4), leaks(1.0, 1e-3), (10**4, 10**5, 10**6)),
    "leak 10 x delta under 0.5, 0.01": (Approximate(0.5, 0.01), leaks(0.5, 0.1), (200, 2000, 20_000)),
    "uneven 1.8 under 1": (Pure(1.0), uneven(0.1, 1.8), (1000, 10_000, 100_000)),
    "uneven, 1 % of members": (Pure(1.0), uneven(0.01, 6.0), (1000, 10_000, 100_000)),
    "pure 1.3 under 1": (Pure(1.0), laplace(1.3), (500, 5000, 50_000)),
    "pure 5 under 4": (Pure(4.0), laplace(5.0), (500, 5000, 50_000)),
    "half the Gaussian noise": (Gaussian(1.0), gaussian(0.5), (100, 1000, 10_000)),
    "gaussian 0.75 under 1": (Gaussian(1.0), gaussian(0.75), (500, 5000, 50_000)),
    "subsampled 0.8 under 1": (Repeat(Poisson(0.25, Gaussian(1.0)), 4), sampled(0.25, 0.8, 4), (500, 5000, 50_000)),
}


def evidence(score: np.ndarray, inside: np.ndarray) -> Evidence:
    run = np.arange(len(inside))
    return Evidence(game=GAME, attack="best", score=score, inside=inside, run=run, design="paired")


def size(name: str, count: int, runs: int) -> dict[str, Any]:
    """How often a claim that is attained exactly is refuted."""
    event, scores = TRUE[name]
    ceiling = curve(event)
    draw = np.random.default_rng([1, list(TRUE).index(name), count])
    refuted = 0
    for _ in range(runs):
        inside = draw.random(count) < 0.5
        refuted += _one_by_one(ceiling, scores(draw, inside), inside, ALPHA, None)[0] is not None
    limit = ALPHA + 2 * math.sqrt(ALPHA * (1 - ALPHA) / runs)
    return {"claim": name, "targets": count, "runs": runs, "refuted": refuted, "rate": refuted / runs, "limit": limit}


def one_delta(event: Event, score: np.ndarray, inside: np.ndarray, confidence: float) -> bool:
    """The rule before: guesses counted at one delta that shrinks with the runs, and at two large ones."""
    ceiling = curve(event)
    least = 0.0 if math.isfinite(ceiling.epsilon(0.0)) else 0.1 / max(len(inside), 10)
    deltas = (least, *(each for each in (0.01, 0.1) if ceiling.epsilon(each) < 0.8 * ceiling.epsilon(least)))
    share = 1 - (1 - confidence) / len(deltas)
    run = np.arange(len(inside))
    return any(epsilon_lower_bound(score, inside, run, each, share) > ceiling.epsilon(each) for each in deltas)


def fixed(event: Event, score: np.ndarray, inside: np.ndarray, confidence: float) -> bool:
    """The rule before: three quarters of the error for guesses counted over all runs, which noise behind them weakens."""
    ceiling, alpha = curve(event), 1 - confidence
    deltas = worth_testing(ceiling, len(score), alpha, independent=True)
    right = surest_first(score, inside)
    if any(from_guesses(right, each, 0.75 * alpha / len(deltas), independent=True) > ceiling.epsilon(each) for each in deltas):
        return True
    lines = lines_of(ceiling)
    return violation(lines, score, inside, np.full(len(lines), 0.25 * alpha / max(len(lines), 1))) is not None


def power(name: str, runs: int) -> list[dict[str, Any]]:
    """How often a false claim is refuted, by the whole curve and by the rule before, as runs are added."""
    event, scores, sizes = FALSE[name]
    rows = []
    for count in sizes:
        repeat = max(3, min(runs, runs * 20_000 // count))
        draw = np.random.default_rng([2, list(FALSE).index(name), count])
        tally = np.zeros(4)
        for _ in range(repeat):
            inside = draw.random(count) < 0.5
            score = scores(draw, inside)
            judged = verdict(Claim(game=GAME, event=event), evidence(score, inside), confidence=SURE)
            tally += (
                judged.outcome == "refuted", fixed(event, score, inside, SURE), one_delta(event, score, inside, SURE),
                judged.outcome != "holds",
            )  # fmt: skip
        whole, before, single, unsure = tally / repeat
        rows.append({
            "claim": name, "targets": count, "runs": repeat, "whole": whole, "fixed": before, "one_delta": single,
            "unsure": unsure,
        })  # fmt: skip
    return rows


LEAKS: dict[str, tuple[Event, Draw]] = {
    "pure": (Pure(1.0), leaks(9.0, 0.0)),
    "approximate": (Approximate(1.0, 1e-3), leaks(0.5, 0.9)),
    "gaussian": (Gaussian(1.0), gaussian(0.2)),
}
FOLLOWED = ("noise", "adverse", "copies", "random")


def followed(kind: str, by: str, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores and truths of 40 leaking runs with ten times as many behind them; or a leak that comes and goes."""
    scores = LEAKS[kind][1]
    inside = draw.random(440) < 0.5
    score = np.asarray(scores(draw, inside), dtype=float)
    rest = slice(40, None)
    if by == "noise":
        score[rest] = draw.permutation(score[rest])
    elif by == "adverse":
        score[rest] = scores(draw, ~inside[rest])
    elif by == "copies":
        score[rest], inside[rest] = np.tile(score[:40], 10), np.tile(~inside[:40], 10)
    else:
        blind = np.repeat(draw.random(22) < 0.7, 20)
        score[blind] = draw.permutation(score[blind])
    return score, inside


def monotone(kind: str, by: str, sequences: int) -> dict[str, Any]:
    """How often a refutation of a prefix is taken back by a longer one: `verdict`, and the rule before."""
    event = LEAKS[kind][0]
    draw = np.random.default_rng([5, list(LEAKS).index(kind), FOLLOWED.index(by)])
    back, reached = np.zeros(2, dtype=int), np.zeros(2, dtype=int)
    for _ in range(sequences):
        score, inside = followed(kind, by, draw)
        paths = np.array([
            (
                _one_by_one(curve(event), score[:count], inside[:count], ALPHA, None)[0] is not None,
                fixed(event, score[:count], inside[:count], 1 - ALPHA),
            )
            for count in range(40, 441, 40)
        ])  # fmt: skip
        reached += paths.any(axis=0)
        back += (np.diff(paths.astype(int), axis=0) < 0).any(axis=0)
    return {
        "claim": kind, "followed_by": by, "sequences": sequences, "refuted": int(reached[0]), "taken_back": int(back[0]),
        "refuted_before": int(reached[1]), "taken_back_before": int(back[1]),
    }  # fmt: skip


def twins(name: str, runs: int, audits: int) -> dict[str, Any]:
    """The same for one planted bug, scored by the distinguisher on as many runs as it learned from."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "stats"))
    from test_audit_twins import TWINS  # type: ignore[import-not-found]

    from discreet.audit.conformance import distinguish
    from discreet.audit.floats import Hints
    from discreet.audit.worlds import Pair

    twin = next(each for each in TWINS if each.__name__ == name)
    tally = np.zeros(4)
    for seed in range(audits):
        mechanism = twin()
        mechanism.random = np.random.default_rng([3, seed])
        claim = mechanism.claims()[0]
        [pair] = mechanism.neighbours()
        trial = distinguish(mechanism, Pair(*pair, seed=seed), claim.game, runs=runs, alpha=1 - SURE, hints=Hints())
        seen = trial.evidence
        judged = verdict(claim, seen, confidence=SURE)
        tally += (
            judged.outcome == "refuted", fixed(claim.event, seen.score, seen.inside, SURE),
            one_delta(claim.event, seen.score, seen.inside, SURE), judged.outcome != "holds",
        )  # fmt: skip
    whole, before, single, unsure = tally / audits
    return {
        "twin": name, "runs": runs, "audits": audits, "whole": whole, "fixed": before, "one_delta": single, "unsure": unsure
    }  # fmt: skip


def two_rates(score: np.ndarray, inside: np.ndarray, delta: float, cuts: np.ndarray) -> float:
    """The published bound: exact intervals on both rates at thresholds fixed beforehand, in both directions (Bonferroni)."""
    members, others = score[inside], score[~inside]
    hits, alarms = ((side[:, None] >= cuts).sum(axis=0).astype(float) for side in (members, others))
    level = ALPHA / (2 * len(cuts))
    up = _ratio(delta)(hits, alarms, len(members), len(others), level)
    down = _ratio(delta)(len(others) - alarms, len(members) - hits, len(others), len(members), level)
    return max(0.0, float(up.max()), float(down.max()))


def _ratio(delta: float) -> Callable[..., np.ndarray]:
    def value(believed: np.ndarray, mistaken: np.ndarray, ones: int, others: int, level: float) -> np.ndarray:
        low = rate_floor(believed, ones, level / 2) - delta
        return np.log(np.maximum(low, 1e-300) / rate_ceiling(mistaken, others, level / 2))

    return value


def rates(law: str, epsilon: float, delta: float, count: int, runs: int) -> dict[str, Any]:
    """The mean bounds, and how often ours is above the truth."""
    draw = np.random.default_rng([4, law == "laplace", round(10 * epsilon), count])
    noise = 1 / epsilon if law == "laplace" else 1 / mu_of(epsilon, max(delta, 1e-5))
    rows = []
    for _ in range(runs):
        inside = draw.random(count) < 0.5
        score = inside + noise * (draw.laplace(size=count) if law == "laplace" else draw.normal(size=count))
        rows.append((
            clopper_pearson(score, inside, np.arange(count), delta, ALPHA),
            *(two_rates(score, inside, delta, np.linspace(-3, 4, number)) for number in (10, 50)),
            max(0.0, on_the_other_half(score, inside, np.arange(count), _ratio(delta), ALPHA)),
        ))  # fmt: skip
    ours, ten, fifty, half = np.mean(rows, axis=0)
    return {
        "law": law, "epsilon": epsilon, "delta": delta, "targets": count, "runs": runs, "clopper_pearson": ours,
        "bonferroni_10": ten, "bonferroni_50": fifty, "half": half,
        "false_claims": float(np.mean([row[0] > epsilon for row in rows])),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few runs of few settings, to see that it works")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--part", choices=PARTS, help="one table alone, merged into --out")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    runs = 50 if asked.quick else asked.runs
    began = time.perf_counter()
    with ProcessPoolExecutor(asked.jobs) as pool:
        jobs = _jobs(pool, runs, quick=asked.quick)
        tables = {part: [job.result() for job in submit()] for part, submit in jobs.items() if asked.part in (None, part)}
    if "power" in tables:
        tables["power"] = [row for rows in tables["power"] for row in rows]
    show(tables)
    if asked.out:
        import json

        kept = json.loads(asked.out.read_text()) if asked.part and asked.out.exists() else {}
        kept = {part: kept[part] for part in (*PARTS, "seconds") if part in kept}
        seconds = {**kept.pop("seconds", {}), asked.part or "all": round(time.perf_counter() - began, 1)}
        write(asked.out, {"size_confidence": 1 - ALPHA, "power_confidence": SURE, **kept, **tables, "seconds": seconds})
    taken_back = any(row["taken_back"] for row in tables.get("monotone", ()))
    return int(taken_back or any(row["rate"] > row["limit"] for row in tables.get("size", ())))


def _jobs(pool: ProcessPoolExecutor, runs: int, *, quick: bool) -> dict[str, Callable[[], list[Any]]]:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "stats"))
    from test_audit_twins import TWINS

    few = max(4, runs // 50)
    laws = [("laplace", 0.0), ("gaussian", 1e-5), ("gaussian", 1e-3)]
    cells = [(law, e, d, n) for law, d in laws for e in (0.5, 1.0, 2.0, 4.0, 8.0) for n in (200, 1000, 5000, 20_000)]
    return {
        "size": lambda: [pool.submit(size, name, count, runs) for name in TRUE for count in SIZES],
        "power": lambda: [pool.submit(power, name, few) for name in (list(FALSE)[4:6] if quick else FALSE)],
        "monotone": lambda: [pool.submit(monotone, kind, by, few // 2) for kind in LEAKS for by in FOLLOWED],
        "twins": lambda: [pool.submit(twins, each.__name__, 960, few // 4) for each in TWINS],
        "rates": lambda: [pool.submit(rates, *cell, few) for cell in (cells[:2] if quick else cells)],
    }


def show(tables: dict[str, list[dict[str, Any]]]) -> None:
    """The tables for people."""
    for part, rows in tables.items():
        print(f"\n{part}")
        for row in rows:
            print("  ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))


if __name__ == "__main__":
    sys.exit(main())
