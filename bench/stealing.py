"""Models stolen through their answers: exactly, approximately, and what tells that weights were taken.

    python bench/stealing.py [--data ../shared/data] [--seeds 20] [--out bench/results/stealing.json]

relu         random ReLU networks (weights N(0, 1/inputs), offsets N(0, .09)), as in the published experiments; the error is the
             largest difference on 10,000 further points of the unit ball
linear       logistic regressions of scikit-learn on its digits and breast cancer data
trees        decision trees of scikit-learn; agreement on 20,000 uniform rows and on the data
approximate  a network trained on 20,000 MNIST digits; the thief has 10,000 others (or Fashion-MNIST), agreement on 5,000
limits       a logistic regression behind an interface that answers so many rows a minute: how long exact theft waits
theft        networks trained on digits from 40 seeds, every pair; small GPTs from 12 seeds; students that learned from answers;
             fine-tuned, pruned and noisy copies; the same with siblings, of networks that start from one public parent

Published figures beside: Carlini et al. 2020 (abstract, arXiv:2003.04884) and arXiv:2406.10011 (abstract).
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import os
import time
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1"}

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from _record import commit, write
from discreet.attack.stealing import (
    Noisy,
    Oracle,
    RateLimited,
    Rounded,
    TopK,
    TopOne,
    descended,
    steal_approximate,
    steal_linear,
    steal_relu,
    steal_tree,
)
from discreet.errors import InvalidValue

SHAPES = [
    (10, 16, 1), (20, 32, 1), (32, 64, 1), (50, 64, 1), (10, 10, 10, 1), (20, 16, 16, 1), (32, 32, 16, 1), (32, 32, 32, 1),
    (80, 40, 20, 1),
]  # fmt: skip
LARGE = [(784, 20, 1), (784, 32, 1), (784, 20, 10)]
BUDGETS = (100, 300, 1000, 3000)
PARTS = ("relu", "relu_large", "linear", "trees", "theft", "approximate", "limits")
PUBLISHED = {
    "80-40-20-1": {"queries": 2**18.5, "error": 2**-40.4, "source": "Carlini et al. 2020, 4,000 parameters"},
}


def network(shape: tuple[int, ...], seed: int) -> Any:
    random = np.random.default_rng(seed)
    layers = [(random.normal(size=(b, a)) / np.sqrt(a), random.normal(size=b) * 0.3) for a, b in pairwise(shape)]

    def ask(rows: Any) -> Any:
        for place, (weights, offsets) in enumerate(layers):
            rows = rows @ weights.T + offsets
            rows = np.maximum(rows, 0) if place < len(layers) - 1 else rows
        return rows

    return ask


def relu(shape: tuple[int, ...], seeds: int) -> dict[str, Any]:
    errors, queries, seconds, failed = [], [], [], []
    random = np.random.default_rng(10_000)
    points = random.normal(size=(10_000, shape[0]))
    points *= (random.random(10_000) ** (1 / shape[0]) / np.linalg.norm(points, axis=1))[:, None]
    for seed in range(seeds):
        ask, began = network(shape, seed), time.process_time()
        try:
            found = steal_relu(ask, shape[0], layers=len(shape) - 2, seed=seed)
        except InvalidValue as error:
            failed.append(str(error)[:80])
            continue
        seconds.append(time.process_time() - began)
        queries.append(found.queries)
        errors.append(float(np.abs(found.predict(points) - ask(points)).max()))
    name = "-".join(map(str, shape))
    row = {
        "shape": name, "parameters": sum(a * b + b for a, b in pairwise(shape)), "seeds": seeds, "failed": len(failed),
        "within_1e-8": sum(error <= 1e-8 for error in errors), "within_1e-7": sum(error <= 1e-7 for error in errors),
        "error_median": float(np.median(errors)), "error_worst": max(errors), "queries_median": float(np.median(queries)),
        "queries_most": max(queries), "cpu_seconds_most": round(max(seconds), 2), "published": PUBLISHED.get(name),
    }  # fmt: skip
    print(row, flush=True)
    return row


def linear() -> list[dict[str, Any]]:
    rows = []
    for name, load in (("digits", load_digits), ("breast cancer", load_breast_cancer)):
        X, y = load(return_X_y=True)
        X = X / X.max(axis=0).clip(1e-9)
        model = LogisticRegression(max_iter=2000).fit(X, y)
        for decimals in (None, 6, 4):
            asked, more = (model, 0) if decimals is None else (Rounded(model, decimals), 1000)
            try:
                found = steal_linear(asked, X.shape[1], scale=1.0 / X.shape[1] ** 0.5, more=more)
            except InvalidValue as error:
                rows.append({"data": name, "decimals": decimals, "refused": str(error)[:60]})
                continue
            same = model.classes_[found.predict(X).argmax(axis=1)] == model.predict(X)
            row = {"data": name, "decimals": decimals, "classes": len(model.classes_), "inputs": X.shape[1]}
            rows.append({**row, "queries": found.queries, "error": found.error, "agreement": float(same.mean())})
            print(rows[-1], flush=True)
    return rows


def limits() -> list[dict[str, Any]]:
    """Minutes by a clock that only waiting moves; who asks less than the limit is not slowed."""
    X, y = load_digits(return_X_y=True)
    model, rows = LogisticRegression(max_iter=2000).fit(X / 16, y), []
    for most in (1000, 60, 10, 1):
        now = [0.0]
        limited = RateLimited(model, most, 60.0, clock=lambda now=now: now[0])
        oracle = Oracle(limited, batch=most, sleep=lambda seconds, now=now: now.__setitem__(0, now[0] + seconds))
        found = steal_linear(oracle, 64, scale=0.125)
        rows.append({"rows_a_minute": most, "queries": found.queries, "minutes": oracle.waited / 60, "error": found.error})
        print(rows[-1], flush=True)
    return rows


def trees() -> list[dict[str, Any]]:
    rows = []
    for name, load, depth in (("iris", load_iris, None), ("wine", load_wine, None), ("breast cancer", load_breast_cancer, 4)):
        X, y = load(return_X_y=True)
        low, high = X.min(axis=0) - 0.5, X.max(axis=0) + 0.5
        model = DecisionTreeClassifier(max_depth=depth, random_state=0).fit(X, y)
        uniform = np.random.default_rng(1).uniform(low, high, (20_000, X.shape[1]))
        began = time.process_time()
        found = steal_tree(model, low, high)
        spent = round(time.process_time() - began, 1)
        right = [float((found.predict(each).argmax(1) == model.predict(each)).mean()) for each in (uniform, X)]
        row = {"data": name, "leaves": int(model.get_n_leaves()), "leaves_of_copy": found.leaves, "queries": found.queries}
        rows.append({**row, "agreement_uniform": right[0], "agreement_data": right[1], "cpu_seconds": spent})
        print(rows[-1], flush=True)
    return rows


def images(folder: Path, name: str) -> Any:
    opened = gzip.open if name.endswith("gz") else lzma.open
    data = opened(folder / name).read()
    sizes = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3])]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(sizes)


def trained(X: Any, y: Any, seed: int, sizes: tuple[int, ...], epochs: int = 8, start: Any = None) -> nn.Module:
    torch.manual_seed(seed)
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())][:-1]
    model = nn.Sequential(*layers)
    if start is not None:
        model.load_state_dict(start.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs, labels = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(np.asarray(y, np.int64))
    for _ in range(epochs):
        for some in torch.randperm(len(inputs)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[some]), labels[some]).backward()
            optimizer.step()
    return model.eval()


class Shares:
    """The probabilities that an interface shows."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, rows: Any) -> Any:
        with torch.no_grad():
            return self.module(torch.as_tensor(np.asarray(rows), dtype=torch.float32)).softmax(1).numpy()


