"""How much each membership attack finds, by the number of reference models; and what a whole audit costs.

    python bench/membership.py [--data ../shared/data] [--targets 16] [--sets location,relu,…] [--out FILE]

Every target and every reference model is trained on its own random half of the rows. A budget of k takes k of the 64
reference models, others for other targets, so that the average is also over the choice of references. TPR at a false-positive
rate is averaged over targets; the spread is the standard deviation over them.

    location   Location-30 (5,010 rows, all different), 446-128-30 with tanh, Adam 1e-3, batches of 64, 40 epochs
    relu       the same with ReLU
    purchase   synthetic, shaped like Purchase-100: 4,000 rows of 600 bits in 100 classes, 600-128-100
    adult      4,400 rows of Adult, categories as bits, two classes, 40 epochs of a 128-wide net: hardly overfit

The default was chosen on the first; the others show where it is not the best. With --out, sets already there are kept.

Cases with images, and with a defence, run by name (`--case`); the first and third want a GPU:

    python bench/membership.py --case cifar10 --device cuda --ways --keep KEPT --out FILE     36 small ResNets, 25,000 images
    python bench/membership.py --case cifar10-analysed --keep KEPT --targets 18 --out FILE    what each attack makes of them
    python bench/membership.py --case cifar100 --device cuda --targets 3 --out FILE           outputs against gradients
    python bench/membership.py --case defended --set location|cifar100 --targets 5 --shadows 16 --out FILE   defences
    python bench/membership.py --case published --keep KEPT --out FILE                        the published ResNet-20
    python bench/membership.py --case peers --sacro PYTHON --art PYTHON --targets 3 --shadows 64 --out FILE
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1"}

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from _record import write
from discreet.attack.membership import Recipe, Shadows, membership, splits, train_shadows
from discreet.attack.membership.attacks import BY_NAME
from discreet.attack.membership.observation import Observation, compare
from discreet.audit import rate_at, roc

Array = NDArray[Any]
NAMES = ("bayes_lira", "lira", "lira_fixed", "lira_offline", "rmia", "loss")
BUDGETS = (2, 4, 8, 16, 32, 64)
LEVELS = (0.01, 0.001)


def location(data: Path) -> tuple[Array, Array]:
    found = np.load(data / "location30" / "location30.npz")
    bits = np.unpackbits(found["bits"], axis=1)[:, : int(found["n_features"])]
    return bits.astype(np.float32), found["y"].astype(np.int64)


def purchase(data: Path) -> tuple[Array, Array]:
    """Each class has its own odds for every bit, drawn around odds that all share."""
    draw = np.random.default_rng(100)
    shared = draw.normal(-1.5, 1.0, 600)
    odds = shared + draw.normal(0.0, 1.0, (100, 600)) * (draw.random((100, 600)) < 0.25)
    y = draw.integers(0, 100, 4_000)
    return (draw.random((4_000, 600)) < 1.0 / (1.0 + np.exp(-odds[y]))).astype(np.float32), y


def adult(data: Path) -> tuple[Array, Array]:
    with gzip.open(data / "adult" / "adult.data.gz", "rt") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file) if len(row) == 15][:4_400]
    columns = list(zip(*rows))
    parts = []
    for place, column in enumerate(columns[:-1]):
        if place in (0, 2, 4, 10, 11, 12):
            numbers = np.array(column, np.float64)
            parts.append(((numbers - numbers.mean()) / numbers.std())[:, None])
        else:
            parts.append(np.array(column)[:, None] == np.unique(column))
    return np.concatenate(parts, 1).astype(np.float32), np.array([int(label == ">50K") for label in columns[-1]])


SETS: dict[str, Callable[[Path], tuple[Array, Array]]] = {
    "location": location,
    "relu": location,
    "purchase": purchase,
    "adult": adult,
}


def distinct(X: Array, y: Array) -> tuple[Array, Array]:
    """Every row once, an even number of them, in a fixed random order: a row on both sides of a half has no answer."""
    _, first = np.unique(np.column_stack([X, y]), axis=0, return_index=True)
    order = np.random.default_rng(7).permutation(np.sort(first))
    order = order[: len(order) // 2 * 2]
    return X[order], y[order]


def recipe(width: int, classes: int, *, relu: bool) -> Recipe:
    between = nn.ReLU if relu else nn.Tanh
    return Recipe(lambda: nn.Sequential(nn.Linear(width, 128), between(), nn.Linear(128, classes)), epochs=40)


def measured(name: str, data: Path, targets: int) -> dict[str, Any]:
    X, y = distinct(*SETS[name](data))
    how = recipe(X.shape[1], int(y.max()) + 1, relu=name == "relu")
    truth = splits(len(X), targets, seed=10_000)
    aimed = train_shadows(how, X, y, truth, seed=10_000)
    with tempfile.TemporaryDirectory() as folder:
        audit, shadows = audited(how, X, y, folder)
    right = aimed.scores.argmax(2) == y
    found: dict[str, Any] = {
        "rows": len(X), "inputs": X.shape[1], "classes": int(y.max()) + 1, "targets": targets, "references": 64,
        "accuracy_inside": float(right[truth].mean()), "accuracy_outside": float(right[~truth].mean()), "audit": audit,
        "table": [row(name, k, y, aimed, shadows) for name in NAMES for k in budgets(name)],
    }  # fmt: skip
    show(name, found)
    return found


def budgets(attack: str) -> tuple[int, ...]:
    return BUDGETS if BY_NAME[attack].needs.shadows else (0,)


def audited(how: Recipe, X: Array, y: Array, folder: str) -> tuple[dict[str, float], Shadows]:
    """A whole audit as a user runs it, and its reference models: the first half of the rows are the members."""
    half = len(X) // 2
    scores = train_shadows(how, X, y, (np.arange(len(X)) < half)[None], seed=20_000).scores[0]
    began = time.process_time()
    membership(
        lambda rows: scores, how, (X[:half], y[:half]), (X[half:], y[half:]), attacks=NAMES, shadows=64, seed=0, folder=folder
    )
    spent = time.process_time() - began
    began = time.process_time()
    shadows = train_shadows(how, X, y, splits(len(X), 64, 0), seed=0, folder=folder)
    return {"cpu_seconds": round(spent, 2), "of_which_reading_back": round(time.process_time() - began, 2)}, shadows


def row(name: str, k: int, y: Array, aimed: Shadows, shadows: Shadows) -> dict[str, Any]:
    rates: list[list[float]] = []
    for number, (scores, inside) in enumerate(zip(aimed.scores, aimed.inside)):
        start = number * k % len(shadows) if k else 0
        chosen = slice(start, start + k)
        seen = Observation(None, np.zeros((len(y), 0)), y, scores, inside)
        beside = compare(seen, Shadows(shadows.scores[chosen], shadows.inside[chosen])) if k else seen
        score = BY_NAME[name].score(beside, range(len(y)))
        rates.append([roc(score, inside).area(), *(rate_at(score, inside, level).rate for level in LEVELS)])
    mean, spread = np.mean(rates, 0), np.std(rates, 0, ddof=1)
    made: dict[str, Any] = {"attack": name, "references": k}
    for place, what in enumerate(("auc", "tpr_at_1_percent", "tpr_at_0.1_percent")):
        made[what], made[f"{what}_spread"] = round(float(mean[place]), 4), round(float(spread[place]), 4)
    return made


def show(name: str, found: dict[str, Any]) -> None:
    right = f"right on {found['accuracy_inside']:.1%} inside, {found['accuracy_outside']:.1%} outside"
    print(f"\n{name}: {found['rows']} rows, {right}; a whole audit with 64 models {found['audit']['cpu_seconds']} CPU-seconds")
    print("TPR at 0.1 % FPR (AUC)".ljust(24) + "".join(f"{k:>16}" for k in BUDGETS))
    for attack in NAMES:
        rows = [each for each in found["table"] if each["attack"] == attack]
        cells = [f"{each['tpr_at_0.1_percent']:7.2%} ({each['auc']:.3f})" for each in rows]
        print(attack.ljust(24) + "".join(cell.rjust(16) for cell in cells))


def behind(found: dict[str, Any]) -> float:
    """How many points another attack is ahead of the default, at the budget where it is most."""
    low = {(row["attack"], row["references"]): row["tpr_at_0.1_percent"] for row in found["table"]}
    return round(max(low[peer, k] - low["bayes_lira", k] for peer in ("lira", "lira_fixed", "rmia") for k in BUDGETS), 4)


def goals(found: dict[str, Any], relu: dict[str, Any] | None) -> list[dict[str, Any]]:
    """What was set out to be reached on Location-30, and what was."""
    low = {(row["attack"], row["references"]): row["tpr_at_0.1_percent"] for row in found["table"]}
    ahead = "most that LiRA or RMIA is ahead of bayes_lira at any budget"
    return [
        {"what": "bayes_lira, 64 references, TPR at 0.1 % FPR", "wanted": ">= 0.30", "found": low["bayes_lira", 64]},
        {"what": "bayes_lira, 2 references, TPR at 0.1 % FPR", "wanted": ">= 0.14", "found": low["bayes_lira", 2]},
        {"what": ahead, "wanted": "<= 0.01", "found": behind(found)},
        *([{"what": f"{ahead}, with ReLU", "wanted": "<= 0.01", "found": behind(relu)}] if relu else []),
        {"what": "CPU-seconds of a whole 64-model audit", "wanted": "< 60", "found": found["audit"]["cpu_seconds"]},
    ]


def cases(parser: argparse.ArgumentParser) -> None:
    """What the cases with images, and with a defence, may be told."""
    parser.add_argument("--case", help="cifar10, cifar10-analysed, cifar100, defended or published; or several, by commas")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--keep", type=Path, default=Path("out/membership"), help="models and signals, to go on from")
    parser.add_argument("--seconds", type=float, default=240.0, help="cifar10: no more models after that")
    parser.add_argument("--models", type=int, default=36, help="cifar10")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--rows", type=int, help="only so many images, for a try")
    parser.add_argument("--width", type=int, default=64, help="cifar10: channels of the first layer")
    parser.add_argument("--augment", choices=("shift", "mirror"), default="shift", help="cifar10")
    parser.add_argument("--ways", action="store_true", help="cifar10: also the speed of other ways of training")
    parser.add_argument("--networks", type=lambda names: names.split(","), help="cifar100: only these, by commas")
    parser.add_argument("--set", choices=("location", "cifar100"), default="location", help="defended")
    parser.add_argument("--strengths", default="3,10,20,30", help="defended: of the game")
    parser.add_argument("--game-epochs", type=int, help="defended: of the game, by default four times the recipe's")
    parser.add_argument("--student-epochs", type=int, help="defended: of SELENA's student, by default 100 or 50")
    parser.add_argument("--steps", type=int, default=1, help="defended: of the adversary for each of the model")
    parser.add_argument("--hold", type=float, default=1.0, help="defended: of answers between reference rows, in the game")
    parser.add_argument("--adversary", type=int, default=64, help="defended: its width")
    parser.add_argument("--shadows", type=int, default=8, help="defended, peers")
    parser.add_argument("--sacro", metavar="PYTHON", help="peers: an interpreter that has sacroml")
    parser.add_argument("--art", metavar="PYTHON", help="peers: an interpreter that has adversarial-robustness-toolbox")
    parser.add_argument("--few", type=int, default=4, help="peers: shadows of theirs")


def run(options: argparse.Namespace) -> None:
    """Cases by name, each written as it goes."""
    from _cases import CASES
    from _defended import defended

    every = {**CASES, "defended": defended}
    for case in options.case.split(","):
        name = (
            f"{case}-{options.set}"
            if case == "defended"
            else f"{case}-{options.augment}"
            if case.partition("-")[0] == "cifar10"
            else case
        )

        def save(found: dict[str, Any], name: str = name) -> None:
            if options.out:
                path = Path(options.out)
                before = json.loads(path.read_text()) if path.exists() else {}
                where = {"gpu": torch.cuda.get_device_name()} if options.device == "cuda" else {}
                kept = {**before.get("cases", {}), name: {**where, **found}}
                write(
                    options.out,
                    {**{part: before[part] for part in ("sets", "goals") if part in before}, "cases": kept},
                    "torch",
                )

        began = time.perf_counter()
        found = every[case](options, save)
        save({**found, "wall_seconds": round(time.perf_counter() - began, 1)})
        print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DISCREET_DATA", "../shared/data")))
    parser.add_argument("--targets", type=int, default=16)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--out")
    cases(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.case:
        run(options)
        return
    found = {name: measured(name, options.data, options.targets) for name in options.sets.split(",")}
    before = json.loads(Path(options.out).read_text()) if options.out and Path(options.out).exists() else {}
    found = {**before.get("sets", {}), **found}
    reached = goals(found["location"], found.get("relu")) if "location" in found else []
    for each in reached:
        print(f"{each['what']}: {each['found']} (wanted {each['wanted']})")
    write(options.out, {"sets": found, "goals": reached, "cases": before.get("cases", {})}, "torch")


if __name__ == "__main__":
    main()
