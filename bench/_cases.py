"""Cases of bench/membership.py with images, and beside peers: each gives a document, and goes on where it was cut off."""

from __future__ import annotations

import subprocess
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from _images import AlexNet, DenseNet, Published, Residual, images, mirrored, shifted
from discreet.attack.membership import Recipe, high_loss_screen, membership, signals, splits, train_shadows
from discreet.attack.membership.bayes_lira import bayes_lira
from discreet.attack.membership.probes import probes
from discreet.attack.membership.whitebox import crossfitted, outputs, pulled
from discreet.audit import rate_at, roc
from discreet.models.single import Loop
from discreet.models.stacked import train_stack

Array = NDArray[Any]
Save = Callable[[dict[str, Any]], None]
GROUP = 6  # models between two looks at the clock


def spread(values: Any) -> dict[str, float]:
    """The mean, and the standard deviation over targets."""
    values = np.asarray(values, np.float64)
    return {"mean": round(float(values.mean()), 4), "spread": round(float(values.std(ddof=1)) if len(values) > 1 else 0.0, 4)}


# CIFAR-10: many models, each the target in turn


def cifar10(given: Namespace, save: Save) -> dict[str, Any]:
    """Small residual networks on random halves of the 50,000 training images, as many as the time allows."""
    X, y, test, truth = images(given.data / "cifar10", rows=given.rows)
    recipe = Recipe(
        partial(Residual, 10, given.width), epochs=given.epochs or 50, batch_size=min(500, len(X) // 4), optimizer="sgd",
        learning_rate=0.2, momentum=0.9, weight_decay=5e-4, schedule="cosine",
        augment={"shift": shifted, "mirror": mirrored}[given.augment],
        precision="bfloat16" if given.device == "cuda" else "float32",
    )  # fmt: skip
    found: dict[str, Any] = {
        "images": len(X), "network": f"seven convolutions, {weights(recipe):,} weights", "epochs": recipe.epochs,
        "batch": recipe.batch_size, "augment": given.augment, "precision": recipe.precision,
    }  # fmt: skip
    if given.ways:
        found["images_per_second"] = ways(recipe, X, y, given.device)
        print(found["images_per_second"], flush=True)
    inside, asked, labels = splits(len(X), given.models, 0), np.concatenate([X, test]), np.concatenate([y, truth])
    folder = given.keep / f"models-{given.augment}-{recipe.epochs}-{given.width}"
    spent: list[float] = []
    for many in range(GROUP, given.models + 1, GROUP):
        began = time.perf_counter()
        if spent and sum(spent) + max(spent) > given.seconds:
            break
        shadows = train_shadows(recipe, X, y, inside[:many], query=asked, device=given.device, folder=folder, group=GROUP)
        spent.append(time.perf_counter() - began)
        right = shadows.scores.argmax(2) == labels
        found |= {
            "models": many, "seconds": round(sum(spent), 1),
            "trained_images_per_second": round(many * int(inside[0].sum()) * recipe.epochs / sum(spent)),
            "accuracy_inside": round(float(right[:, : len(X)][inside[:many]].mean()), 4),
            "accuracy_test": round(float(right[:, len(X) :].mean()), 4),
        }  # fmt: skip
        save(found)
    margin = signals.margin(shadows.scores, labels).astype(np.float32)
    tempered = np.log(signals.tempered(shadows.scores, labels, 2.0)).astype(np.float32)
    given.keep.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(given.keep / f"cifar10-{given.augment}-margin.npz", margin=margin, rows=len(X))
    np.savez_compressed(given.keep / f"cifar10-{given.augment}-tempered.npz", tempered=tempered)
    quick = [rate_at(score, inside[t], 0.001).rate for t, score in each_target(margin[:, : len(X)], inside, ratios_fixed)]
    found["quick_look_lira_fixed"] = spread(quick)
    print("LiRA, fixed variances, TPR at 0.1 %:", found["quick_look_lira_fixed"], flush=True)
    return found


def ratios_fixed(target: Array, others: Array, marks: Array) -> Array:
    return signals.lira(target, others, marks, fixed=True)


def each_target(signal: Array, inside: Array, score: Callable[..., Array], references: int | None = None) -> Any:
    """Every model in turn as the target, the others (but for the one trained on its other half) as references."""
    signal = signal.astype(np.float64)
    for t in range(len(signal)):
        yield t, score(signal[t], signal[chosen(t, len(signal), references)], inside[chosen(t, len(signal), references)])


def chosen(t: int, models: int, references: int | None) -> list[int]:
    others = [(t // 2 * 2 + 2 + i) % models for i in range(models - 2)]  # pairs that complete each other, others for others
    return others[:references]


def weights(recipe: Recipe) -> int:
    return sum(p.numel() for p in recipe.build().parameters())


def ways(recipe: Recipe, X: Array, y: Array, device: str) -> dict[str, Any]:
    """Images a second by each way of training the same models; a way that fails says why."""
    few = np.arange(10 * recipe.batch_size) % len(X)
    rows, labels = torch.as_tensor(X[few]).to(device), torch.as_tensor(y[few]).to(device)
    short, found = replace(recipe, epochs=1), {}

    def singly(graphed: bool) -> int:
        loop = Loop(short, rows, labels)
        if not graphed:
            loop._replay = None
        members = torch.arange(len(rows), device=device)
        loop.train(members, 0)
        begin()
        loop.train(members, 0)
        return len(rows)

    def stacked() -> int:
        some = slice(2 * recipe.batch_size)
        marks = np.ones((4, len(X[some])), np.bool_)
        for _ in range(2):
            begin()
            train_stack(short, X[some], y[some], marks, range(4), X[:2], device)
        return marks.size

    clock: list[float] = []

    def begin() -> None:
        if device == "cuda":
            torch.cuda.synchronize()
        clock.append(time.perf_counter())

    for name, way in (("graph", lambda: singly(True)), ("one by one", lambda: singly(False)), ("stacked by vmap", stacked)):
        try:
            count = way()
            begin()
            found[name] = round(count / (clock[-1] - clock[-2]))
        except Exception as error:
            found[name] = f"{type(error).__name__}: {str(error)[:80]}"
    return found


def cifar10_analysed(given: Namespace, save: Save) -> dict[str, Any]:
    """What each attack makes of the signals that a run on a GPU left; no images needed."""
    with np.load(given.keep / f"cifar10-{given.augment}-margin.npz") as kept:
        margin, rows = kept["margin"].astype(np.float64), int(kept["rows"])
    with np.load(given.keep / f"cifar10-{given.augment}-tempered.npz") as kept:
        tempered = kept["tempered"].astype(np.float64)
    margin, tempered = margin[:, :rows], tempered[:, :rows]
    models = len(margin)
    inside = splits(rows, models, 0)
    budgets = [k for k in (2, 4, 8, 16, 32, 64) if k <= models - 2]
    targets = range(min(models, given.targets))
    table = []

    def add(name: str, k: int, score: Callable[[int, list[int]], Array]) -> None:
        measured = []
        for t in targets:
            made = score(t, chosen(t, models, k))
            rates = [rate_at(made, inside[t], level) for level in (0.01, 0.001)]
            measured.append([roc(made, inside[t]).area(), rates[0].rate, rates[1].rate, rates[1].low, rates[1].high])
        mean, deviation = np.mean(measured, 0), np.std(measured, 0, ddof=1)
        table.append({
            "attack": name, "references": k, "auc": round(float(mean[0]), 4), "tpr_at_1_percent": round(float(mean[1]), 4),
            "tpr_at_0.1_percent": round(float(mean[2]), 4), "tpr_at_0.1_percent_spread": round(float(deviation[2]), 4),
            "interval_of_one_target": [round(float(mean[3]), 4), round(float(mean[4]), 4)],
        })  # fmt: skip
        print(f"{name:14} {k:3} AUC {mean[0]:.3f}  TPR {mean[1]:.2%} at 1 %, {mean[2]:.2%} at 0.1 %", flush=True)
        save({"table": table, "targets": len(targets)})

    p = np.exp(tempered)
    add("loss", 0, lambda t, k: margin[t])
    for k in budgets:
        add("bayes_lira", k, lambda t, k: bayes_lira(margin[t], margin[k], tempered[t], tempered[k], inside[k]))
        add("lira", k, lambda t, k: signals.lira(margin[t], margin[k], inside[k]))
        add("lira_fixed", k, lambda t, k: signals.lira(margin[t], margin[k], inside[k], fixed=True))
        add("lira_offline", k, lambda t, k: signals.lira_offline(margin[t], margin[k], inside[k]))
        add("rmia", k, lambda t, k: signals.rmia(p[t], p[k], inside[k], p[t], p[k], gamma=1.0))
    best = max(row["tpr_at_0.1_percent"] for row in table if row["attack"] != "loss")
    return {"table": table, "targets": len(targets), "best_tpr_at_0.1_percent": best, "goal_at_least_0.05": best >= 0.05}


# CIFAR-100: what the weights tell beyond the outputs


def pool(given: Namespace) -> tuple[Array, Array]:
    """The 15,000 images of the subset in a fixed random order."""
    X, y, test, truth = images(given.data / "cifar100", rows=given.rows)
    X, y = np.concatenate([X, test]), np.concatenate([y, truth])
    order = np.random.default_rng(0).permutation(len(X))
    return X[order], y[order]


def networks(epochs: int | None) -> dict[str, Recipe]:
    """Those of Nasr et al. 2019 in small; and a ResNet trained with care: weights decay, images are moved."""
    alexnet = Recipe(AlexNet, batch_size=100, learning_rate=5e-4, augment=mirrored)
    resnet = Recipe(partial(Residual, 100, both=False), batch_size=100, learning_rate=1e-3, augment=mirrored)
    decayed = {"optimizer": "sgd", "learning_rate": 0.2, "momentum": 0.9, "schedule": "cosine", "augment": shifted}
    return {
        "AlexNet": replace(alexnet, epochs=epochs or 25),
        "ResNet": replace(resnet, epochs=epochs or 20),
        "regularised ResNet": Recipe(resnet.build, batch_size=100, epochs=epochs or 30, weight_decay=5e-4, **decayed),
        "DenseNet": Recipe(DenseNet, batch_size=250, epochs=epochs or 40, weight_decay=1e-4, **decayed),
    }


def cifar100(given: Namespace, save: Save) -> dict[str, Any]:
    """Accuracies of attacks on overfit networks: by outputs, by gradients, by both and more, learned; members are half.

    What learns to attack does so on other processors while the next network is trained."""
    X, y = pool(given)
    half = len(X) // 2
    found: dict[str, Any] = {"members": half, "nonmembers": len(X) - half, "targets": given.targets, "networks": {}}
    waiting: dict[str, list[Callable[[], dict[str, float]]]] = {}
    chosen = {name: how for name, how in networks(given.epochs).items() if given.networks is None or name in given.networks}

    def gather(name: str) -> None:
        told = [run() for run in waiting.pop(name)]
        found["networks"][name] = {"weights": weights(chosen[name]), "epochs": chosen[name].epochs} | {
            what: spread([each[what] for each in told]) | {"each": [round(each[what], 4) for each in told]} for what in told[0]
        }
        for each in told:
            print(name, {what: round(value, 3) for what, value in each.items()}, flush=True)
        save(found)

    with ProcessPoolExecutor(6, get_context("spawn")) as workers:
        for name, recipe in chosen.items():
            recipe = replace(recipe, precision="bfloat16" if given.device == "cuda" else "float32")
            runs = []
            for run in attacked(recipe, X, y, half, given, workers):
                runs.append(run)
                for earlier in list(waiting):  # learned in the meantime
                    gather(earlier)
            waiting[name] = runs
        gather(name)
    return found


def attacked(recipe: Recipe, X: Array, y: Array, half: int, given: Namespace, workers: Executor) -> Iterator[Any]:
    """For each target a function that waits for what was found of it."""
    loop = Loop(recipe, torch.as_tensor(X).to(given.device), torch.as_tensor(y).to(given.device))
    for seed in range(given.targets):
        order, began = np.random.default_rng(seed).permutation(len(X)), time.perf_counter()
        torch.manual_seed(seed)
        loop.train(torch.as_tensor(order[:half]).to(given.device), seed)
        spent = {"training_s": time.perf_counter() - began}
        yield looked_into(loop.model.eval(), X[order], y[order], np.arange(len(X)) < half, seed, workers, spent)


def looked_into(
    model: Any, X: Array, y: Array, inside: Array, seed: int, workers: Executor, spent: dict[str, float]
) -> Callable[[], dict[str, float]]:
    began = time.perf_counter()
    said, scores = outputs(model, X, y)
    few, many = pulled(model, X, y, seed=seed)
    whole = np.concatenate([few, probes(model, X, y, seed=seed)], 1)
    spent |= {"looking_s": time.perf_counter() - began}
    print(type(model).__name__, seed, {what: round(value, 1) for what, value in spent.items()}, flush=True)
    seen = {"black_box": said, "gradients": (few, many), "white_box": (whole, many)}
    learning = {name: workers.submit(crossfitted, *parts, inside, seed=seed) for name, parts in seen.items()}
    right = scores.argmax(1) == y

    def told() -> dict[str, float]:
        made = {name: task.result() for name, task in learning.items()}
        hit = {name: (score > 0) == inside for name, score in made.items()}
        gap = hit["white_box"].astype(np.float64) - hit["black_box"]
        return {
            "accuracy_inside": float(right[inside].mean()), "accuracy_outside": float(right[~inside].mean()),
            "label": threshold(right.astype(np.float64), inside),
            "loss": threshold(signals.log_probability(scores, y), inside),
            "gradient": threshold(-few[:, 0], inside), **{name: float(each.mean()) for name, each in hit.items()},
            "white_ahead": float(gap.mean()),
            "white_ahead_in_standard_errors": float(gap.mean() / (gap.std() / len(gap) ** 0.5 + 1e-12)),
            **{f"{name}_auc": roc(score, inside).area() for name, score in made.items()}, **spent,
        }  # fmt: skip

    return told


def threshold(score: Array, inside: Array) -> float:
    """The best balanced accuracy of one threshold, chosen on one half of the rows and counted on the other."""
    learn = np.random.default_rng(0).random(len(score)) < 0.5
    places = np.unique(np.quantile(score[learn], np.linspace(0, 1, 401)))

    def right(at: float, rows: Array) -> float:
        return float(((score >= at)[rows & inside].mean() + (score < at)[rows & ~inside].mean()) / 2)

    return right(max(places, key=lambda at: right(at, learn)), ~learn)


# The published ResNet-20


def published(given: Namespace, save: Save) -> dict[str, Any]:
    """Its 50,000 training images against the 10,000 test images: no shadow, black-box."""
    its_own = {"mean": (0.485, 0.456, 0.406), "spread": (0.229, 0.224, 0.225)}
    X, y, test, truth = images(given.data / "cifar10", rows=given.rows, **its_own)
    model = Published()
    kept = np.load(given.data / "models" / "resnet20_cifar10.npz")
    model.load_state_dict({name: torch.from_numpy(kept[name]) for name in kept.files}, strict=False)
    model.eval().to(given.device)
    _, scores = outputs(model, np.concatenate([X, test]), np.concatenate([y, truth]))
    known = {len(scores): scores, len(X): scores[: len(X)], len(test): scores[len(X) :]}  # asked once

    def target(rows: Array) -> Array:
        return known[len(rows)]

    evidence = membership(target, None, (X, y), (test, truth), attacks=("loss", "confidence", "entropy", "label"))
    screened = high_loss_screen(target, (X, y), (test, truth), level=0.001)
    score = evidence["label"].score
    found: dict[str, Any] = {
        "members": len(X), "nonmembers": len(test), "accuracy_inside": round(float(score[: len(X)].mean()), 4),
        "accuracy_outside": round(float(score[len(X) :].mean()), 4), "tail": str(screened), "attacks": {},
    }  # fmt: skip
    for name, one in evidence.items():
        rates = [rate_at(one.score, one.inside, level) for level in (0.01, 0.001)]
        found["attacks"][name] = {
            "auc": round(one.auc(), 4), "accuracy": round(threshold(one.score, one.inside), 4),
            "tpr_at_1_percent": round(rates[0].rate, 4), "tpr_at_0.1_percent": round(rates[1].rate, 5),
            "interval": [round(rates[1].low, 5), round(rates[1].high, 5)],
        }  # fmt: skip
        print(name, found["attacks"][name], flush=True)
    margins = given.keep / "cifar10-shift-margin.npz"
    if margins.exists() and given.rows is None:
        found["attacks"] |= calibrated(scores, y, truth, margins)
    return found


def calibrated(scores: Array, y: Array, truth: Array, path: Path) -> dict[str, Any]:
    """Against models of another architecture that did not see the image: what a stranger's shadows add."""
    with np.load(path) as kept:
        margin = kept["margin"].astype(np.float64)
    labels = np.concatenate([y, truth])
    inside = np.concatenate([splits(len(y), len(margin), 0), splits(len(truth), len(margin), 1)], 1)  # as many outside for all
    made = signals.lira_offline(signals.margin(scores, labels), margin, inside)
    known = np.arange(len(labels)) < len(y)
    rate = rate_at(made, known, 0.001)
    return {
        "lira_offline, shadows of another network": {
            "auc": round(roc(made, known).area(), 4), "accuracy": round(threshold(made, known), 4),
            "tpr_at_0.1_percent": round(rate.rate, 5), "interval": [round(rate.low, 5), round(rate.high, 5)],
            "references": len(margin),
        }
    }  # fmt: skip


# Peers on the same recipe


def peers(given: Namespace, save: Save) -> dict[str, Any]:
    """Processor seconds for each shadow model of a whole attack on Location-30: ours, SACRO-ML's LiRA, ART's shadow attack."""
    from membership import distinct, location, recipe

    X, y = distinct(*location(given.data))
    half, how = len(X) // 2, recipe(X.shape[1], 30, relu=False)
    scores = train_shadows(how, X, y, (np.arange(len(X)) < half)[None], seed=20_000).scores[0]
    found: dict[str, Any] = {"rows": len(X), "shadows": given.shadows, "rounds": given.targets}
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "rows.npz", X=X, y=y)
        for _ in range(given.targets):  # interleaved
            began = time.process_time()
            membership(lambda rows: scores, how, (X[:half], y[:half]), (X[half:], y[half:]), shadows=given.shadows)
            times.setdefault("ours", []).append((time.process_time() - began) / given.shadows)
            for name, python, script in (("sacro", given.sacro, "sacro_lira"), ("art", given.art, "art_membership")):
                if python:
                    path = Path(__file__).parent / "peers" / f"{script}.py"
                    command = [python, str(path), str(Path(folder) / "rows.npz"), str(given.few)]
                    done = subprocess.run(command, capture_output=True, text=True, check=True)
                    times.setdefault(name, []).append(float(done.stdout.split()[-1]))
            found["cpu_s_per_shadow"] = {name: round(float(np.median(each)), 4) for name, each in times.items()}
            found["times_ours"] = {
                name: spread(np.array(each) / times["ours"]) for name, each in times.items() if name != "ours"
            }
            print(found["cpu_s_per_shadow"], found["times_ours"], flush=True)
            save(found)
    return found


CASES: dict[str, Callable[[Namespace, Save], dict[str, Any]]] = {
    "cifar10": cifar10,
    "cifar10-analysed": cifar10_analysed,
    "cifar100": cifar100,
    "published": published,
    "peers": peers,
}