CURVES = (
    ("scores", "random", "mnist"), ("scores", "margin", "mnist"), ("top-3", "margin", "mnist"), ("top-1", "margin", "mnist"),
    ("labels", "margin", "mnist"), ("labels", "random", "mnist"), ("scores", "synthesis", "300 of mnist"),
    ("scores", "margin", "fashion"),
)  # fmt: skip


def approximate(data: Path, seeds: int) -> dict[str, Any]:
    X = images(data / "mnist", "train-images-idx3-ubyte.gz").reshape(-1, 784) / np.float32(255)
    y = images(data / "mnist", "train-labels-idx1-ubyte.gz")
    other = images(data / "fashion-mnist", "t10k-images-idx3-ubyte.xz").reshape(-1, 784) / np.float32(255)
    model = Shares(trained(X[:20_000], y[:20_000], 0, (784, 128, 10)))
    pool, held, truth = X[20_000:30_000], X[30_000:35_000], y[30_000:35_000]
    out: dict[str, Any] = {"accuracy": float((model(held).argmax(1) == truth).mean()), "seeds": seeds, "curves": []}
    pools = {"mnist": pool, "fashion": other, "300 of mnist": pool[:300]}
    for answers, strategy, which in CURVES:
        how: dict[str, Any] = {"budgets": BUDGETS, "answers": answers, "strategy": strategy, "epochs": 20}
        runs = [steal_approximate(model, pools[which], held, seed=seed, **how).curve for seed in range(seeds)]
        shares = {budget: [run[place].share for run in runs] for place, budget in enumerate(BUDGETS)}
        means = {budget: float(np.mean(each)) for budget, each in shares.items()}
        spread = {budget: float(np.ptp(each)) for budget, each in shares.items()}
        out["curves"].append({"answers": answers, "strategy": strategy, "pool": which, "agreement": means, "range": spread})
        print(out["curves"][-1], flush=True)
    return {**out, "defences": defences(model, pool, held, truth)}


