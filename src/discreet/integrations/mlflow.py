"""MLflow: a release beside the run that made it. What is claimed becomes tags, what attacks reached metrics."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from discreet.core import Claim, Evidence, Release, check
from discreet.errors import MissingExtra
from discreet.figures import up

__all__ = ["log"]

LEVELS = (0.01, 0.001)


def log(release: Release[Any], *, delta: float, confidence: float = 0.95, folder: str = "discreet") -> None:
    """Log a release to the active MLflow run (MLflow starts one where there is none).

    Tags: `discreet.source`, and of each claim `epsilon` at `delta`, `delta`, `unit`, `relation` and `view`; a second claim has
    `discreet.claim_2.epsilon` and so on. Metrics, for each attack: the area under its curve, true-positive rates at 1 % and
    0.1 % with their intervals, and the epsilon it shows. Artifacts, under `folder`: release.json and release.html.
    """
    check.small_fraction("delta", delta)
    check.open_fraction("confidence", confidence)
    try:
        import mlflow
    except ImportError:
        raise MissingExtra("mlflow", "mlflow", "Logging to MLflow") from None
    from discreet.report import html

    mlflow.set_tags(dict(tags(release, delta)))
    mlflow.log_metrics(dict(metrics(release, delta, confidence)))
    mlflow.log_text(json.dumps(release.to_json(), allow_nan=False), f"{folder}/release.json")
    mlflow.log_text(html(release), f"{folder}/release.html")


def tags(release: Release[Any], delta: float) -> Iterator[tuple[str, str]]:
    """What is claimed, by name; an epsilon is rounded up, and `inf` where nothing is claimed."""
    yield "discreet.source", release.source
    if release.entry:
        yield "discreet.entry", ", ".join(release.entries)
    about_value = release.claims_on_value
    for place, claim in enumerate(about_value, 1):
        start = "discreet" if place == 1 else f"discreet.claim_{place}"
        yield from ((f"{start}.{name}", text) for name, text in _claim_tags(claim, delta))
    machine = [claim for claim in release.claims if claim not in about_value]
    for place, claim in enumerate(machine, 1):  # about the machine that computed on ciphertexts, not about what is released
        start = "discreet.machine" if place == 1 else f"discreet.machine_{place}"
        yield from ((f"{start}.{name}", text) for name, text in _claim_tags(claim, delta))
    if machine and not about_value:
        yield "discreet.epsilon", "inf"


def metrics(release: Release[Any], delta: float, confidence: float) -> Iterator[tuple[str, float]]:
    """What each attack reached, by name."""
    counts: dict[str, int] = {}
    for evidence in release.evidence:
        name = re.sub(r"[^\w\-. /]", "_", evidence.attack)
        counts[name] = counts.get(name, 0) + 1
        start = f"discreet.{name}" if counts[name] == 1 else f"discreet.{name}_{counts[name]}"
        yield from ((f"{start}.{metric}", value) for metric, value in _reached(evidence, delta, confidence))


def _claim_tags(claim: Claim, delta: float) -> Iterator[tuple[str, str]]:
    from discreet.audit.judge import ceiling_of

    epsilon = ceiling_of(claim.event).epsilon(delta)
    yield "epsilon", up(epsilon) if math.isfinite(epsilon) else "inf"
    yield "delta", f"{delta:g}"
    yield "unit", claim.game.unit.name
    yield "relation", claim.game.unit.relation
    yield "view", ", ".join(sorted(claim.game.view))


def _reached(evidence: Evidence, delta: float, confidence: float) -> Iterator[tuple[str, float]]:
    from discreet.audit import epsilon_at_least, tpr_interval

    yield "auc", evidence.auc()
    for level in LEVELS:
        low, high = tpr_interval(evidence, level, confidence)
        yield f"tpr_at_{level:g}", evidence.tpr(level)
        yield f"tpr_at_{level:g}_low", low
        yield f"tpr_at_{level:g}_high", high
    yield "epsilon_at_least", epsilon_at_least(evidence, delta, confidence)
