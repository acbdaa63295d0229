"""The case `defended` of bench/membership.py: what defences without a proof cost, and what attacks still find behind them."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _cases import Save, networks, pool, spread, threshold
from discreet.attack.membership import Recipe, membership, signals
from discreet.attack.membership.whitebox import crossfitted, outputs
from discreet.audit import tpr_interval
from discreet.heuristic.defences import adversarial_regularisation, early_stopping, l2, label_smoothing, relax_loss, selena
from discreet.models import Trainer

Array = NDArray[Any]
Pair = tuple[Array, Array]
LOST = 0.04  # of the accuracy on rows never seen, at most
ATTACKS = ("bayes_lira", "lira", "rmia", "loss")


@dataclass(frozen=True)
class Row:
    """A defence: its name, its kind, and the recipe it makes, given the reference."""

    name: str
    kind: str
    made: Callable[[Pair], Recipe]


def defended(given: Namespace, save: Save) -> dict[str, Any]:
    """A third of the rows to train on, a third as reference where a defence needs one, a third never seen.

    The game and SELENA first, then attacks with shadows on the best row of each, then what else one might try: a run that is
    cut off has lost the least.
    """
    X, y, plain = data(given)
    targets, clock = given.targets, time.process_time if given.device == "cpu" else time.perf_counter
    found: dict[str, Any] = {"rows": len(X) // 3, "epochs": plain.epochs, "hold": given.hold, "targets": targets, "table": []}

    def measure(row: Row) -> None:
        began = clock()
        runs = [one(row, thirds(X, y, seed), given.device) for seed in range(targets)]
        told = {"defence": row.name, "kind": row.kind} | {what: spread([run[what] for run in runs]) for what in runs[0]}
        base = found["table"][0]["accuracy_outside"]["mean"] if found["table"] else told["accuracy_outside"]["mean"]
        told |= {"lost": round(base - told["accuracy_outside"]["mean"], 4), "best_attack": best_of(told)}
        found["table"].append(told | {"seconds": round((clock() - began) / targets, 2)})
        print(row.name, {what: value["mean"] if isinstance(value, dict) else value for what, value in told.items()}, flush=True)
        save(found)

    first, others = rows(plain, given)
    for row in first:
        measure(row)
    if given.shadows:
        found["shadow_attacks"] = {"shadows": given.shadows}
        for row in chosen(first, found["table"]):
            found["shadow_attacks"][row.name] = shadowed(row, thirds(X, y, 0), given)
            save(found)
    for row in others:
        measure(row)
    return found


def data(given: Namespace) -> tuple[Array, Array, Recipe]:
    if given.set == "location":
        from membership import distinct, location
        from membership import recipe as plain_of

        X, y = distinct(*location(given.data))
        return X, y, replace(plain_of(X.shape[1], 30, relu=False), epochs=given.epochs or 10)
    X, y = pool(given)
    return X, y, replace(networks(given.epochs)["AlexNet"], augment=None)


def thirds(X: Array, y: Array, seed: int) -> list[Pair]:
    parts = np.array_split(np.random.default_rng(seed).permutation(len(X))[: len(X) // 3 * 3], 3)
    return [(X[part], y[part]) for part in parts]


def rows(plain: Recipe, given: Namespace) -> tuple[list[Row], list[Row]]:
    """The undefended, the game by strength, SELENA; and the game as published or cut short, and what costs nothing to try."""
    device, epochs = given.device, given.game_epochs

    def game(strength: float, reference: Pair, **more: Any) -> Recipe:
        how = {"steps": given.steps, "width": given.adversary, "hold": given.hold, "device": device, **more}
        return adversarial_regularisation(plain, strength=strength, reference=reference, **how).recipe

    strengths = [float(each) for each in given.strengths.split(",")]
    strong = [Row(f"game, strength {s:g}", "game", lambda r, s=s: game(s, r, epochs=epochs)) for s in strengths]
    published = [Row(f"game as published, strength {s:g}", "published", lambda r, s=s: game(s, r, hold=0.0)) for s in (1, 2)]
    few = Row(
        f"game, strength {strengths[-1]:g}, stopped early", "stopped game",
        lambda r: game(strengths[-1], r, epochs=max(1, (epochs or 4 * plain.epochs) // 4)),
    )  # fmt: skip
    others = [
        Row("early stopping", "early stopping", lambda r: early_stopping(plain, device=device).recipe),
        Row("half the epochs", "early stopping", lambda r: replace(plain, epochs=max(1, plain.epochs // 2))),
        Row("L2, 0.01", "L2", lambda r: l2(plain, 0.01).recipe),
        Row("L2, 0.03", "L2", lambda r: l2(plain, 0.03).recipe),
        Row("label smoothing, 0.3", "label smoothing", lambda r: label_smoothing(plain, 0.3).recipe),
        Row("RelaxLoss, 1", "RelaxLoss", lambda r: relax_loss(plain, level=1.0, device=device).recipe),
    ]
    both = Row("none, the reference trained on too", "more rows", lambda r: with_more(plain, r, device))
    student = given.student_epochs or (10 if given.set == "location" else 2) * plain.epochs
    taught = Row("SELENA", "SELENA", lambda r: selena(plain, epochs=student, device=device).recipe)
    return [Row("none", "none", lambda r: plain), *strong, taught], [*published, few, both, *others]


def with_more(plain: Recipe, more: Pair, device: str) -> Recipe:
    """What the rows given away as reference would have been worth."""

    def fit(X: Array, y: Array) -> Any:
        return asked_of(Trainer(plain, device).one(np.concatenate([X, more[0]]), np.concatenate([y, more[1]])))

    return Recipe(fit, kind="fit")


def asked_of(model: Any) -> Any:
    return lambda inputs: outputs(model, inputs, np.zeros(len(inputs), int))[1]


def model_of(how: Recipe, D: Pair, device: str) -> Any:
    return how.fit_one(*D, 0) if how.kind == "fit" else Trainer(how, device).one(*D)


def one(row: Row, parts: list[Pair], device: str) -> dict[str, float]:
    """How often the model is right, and how often attacks without shadows are: on its rows, and on the reference."""
    D, R, N = parts
    model = model_of(row.made(R), D, device)
    X, y = np.concatenate([D[0], N[0]]), np.concatenate([D[1], N[1]])
    inside = np.arange(len(X)) < len(D[0])
    said, scores = outputs(model, X, y)
    right = scores.argmax(1) == y
    judged = getattr(model, "judged", None)
    aside = np.concatenate([signals.log_probability(outputs(model, *R)[1], R[1]), signals.log_probability(scores, y)[~inside]])
    return {
        "accuracy_inside": float(right[inside].mean()), "accuracy_outside": float(right[~inside].mean()),
        "learned": float(((crossfitted(*said, inside) > 0) == inside).mean()),
        "loss": threshold(signals.log_probability(scores, y), inside), "label": threshold(right.astype(np.float64), inside),
        "loss_on_reference": threshold(aside, np.arange(len(aside)) < len(R[0])),
        "its_own_adversary": 0.5 if judged is None else float(((judged(scores, y) > 0) == inside).mean()),
    }  # fmt: skip


def best_of(told: dict[str, Any]) -> float:
    return max(told[attack]["mean"] for attack in ("learned", "loss", "label"))


def chosen(every: list[Row], table: list[dict[str, Any]]) -> list[Row]:
    """The undefended, and of the game and of SELENA the row that attacks find least in, among those that lose little."""
    names = ["none"]
    for kind in ("game", "SELENA"):
        known = [told for told in table if told["kind"] == kind]
        near = [told for told in known if told["lost"] <= LOST] or [min(known, key=lambda told: told["lost"])]
        names.append(min(near, key=lambda told: told["best_attack"])["defence"])
    return [row for row in every if row.name in names]


def shadowed(row: Row, parts: list[Pair], given: Namespace) -> dict[str, Any]:
    """What attacks with shadows find, each shadow trained with the same defence."""
    D, R, N = parts
    began, how = time.perf_counter(), row.made(R)
    evidence = membership(
        model_of(how, D, given.device), how, D, N, attacks=ATTACKS, shadows=given.shadows, device=given.device
    )
    found: dict[str, Any] = {
        name: {
            "auc": round(each.auc(), 4), "accuracy": round(threshold(each.score, each.inside), 4),
            "tpr_at_1_percent": round(each.tpr(0.01), 4), "interval": [round(end, 4) for end in tpr_interval(each, 0.01)],
        }
        for name, each in evidence.items()
    }  # fmt: skip
    print(row.name, found, f"{time.perf_counter() - began:.1f} s", flush=True)
    return found