def defences(model: Any, pool: Any, held: Any, truth: Any) -> list[dict[str, Any]]:
    """What each costs the users, and a thief with 1,000 queries."""
    defended = {
        "none": model, "two decimals": Rounded(model, 2), "one decimal": Rounded(model, 1), "three classes": TopK(model, 3),
        "label only": TopOne(model), "noise 0.1": Noisy(model, 0.1), "noise 0.5": Noisy(model, 0.5),
    }  # fmt: skip
    rows = []
    for name, each in defended.items():
        copy = steal_approximate(each, pool, held, budgets=(1000,), strategy="margin", epochs=20).predict(held)
        shown = np.asarray(each(held))
        told = shown if shown.ndim == 1 else shown.argmax(1)
        row = {"defence": name, "accuracy_of_users": float((told == truth).mean())}
        row["agreement_with_model"] = float((copy == model(held).argmax(1)).mean())
        rows.append({**row, "accuracy_of_copy": float((copy == truth).mean())})
        print(rows[-1], flush=True)
    return rows


def theft(models: int) -> dict[str, Any]:
    X, y = load_digits(return_X_y=True)
    X, half, sizes = X / 16, len(X) // 2, (64, 64, 32, 10)
    found = [trained(X[:half], y[:half], seed, sizes, epochs=30) for seed in range(models)]
    some = found[:20]

    def tuned(model: Any, seed: int) -> Any:
        return trained(X[half:], y[half:], seed, sizes, 30, model)

    def relearned(model: Any, seed: int) -> Any:
        return trained(X[half:], np.random.default_rng(seed).permutation(y[half:]), seed, sizes, 30, model)

    def student(model: Any, seed: int) -> Any:
        return trained(X, Shares(model)(X).argmax(1), seed, sizes, 30)

    copies = {
        "fine-tuned on other rows, 30 epochs": tuned, "fine-tuned on shuffled labels, 30 epochs": relearned,
        "half of the weights set to 0": _pruned, "noise as large as the weights": _noisy,
        "units in another order (not seen, as stated)": _reordered,
        "a student that learned from answers (not seen, as stated)": student,
    }  # fmt: skip
    caught = {
        name: sum(descended(model, make(model, 100 + seed), seed=seed).accused for seed, model in enumerate(some))
        for name, make in copies.items()
    }
    gpts = [_gpt(seed) for seed in range(12)]
    row = {
        "independent": {"digits": _pairs(found), "gpt": _pairs(gpts)}, "copies_of_each_kind": len(some),
        "caught_at_0.001": caught, "one_parent": _family(X, y),
    }  # fmt: skip
    print(row, flush=True)
    return row


