"""A recipe audited in one training run: mislabelled rows, each inside by a fair coin, and how well the model betrays the coins.

Steinke, Nasr and Jagielski (2023). The coins are the operating system's; everything else may depend on the data.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.membership import signals
from discreet.attack.membership.controls import overfit_recipe
from discreet.audit import epsilon_at_least
from discreet.audit.bounds.betting import best_possible
from discreet.core import Claim, Evidence, Game, NonPrivate, Release, check, record
from discreet.errors import InvalidValue
from discreet.models import Recipe, Trainer
from discreet.models.files import Say

__all__ = ["audit_recipe"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Injected:
    """Rows and labels, some of them mislabelled canaries; `inside` marks what is trained on."""

    X: Array
    y: Array
    canaries: Array  # their places
    inside: Array
    blind: bool = False  # no canary is trained on, whatever its coin says: a negative control

    @property
    def trained(self) -> Array:
        return self.inside & ~np.isin(np.arange(len(self.inside)), self.canaries) if self.blind else self.inside


def inject_canaries(X: Array, y: Array, count: int, seed: int | None = None) -> Injected:
    """Turn `count` rows into canaries: a wrong label each, and a fair coin that says whether it is trained on."""
    count = check.whole("canaries", count, least=10)
    bad = int((~np.isfinite(X)).reshape(len(X), -1).any(1).sum()) if X.dtype.kind == "f" else 0
    if bad:
        raise InvalidValue(
            f"{bad} of {len(X)} rows hold NaN or infinite inputs. Fill them in as the model's own preparation does, or leave "
            "those rows out."
        )
    if 2 * count > len(X):
        raise InvalidValue(
            f"{count} canaries are asked for; {len(X)} rows give at most {len(X) // 2}, to leave enough to learn from."
        )
    classes = int(y.max()) + 1
    if classes < 2:
        raise InvalidValue("All rows have the same label; a canary needs another class to be wrong in.")
    draw = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
    places = np.sort(draw.choice(len(X), count, replace=False))
    labels, inside = np.array(y, np.int64), np.ones(len(X), np.bool_)
    labels[places] = (labels[places] + draw.integers(1, classes, count)) % classes
    inside[places] = draw.random(count) < 0.5
    return Injected(X, labels, places, inside)


def score_canaries(recipe: Recipe, rows: Injected, *, device: str = "cpu", seed: int | None = None) -> tuple[Evidence, float]:
    """Train once on what is inside and score the canaries; also how often the model is right on its other rows."""
    start = secrets.randbits(31) if seed is None else seed
    scores = Trainer(recipe, device).many(rows.X, rows.y, rows.trained[None], seed=start).scores[0]
    if not np.isfinite(scores).all():
        raise InvalidValue(
            "The model of this recipe gives NaN or infinite scores: its training diverged. Lower the learning rate."
        )
    evidence = Evidence(
        game=Game(record(), {"scores"}), attack="mislabelled canaries",
        score=signals.margin(scores[rows.canaries], rows.y[rows.canaries]), inside=rows.inside[rows.canaries],
        run=np.zeros(len(rows.canaries), np.int64), design="canary",
    )  # fmt: skip
    right = scores.argmax(1) == rows.y
    return evidence, float(np.delete(right, rows.canaries).mean())


def canary_controls(
    recipe: Recipe, rows: Injected, delta: float, confidence: float, *, device: str = "cpu"
) -> list[dict[str, Any]]:
    """The same audit of an overfit control, which must be found out, and of a model that saw no canary, which must not."""
    measured = []
    for kind, name, its, those in (
        ("positive", "canaries of an overfit control", overfit_recipe(recipe, int(rows.y.max()) + 1), rows),
        ("negative", "canaries that were all left out", recipe, replace(rows, blind=True)),
    ):
        evidence, _ = score_canaries(its, those, device=device)
        reached = epsilon_at_least(evidence, delta, confidence)
        measured.append({"name": name, "kind": kind, "auc": evidence.auc(), "found": reached > 0})
    return measured


def audit_recipe(
    recipe: Recipe, X: Array, y: Array, *, canaries: int, delta: float, confidence: float, source: str,
    claims: Sequence[Claim] = (), controls: bool = True, device: str = "cpu", facts: dict[str, Any] | None = None,
    say: Say = lambda _: None,
) -> Release[dict[str, Any]]:  # fmt: skip
    """Train the recipe once with mislabelled canaries; a release with the bound on epsilon, its evidence and its controls.

    `claims` are carried over, for verdicts; without any the release claims nothing. `facts` are told beside it.
    """
    check.small_fraction("delta", delta)
    check.open_fraction("confidence", confidence)
    rows = inject_canaries(X, y, canaries)
    say(f"Training once with {canaries} mislabelled rows, {int(rows.inside[rows.canaries].sum())} of them inside.")
    evidence, accuracy = score_canaries(recipe, rows, device=device)
    if controls:
        say("Then the controls: an overfit one, and a model that sees no canary.")
    beside = canary_controls(recipe, rows, delta, confidence, device=device) if controls else []
    value = {**bound(evidence, delta, confidence), "train_accuracy": accuracy}
    inside = int(evidence.inside.sum())
    how = {
        "training runs": "1, audited by the canaries in it", "shadow models": "none",
        "canaries": f"{canaries:,} mislabelled rows: {inside:,} trained on, {canaries - inside:,} left out, by fair coins",
        "questions to the model, for each row": "1",
    }  # fmt: skip
    metadata = {"controls": beside, "quality": {"train accuracy": accuracy}, "attack_settings": how, **(facts or {})}
    nothing = (Claim(game=Game(record(), {"scores"}), event=NonPrivate()),)
    return Release(value=value, source=source, claims=tuple(claims) or nothing, evidence=(evidence,), facts=metadata)


def bound(evidence: Evidence, delta: float, confidence: float) -> dict[str, Any]:
    """The lower bound on epsilon, and the largest that so many canaries could show."""
    return {
        "canaries": len(evidence), "inside": int(evidence.inside.sum()), "auc": evidence.auc(), "delta": delta,
        "confidence": confidence, "epsilon_at_least": epsilon_at_least(evidence, delta, confidence),
        "most_that_so_many_canaries_can_show": best_possible(len(evidence), delta, 1.0 - confidence, independent=False),
    }  # fmt: skip
