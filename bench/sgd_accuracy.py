"""Accuracy of private training at a budget, beside the same model without privacy: the recipes of examples/, measured.

    python bench/sgd_accuracy.py [--case NAME ...] [--seeds 5] [--data FOLDER] [--device cpu|cuda] [--set lr=8 ...]
                                 [--try lr=2,4,8 ...] [--out bench/results/sgd_accuracy.json]
                                 [--page docs/guides/recipes.md]

Every private run goes through `discreet.learn.train`, and its epsilon is what our accounting says of the events that ran,
the mean of the features included, at delta 1e-5, for one image added or removed. Hyper-parameters were chosen by looking at
the test accuracy of some runs (their number is in the result), as the literature does; epsilon does not pay for that.
Without privacy: Adam, falling learning rate, same model, same inputs. --out keeps what it holds of other cases. The data,
all of MNIST, Fashion-MNIST and CIFAR-10, lie in FOLDER/mnist and so on.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from _record import machine, write
from discreet.accounting import curve
from discreet.noise.source import seeded_for_tests

DELTA = 1e-5
MARKS = "<!-- accuracy -->", "<!-- end of accuracy -->"
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))
GPU = ("cifar_wrn", "cifar_prior")  # recipes that want a network learned on one
Split = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Case:
    """A recipe on a data set, and the accuracy (%) it must reach; none where it stands for comparison."""

    recipe: str
    data: str
    epsilon: float
    must: float | None
    settings: dict[str, float]  # what differs from those of the recipe
    seen: int  # runs whose test accuracy was looked at while the settings were chosen
    epochs: int  # without privacy

    @property
    def example(self) -> Any:
        return importlib.import_module(self.recipe)


CASES = {
    "mnist-scatter-3": Case("mnist_scatter", "mnist", 3.0, 98.7, {"lr": 6.0}, 20, 15),
    "mnist-scatter-1.97": Case("mnist_scatter", "mnist", 1.97, 98.5, {"lr": 5.0}, 20, 15),
    "mnist-scatter-1": Case("mnist_scatter", "mnist", 1.0, 98.2, {"lr": 3.0}, 20, 15),
    "fashion-scatter-3": Case("mnist_scatter", "fashion-mnist", 3.0, 89.7, {"lr": 8.0}, 3, 15),
    "mnist-cnn-3": Case("mnist_cnn", "mnist", 3.0, 98.1, {}, 10, 15),
    "cifar-scatter-3": Case("cifar_scatter", "cifar10", 3.0, None, {}, 15, 15),
    "cifar-prior-3": Case("cifar_prior", "cifar10", 3.0, 69.3, {}, 22, 15),
    "cifar-wrn-8": Case("cifar_wrn", "cifar10", 8.0, 78.5, {}, 4, 30),
    "cifar-wrn-3": Case("cifar_wrn", "cifar10", 3.0, 69.3, {"steps": 250}, 2, 30),
}


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Percent right."""
    with torch.no_grad():
        found = torch.cat([model(part).argmax(1) for part in x.split(2000)])
    return 100.0 * float((found == y).float().mean())


def plain(case: Case, data: Split) -> float:
    """The same model on the same inputs without clipping and noise."""
    x, y, test, truth = data
    model = case.example.network(x.shape[1:]).to(x.device)
    change = getattr(case.example, "augment", lambda inputs: inputs)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, case.epochs)
    for _ in range(case.epochs):
        for rows in torch.randperm(len(x), device=x.device).split(256):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(change(x[rows])), y[rows]).backward()
            optimizer.step()
        fall.step()
    return accuracy(model, test, truth)


def private(case: Case, data: Split, settings: dict[str, float]) -> tuple[float, float, float]:
    """Accuracy, epsilon and CPU (on a GPU: wall) seconds of one run."""
    x, y, test, truth = data
    clock = time.perf_counter if x.is_cuda else time.process_time
    start = clock()
    model, event = case.example.fit(x, y, people=len(x), epsilon=case.epsilon, **settings)
    return accuracy(model, test, truth), curve(event).epsilon(DELTA), clock() - start


def chosen(name: str, data: Split, options: argparse.Namespace) -> tuple[dict[str, float], int]:
    """The settings, the best of those that --try names by one run each, and how many were tried."""
    settings = CASES[name].settings | dict(options.set)
    tried = []
    for values in itertools.product(*(values for _, values in options.attempt)):
        one = settings | {key: value for (key, _), value in zip(options.attempt, values)}
        if options.attempt:
            torch.manual_seed(len(tried))
            with seeded_for_tests(f"{name} try {len(tried)}".encode()):
                tried.append((private(CASES[name], data, one)[0], one))
            print(f"{name}, tried {one}: {tried[-1][0]:.2f} %", file=sys.stderr, flush=True)
    return (max(tried, key=lambda each: each[0])[1], len(tried)) if tried else (settings, 0)