def _pairs(models: list[Any]) -> dict[str, Any]:
    """How many of all pairs are accused; pairs with a model in common are not independent."""
    p = [descended(one, two, level=0.01, orders=1999, seed=at).p for at, (one, two) in enumerate(combinations(models, 2))]
    return {"models": len(models), "pairs": len(p), "accused": {str(each): sum(v <= each for v in p) for each in (0.05, 0.01)}}


def _gpt(seed: int) -> Any:
    """A GPT-2 of one layer that learned bytes whose next one depends on the last two."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    rule = np.random.default_rng(0).dirichlet(np.full(32, 0.05), (32, 32))
    random, text = np.random.default_rng([1, seed]), [0, 1]
    for _ in range(8000):
        text.append(int(random.choice(32, p=rule[text[-2], text[-1]])))
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=32, n_positions=32, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0,
    ))  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(250):
        rows = torch.tensor([text[at : at + 32] for at in random.integers(0, len(text) - 32, 32)])
        optimizer.zero_grad()
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
    return model


def _family(X: Any, y: Any) -> dict[str, Any]:
    """Fine-tunes of one public parent: ours and 19 siblings of it, others' own, and those that were made from ours."""
    half, sizes = len(X) // 2, (64, 64, 32, 10)
    parent = trained(X[:half], y[:half], 0, sizes, 10)
    own, rest = (X[half : half + 400], y[half : half + 400]), (X[half + 400 :], y[half + 400 :])
    ours, *siblings = [trained(*own, 100 + seed, sizes, 5, parent) for seed in range(20)]
    suspects = {
        "from the parent, on our rows": [trained(*own, 500 + seed, sizes, 5, parent) for seed in range(40)],
        "from the parent, on other rows": [trained(*rest, 700 + seed, sizes, 5, parent) for seed in range(40)],
        "from a sibling, on other rows": [trained(*rest, 800 + at, sizes, 5, each) for at, each in enumerate(siblings)],
        **{f"from ours, on other rows, {epochs} epochs": [trained(*rest, 900 + seed, sizes, epochs, ours) for seed in range(20)]
           for epochs in (1, 5, 10, 30)},
    }  # fmt: skip
    return {
        "siblings": len(siblings), "level": 0.05,
        "accused": {
            name: {
                "of": len(models),
                "with_siblings": sum(descended(ours, m, siblings=siblings, level=0.05).accused for m in models),
                "without": sum(descended(ours, m).accused for m in models),
            } for name, models in suspects.items()
        },
    }  # fmt: skip


def _pruned(model: nn.Module, seed: int) -> Any:
    return {name: each * (each.abs() >= each.abs().median()) for name, each in model.state_dict().items()}


def _noisy(model: nn.Module, seed: int) -> Any:
    torch.manual_seed(seed)
    return {name: each + torch.randn_like(each) * each.std() for name, each in model.state_dict().items()}


def _reordered(model: nn.Module, seed: int) -> Any:
    random, weights = np.random.default_rng(seed), dict(model.state_dict())
    first, second = (torch.as_tensor(random.permutation(count)) for count in (64, 32))
    weights["0.weight"] = weights["0.weight"][first]
    weights["2.weight"] = weights["2.weight"][:, first][second]
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DISCREET_DATA", "../shared/data")))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--parts", default=",".join(PARTS), help="which to measure; the others stay as they are in --out")
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measures: dict[str, Callable[[], Any]] = {
        "relu": lambda: [relu(shape, options.seeds) for shape in SHAPES],
        "relu_large": lambda: [relu(shape, min(options.seeds, 2)) for shape in LARGE],
        "linear": linear, "limits": limits, "trees": trees, "theft": lambda: theft(2 * options.seeds),
        "approximate": lambda: approximate(options.data, min(options.seeds, 3)),
    }  # fmt: skip
    known = json.loads(Path(options.out).read_text()) if options.out and Path(options.out).exists() else {}
    found = {name: known[name] for name in PARTS if name in known}
    for name in options.parts.split(","):
        began = time.process_time()
        found[name] = {"commit": commit(), "found": measures[name](), "cpu_seconds": round(time.process_time() - began, 1)}
        note = "16,721 parameters (two hidden layers, MNIST): 98 minutes, arXiv:2406.10011"
        write(options.out, {"published": note, **found}, "torch", "scikit-learn")


if __name__ == "__main__":
    main()
