"""Cases of bench/gradients.py: tables by relaxation, and the two-worlds game on updates with and without defences."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad, vmap

from _clients import share
from _updates import Adult, mlp, sent
from discreet.accounting import calibrate
from discreet.attack.gradients import gradients
from discreet.audit import appraise
from discreet.core import Claim, Evidence, Game, Gaussian, record

Rows = list[dict[str, Any]]
CLOSE = 0.319  # of a standard deviation: a number this near is right, as in TabLeak
DELTA = 1e-5


def right_cells(table: Adult, truth: Tensor, found: Tensor) -> Tensor:
    """Which cells are right, rows x columns."""
    columns = []
    for kind, place in zip(table.layout.categories, table.layout.parts()):
        if kind is None:
            columns.append((truth[:, place.start] - found[:, place.start]).abs() <= CLOSE)
        else:
            columns.append(truth[:, place].argmax(1) == found[:, place].argmax(1))
    return torch.stack(columns, 1)


def guess(table: Adult, count: int) -> Tensor:
    """The row of the most frequent category and the median of each public column."""
    row = torch.zeros(table.layout.width)
    for kind, place in zip(table.layout.categories, table.layout.parts()):
        part = table.public[:, place]
        row[place] = part.median(0).values if kind is None else F.one_hot(part.sum(0).argmax(), len(kind)).float()
    return row.expand(count, -1)


def cells(data: Path, quick: bool) -> Rows:
    """Adult through two ReLU layers of 100: cells right by the exact search, and by relaxation alone."""
    table, out = Adult(data), []
    for size, method in ((32, "auto"), (128, "auto"), (32, "tables")):
        right, base, whole, sure, top, spent = [], [], 0, [], [], []
        updates = 5 if size == 32 and method == "auto" and not quick else 1
        for seed in range(updates):
            torch.manual_seed(seed)
            model = mlp(table.layout.width, 100, 2)
            rows, labels = table.batch(size, seed)
            found = gradients(
                model, sent(model, rows, labels), batch=size, data=table.schema, public=table.public, method=method,
                seconds=10.0, steps=600, seed=seed,
            )  # fmt: skip
            if len(found) < size:
                found_rows = torch.cat([found.rows, guess(table, size - len(found)).double()])
                trust = torch.cat([torch.ones(len(found), 14), torch.zeros(size - len(found), 14)])
            else:
                found_rows, trust = found.rows, found.confidence
            order = _order(rows, found_rows)
            hits = right_cells(table, rows, found_rows[order].float())
            confidence = (trust if trust.dim() == 2 else trust[:, None].expand(-1, 14))[order]
            right.append(float(hits.float().mean()))
            base.append(float(right_cells(table, rows, guess(table, size)).float().mean()))
            whole += int(hits.all(1).sum())
            sure.append((int(hits[confidence >= 0.9].sum()), int((confidence >= 0.9).sum())))
            best = confidence.flatten().argsort(descending=True)[: hits.numel() // 4]
            top.append(float(hits.flatten()[best].float().mean()))
            spent.append(found.seconds)
        out.append(
            {
                "batch": size, "method": method, "updates": updates, "cells_right": statistics.fmean(right),
                "baseline": statistics.fmean(base), "minus_baseline": statistics.fmean(right) - statistics.fmean(base),
                "rows_whole": share(whole, size * updates), "surest_quarter_right": statistics.fmean(top),
                "said_at_90_percent": share(sum(hit for hit, _ in sure), max(1, sum(count for _, count in sure))),
                "cpu_seconds_median": statistics.median(spent),
            }
        )  # fmt: skip
        print(out[-1], flush=True)
    return out


def _order(truth: Tensor, found: Tensor) -> Tensor:
    from scipy.optimize import linear_sum_assignment

    return torch.as_tensor(linear_sum_assignment(torch.cdist(truth.double(), found.double()).numpy())[1])


def game(data: Path, quick: bool) -> Rows:
    """Two candidate rows, one of which was in the batch, by a fair coin; who attacks knows the other rows and the model.

    The score is how much nearer the update is to the one that the first candidate would have caused. Updates with noise have a
    claim: clipped rows, one of them replaced, and Gaussian noise on their sum. The clip norm, the median of the rows' norms, is
    taken as public.
    """
    table, runs = Adult(data), 200 if quick else 1000
    torch.manual_seed(0)
    model = mlp(table.layout.width, 100, 2)
    each = _per_row(model, table.rows[:1000], table.labels[:1000])
    clip = float(each.norm(dim=1).median())
    clipped = each * (clip / each.norm(dim=1, keepdim=True)).clamp(max=1.0)
    out: Rows = []
    for size in (8, 128):
        for epsilon in (1.0, 8.0, 100.0, None):
            noise = 0.0 if epsilon is None else calibrate(lambda multiplier: Gaussian(multiplier), epsilon, DELTA)
            out.append(_played(clipped if epsilon else each, size, runs, _noisy(2 * clip * noise), epsilon, noise))
        for name, defence in (("top 10 % kept", _pruned), ("signs alone", torch.sign), ("8 bits", _quantised)):
            out.append(_played(each, size, runs, lambda total, _, defence=defence: defence(total), None, 0.0, name))
    return out


def _played(
    parts: Tensor, size: int, runs: int, defence: Callable[[Tensor, torch.Generator], Tensor], epsilon: float | None,
    noise: float, name: str = "noise",
) -> dict[str, Any]:  # fmt: skip
    """The evidence of so many runs, beside the claim where there is one."""
    generator, random = torch.Generator().manual_seed(size), np.random.default_rng(size)
    inside, scores = random.random(runs) < 0.5, np.zeros(runs)
    for run in range(runs):
        chosen = random.choice(len(parts), size + 1, replace=False)
        others = parts[chosen[2:]].sum(0)
        first, second = parts[chosen[0]], parts[chosen[1]]
        seen = defence(others + (first if inside[run] else second), generator)
        known = [defence(others + one, generator) if name != "noise" else others + one for one in (first, second)]
        scores[run] = float(((seen - known[1]) ** 2).sum() - ((seen - known[0]) ** 2).sum())
    unit = record("replace")
    played = Game(unit, {"updates"})
    evidence = Evidence(
        game=played, attack="nearest of two updates", score=scores, inside=inside, run=np.arange(runs), design="paired"
    )
    claims = (Claim(game=played, event=Gaussian(noise), assumptions=("rows clipped one by one",)),) if epsilon else ()
    found = appraise(evidence, claims, confidence=0.95, delta=DELTA)
    return {
        "defence": name if epsilon or name != "noise" else "none", "batch": size, "runs": runs, "epsilon_claimed": epsilon,
        "epsilon_floor": found.epsilon, "advantage": evidence.roc().advantage(), "auc": evidence.auc(),
        "auc_low": found.auc.low, "auc_high": found.auc.high, "verdict": found.outcome,
    }  # fmt: skip


def _per_row(model: torch.nn.Module, rows: Tensor, labels: Tensor) -> Tensor:
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def loss(chosen: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, chosen, (row[None],)), label[None])

    made = vmap(grad(loss), (None, 0, 0))(weights, rows, labels)
    return torch.cat([value.flatten(1) for value in made.values()], 1)


def _noisy(deviation: float) -> Callable[[Tensor, torch.Generator], Tensor]:
    return lambda total, generator: total + deviation * torch.randn(total.shape, generator=generator)


def _pruned(total: Tensor) -> Tensor:
    return total * (total.abs() >= total.abs().quantile(0.9))


def _quantised(total: Tensor) -> Tensor:
    step = total.abs().max() / 127
    return (total / step).round() * step


def defended(data: Path, quick: bool) -> Rows:
    """The reconstruction of 8 rows of Adult from one gradient behind each defence: rows read, and what guessing reads."""
    table, updates = Adult(data), 3 if quick else 10
    out: Rows = []
    kinds: list[tuple[str, float | None, Callable[[Tensor, torch.Generator], Tensor] | None]] = [
        ("none", None, None), ("noise", 100.0, None), ("noise", 8.0, None), ("noise", 1.0, None),
        ("half precision", None, lambda value, _: value.half().float()), ("8 bits", None, lambda value, _: _quantised(value)),
        ("top 10 % kept", None, lambda value, _: _pruned(value)),
    ]  # fmt: skip
    for name, epsilon, change in kinds:
        read, base = 0, 0
        for seed in range(updates):
            torch.manual_seed(seed)
            model, generator = mlp(table.layout.width, 100, 2), torch.Generator().manual_seed(seed)
            rows, labels = table.batch(8, seed)
            update = sent(model, rows, labels)
            if epsilon:
                update = _private(model, rows, labels, epsilon, generator)
            elif change:
                update = {key: change(value, generator) for key, value in update.items()}
            found = gradients(
                model, update, batch=8, data=table.schema, public=table.public, seconds=1.0, steps=100, seed=seed
            )  # fmt: skip
            read += _rows_right(table, rows, found.rows.float())
            base += _rows_right(table, rows, guess(table, 8))
        out.append(
            {
                "defence": name, "epsilon_claimed": epsilon, "rows_read": share(read, 8 * updates),
                "baseline": base / (8 * updates), "minus_baseline": (read - base) / (8 * updates),
            }
        )  # fmt: skip
        print(out[-1], flush=True)
    return out


def _rows_right(table: Adult, rows: Tensor, found: Tensor) -> int:
    """Rows of which all cells are right, of whichever recovered row is best."""
    return sum(bool(right_cells(table, row.expand(len(found), -1), found).all(1).any()) for row in rows) if len(found) else 0


def _private(model: torch.nn.Module, rows: Tensor, labels: Tensor, epsilon: float, generator: torch.Generator) -> Any:
    """The mean of clipped rows and Gaussian noise, for one row replaced."""
    each = _per_row(model, rows, labels)
    clip = float(each.norm(dim=1).median())
    total = (each * (clip / each.norm(dim=1, keepdim=True)).clamp(max=1.0)).sum(0)
    noise = 2 * clip * calibrate(lambda multiplier: Gaussian(multiplier), epsilon, DELTA)
    total = (total + noise * torch.randn(total.shape, generator=generator)) / len(rows)
    sizes = [value.numel() for value in model.parameters()]
    pieces = zip(model.named_parameters(), total.split(sizes))
    return {name: piece.reshape(value.shape) for (name, value), piece in pieces}