def measure(name: str, data: Split, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is known after every private run, and after those without privacy."""
    case = CASES[name]
    settings, tried = chosen(name, data, options)
    runs, without = [], []
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        with seeded_for_tests(f"{name} {seed}".encode()):
            runs.append(private(case, data, settings))
        print(
            f"{name}, run {seed}: {runs[-1][0]:.2f} % at epsilon {runs[-1][1]:.4f}, {runs[-1][2]:.0f} s",
            file=sys.stderr,
            flush=True,
        )
        yield known(case, settings, tried, runs, without)
    for seed in range(options.plain_seeds):
        torch.manual_seed(seed)
        without.append(plain(case, data))
        yield known(case, settings, tried, runs, without)


def known(
    case: Case, settings: dict[str, float], tried: int, runs: list[tuple[float, float, float]], without: list[float]
) -> dict[str, Any]:
    found = [run[0] for run in runs]
    return {
        "data": case.data, "recipe": f"examples/{case.recipe}.py", "must": case.must,
        "epsilon": max(run[1] for run in runs), "delta": DELTA, "unit": "one image, added or removed",
        "mean": round(statistics.mean(found), 3), "least": round(min(found), 2), "most": round(max(found), 2),
        "deviation": round(statistics.stdev(found), 3) if len(found) > 1 else None, "runs": [round(x, 2) for x in found],
        "without_privacy": [round(x, 2) for x in without], "settings": case.example.SETTINGS | settings,
        "runs_seen_while_choosing": case.seen + tried, "seconds_a_run": round(statistics.median(run[2] for run in runs), 1),
        "on": torch.cuda.get_device_name() if torch.cuda.is_available() else machine()["processor"],
    }  # fmt: skip


def table(rows: dict[str, dict[str, Any]]) -> None:
    heads = {
        "case": 20,
        "epsilon": -8,
        "mean %": -7,
        "least": -6,
        "most": -6,
        "must": -6,
        "plain": -6,
        "runs": -5,
        "seconds": -8,
    }
    print(" ".join(head.rjust(-width) if width < 0 else head.ljust(width) for head, width in heads.items()))
    for name, row in rows.items():
        bare = f"{statistics.mean(row['without_privacy']):6.2f}" if row["without_privacy"] else "     -"
        must = "     -" if row["must"] is None else f"{row['must']:6.1f}"
        figures = f"{row['epsilon']:8.4f} {row['mean']:7.2f} {row['least']:6.2f} {row['most']:6.2f} {must} {bare}"
        missed = "" if row["must"] is None or row["mean"] >= row["must"] else "  MISSED"
        print(f"{name:20} {figures} {len(row['runs']):5} {row['seconds_a_run']:8.1f}{missed}")


def markdown(rows: dict[str, dict[str, Any]]) -> str:
    """The results as a table for a page."""
    lines = [
        "| data | recipe | epsilon | right, mean of runs | least to most | runs | without privacy |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows.values():
        bare = f"{statistics.mean(row['without_privacy']):.1f} %" if row["without_privacy"] else "not measured"
        what = f"| {row['data']} | `{row['recipe']}` | {row['epsilon']:.4g} | {row['mean']:.2f} % "
        lines.append(what + f"| {row['least']:.2f} to {row['most']:.2f} | {len(row['runs'])} | {bare} |")
    return "\n".join(lines)


def put(page: Path, rows: dict[str, dict[str, Any]]) -> None:
    """Replace the table between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    page.write_text(f"{before}{MARKS[0]}\n{markdown(rows)}\n{MARKS[1]}{after}", encoding="utf-8")


def several(text: str) -> tuple[str, list[float]]:
    name, _, values = text.partition("=")
    return name, [float(value) for value in values.split(",")]


def setting(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    return name, float(value)


def prepared(case: Case, options: argparse.Namespace) -> Split:
    """Inputs of the model and labels, to learn from and to test on."""
    images, labels, test, truth = (part.to(options.device) for part in image_data().load(options.data / case.data))
    return case.example.inputs(images), labels, case.example.inputs(test), truth


def image_data() -> Any:
    return importlib.import_module("image_data")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [name for name, case in CASES.items() if case.recipe not in GPU]
    parser.add_argument("--case", nargs="*", choices=CASES, default=usual)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--plain-seeds", type=int, default=1)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DISCREET_DATA", ROOT.parent / "shared" / "data")))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--set", nargs="*", type=setting, default=[], metavar="NAME=VALUE", help="change settings of the recipes"
    )
    parser.add_argument(
        "--try", dest="attempt", nargs="*", type=several, default=[], metavar="NAME=V,V", help="run each once, keep the best"
    )
    parser.add_argument("--out", type=Path, help="write the result as JSON, keeping the cases in it that were not measured")
    parser.add_argument("--page", type=Path, help="write the table of --out into a page, between its marks")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: dict[str, dict[str, Any]] = {}
    if options.out and options.out.exists():
        rows = json.loads(options.out.read_text())["cases"]
    held: tuple[Any, Split] | None = None  # the last inputs, which the next case may share
    for name in options.case:
        case = CASES[name]
        if held is None or held[0] != (case.recipe, case.data):
            held = None  # let go of the old ones first
            held = (case.recipe, case.data), prepared(case, options)
        for row in measure(name, held[1], options):
            rows[name] = row
            if options.out:
                write(options.out, {"cases": {n: rows[n] for n in CASES if n in rows}}, "torch")
        table({name: rows[name]})
    table(rows)
    if options.page:
        put(options.page, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
