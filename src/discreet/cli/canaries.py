"""A training recipe audited in one run: mislabelled rows, each inside by a fair coin, and how well the model betrays the coins.

Steinke, Nasr and Jagielski (2023). The coins are the operating system's; everything else may depend on the data.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from discreet.core import check
from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from discreet.core import Evidence
    from discreet.models import Recipe


@dataclass(frozen=True)
class Planted:
    """Rows and labels, some of them mislabelled canaries; `inside` marks what is trained on."""

    X: NDArray[Any]
    y: NDArray[Any]
    canaries: NDArray[Any]  # their places
    inside: NDArray[Any]
    blind: bool = False  # no canary is trained on, whatever its coin says: a negative control

    @property
    def trained(self) -> NDArray[Any]:
        import numpy as np

        return self.inside & ~np.isin(np.arange(len(self.inside)), self.canaries) if self.blind else self.inside


def planted(X: NDArray[Any], y: NDArray[Any], count: int, seed: int | None = None) -> Planted:
    """Turn `count` rows into canaries: a wrong label each, and a fair coin that says whether it is trained on."""
    import numpy as np

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
    return Planted(X, labels, places, inside)


def audited(recipe: Recipe, rows: Planted, *, device: str = "cpu", seed: int | None = None) -> tuple[Evidence, float]:
    """Train once on what is inside and score the canaries; also how often the model is right on its other rows."""
    import numpy as np

    from discreet.attack.membership import signals, train_shadows
    from discreet.core import Evidence, Game, record

    start = secrets.randbits(31) if seed is None else seed
    scores = train_shadows(recipe, rows.X, rows.y, rows.trained[None], seed=start, device=device).scores[0]
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


def controls(recipe: Recipe, rows: Planted, delta: float, confidence: float, *, device: str = "cpu") -> list[dict[str, Any]]:
    """The same audit of a leaky twin, which must be found out, and of a model that saw no canary, which must not."""
    from discreet.attack.membership.controls import overfit_recipe

    made = []
    for kind, name, its, those in (
        ("positive", "canaries of a leaky twin", overfit_recipe(recipe, int(rows.y.max()) + 1), rows),
        ("negative", "canaries that were all left out", recipe, replace(rows, blind=True)),
    ):
        evidence, _ = audited(its, those, device=device)
        made.append({"name": name, "kind": kind, "auc": evidence.auc(), "found": evidence.epsilon(delta, confidence) > 0})
    return made
