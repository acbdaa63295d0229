"""PATE on MNIST and Adult, beside DP-SGD and objective perturbation at the same epsilon.

    python bench/pate.py DATA [--splits 5] [--cache FOLDER] [--out bench/results/pate.json]

DATA holds mnist/ and adult/. The private rows are the training rows of each. The test rows are split at random, again for
each run: 9,000 digits (8,000 people) are public rows without labels, accuracy is that on the rest. Digits are set upright one
by one and mapped by the scattering transform; principal components are those of the public rows. All maps are free. The penalty
of the teachers and the student's settings were chosen on the first split of the digits and the first three of the people; the
table gives the mean over all. DP-SGD's figures are read from bench/results/sgd_accuracy.json, which measured them on all 10,000
test digits.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.linalg import eigh
from sklearn.linear_model import LogisticRegression as PlainLogistic
from sklearn.linear_model import RidgeClassifier
from sklearn.svm import SVC

from _record import write
from discreet import record
from discreet.accounting import curve
from discreet.learn import PATE, LogisticRegression
from discreet.learn.features import scatter
from discreet.learn.pate import GNMax, GraphStudent, Teachers, VoteRegressor, calibrated, data_dependent_epsilon
from estimators import adult

DELTA, ROW, TEACHERS, WIDE = 1e-5, record(), 250, 200


def upright(images: torch.Tensor) -> torch.Tensor:
    """Each image moved and sheared so that its ink stands upright about its centre, by its own moments alone."""
    images, place = images.float(), torch.linspace(-1, 1, 28)
    mass = images.sum((1, 2)).clamp_min(1e-6)
    y, x = (images.sum(2) * place).sum(1) / mass, (images.sum(1) * place).sum(1) / mass
    down, across = place - y[:, None], place - x[:, None]
    tall = (images.sum(2) * down**2).sum(1) / mass
    lean = (torch.einsum("nij,ni,nj->n", images, down, across) / mass / tall.clamp_min(1e-6)).clamp(-1, 1)
    one, zero = torch.ones_like(x), torch.zeros_like(x)
    move = torch.stack([torch.stack([one, lean, x], 1), torch.stack([zero, one, y], 1)], 1)
    grid = F.affine_grid(move, (len(x), 1, 28, 28), align_corners=True)
    return F.grid_sample(images[:, None], grid, align_corners=True)[:, 0]


def read(path: Path, start: int, *shape: int) -> np.ndarray:
    return np.frombuffer(gzip.open(path).read(), np.uint8, offset=start).reshape(-1, *shape).copy()


def digits(folder: Path, name: str, cache: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Features [n, 3969] in half precision, and labels."""
    labels = read(folder / f"mnist/{name}-labels-idx1-ubyte.gz", 8).astype(np.int64)
    kept = None if cache is None else cache / f"{name}.npy"
    if kept is not None and kept.exists():
        return np.load(kept), labels
    images = torch.from_numpy(read(folder / f"mnist/{name}-images-idx3-ubyte.gz", 16, 28, 28))
    found = np.concatenate([scatter(upright(part)).flatten(1).numpy().astype(np.float16) for part in images.split(1000)])
    if kept is not None:
        np.save(kept, found)
    return found, labels


def components(public: np.ndarray, *all_rows: np.ndarray) -> list[np.ndarray]:
    """Rows along the first components of public rows, each divided by its spread there to the power .6."""
    some = public[:4000].astype(np.float32)
    centre = some.mean(0)
    some -= centre
    values, vectors = eigh(some.T @ some / len(some), subset_by_index=[some.shape[1] - WIDE, some.shape[1] - 1])
    turn = (vectors / values**0.3).astype(np.float32)
    parts = [[(rows[i : i + 5000].astype(np.float32) - centre) @ turn for i in range(0, len(rows), 5000)] for rows in all_rows]
    return [np.concatenate(part).astype(np.float64) for part in parts]


def row(data: str, model: str, split: int, accuracy: float, **more: Any) -> dict[str, Any]:
    found = {"data": data, "model": model, "split": split, "accuracy": accuracy, **more}
    print(json.dumps(found), flush=True)
    return found


def mnist(folder: Path, splits: int, cache: Path | None) -> list[dict[str, Any]]:
    (raw, y), (raw_test, truth) = (digits(folder, name, cache) for name in ("train", "t10k"))
    out = []
    for split in range(splits):
        order = np.random.default_rng(split).permutation(len(truth))
        public, rest = order[:9000], order[9000:]
        x, test = components(raw_test[public], raw, raw_test)
        taught = RidgeClassifier(alpha=10.0)
        how: dict[str, Any] = {"teachers": TEACHERS, "delta": DELTA, "unit": ROW, "classes": list(range(10))}
        student = GraphStudent(SVC(C=5.0, gamma=float(1 / (2 * test[public].var(0).sum()))))
        for epsilon, answers in ((1.0, 1000), (1.9, 1000), (3.0, 1000), (3.2, 1000)):
            began = time.process_time()
            model = PATE(taught, student, epsilon=epsilon, answers=answers, semi_supervised=True, **how).fit(x, y, test[public])
            proven = curve(model.release_.claims[0].event).epsilon(DELTA)
            right = float((model.predict(test[rest]) == truth[rest]).mean())
            out.append(
                row("mnist", "PATE, counts", split, right, epsilon=proven, answers=answers, cpu_s=time.process_time() - began)
            )
        out += labels_only(Teachers(taught, x, y, teachers=TEACHERS, classes=np.arange(10), unit=ROW), student, test, truth,
                           public, rest, split)  # fmt: skip
        if split == 0:
            for epsilon in (1.0, 1.9, 3.2):
                scale = float(np.quantile(np.linalg.norm(test[public], axis=1), 0.5))
                plain = LogisticRegression(epsilon=epsilon, delta=DELTA, norm=scale, unit=ROW, classes=list(range(10)))
                right = float((plain.fit(x, y).predict(test[rest]) == truth[rest]).mean())
                out.append(row("mnist", "objective perturbation", split, right, epsilon=epsilon))
    return out


def labels_only(
    taught: Teachers, student: Any, test: Any, truth: Any, public: Any, rest: Any, split: int
) -> list[dict[str, Any]]:
    """A student that sees labels alone, for which the data-dependent bound holds; what it is, is not released."""
    out = []
    votes = taught.votes(test[public])
    for noise, answers in ((40.0, 300), (50.0, 300)):
        vote = GNMax(queries=answers, unit=ROW, noise=noise)
        said = vote.run(votes[:answers])[:, 1:].argmax(1)
        labels = np.full(len(public), -1)
        labels[:answers] = said
        made = student.fit(test[public], labels)
        right = float((made.predict(test[rest]) == truth[rest]).mean())
        out.append(row(
            "mnist", "PATE, labels", split, right, epsilon=curve(vote.event()).epsilon(DELTA), answers=answers,
            data_dependent=data_dependent_epsilon(votes[:answers], vote, teachers=TEACHERS, delta=DELTA),
            labels_right=float((said == truth[public][:answers]).mean()),
        ))  # fmt: skip
    return out


def people(folder: Path, splits: int) -> list[dict[str, Any]]:
    table, out = adult(folder), []
    x, y, test, truth = (table[name] for name in ("x", "y", "xt", "yt"))
    for split in range(splits):
        order = np.random.default_rng(split).permutation(len(truth))
        public, rest = order[:8000], order[8000:]
        for epsilon in (0.5, 1.0, 2.0):
            made = PATE(
                PlainLogistic(C=30.0, solver="liblinear"), VoteRegressor(), teachers=TEACHERS, epsilon=epsilon, delta=DELTA,
                unit=ROW, classes=[0, 1],
            ).fit(x, y, test[public])  # fmt: skip
            proven = curve(made.release_.claims[0].event).epsilon(DELTA)
            right = float((made.predict(test[rest]) == truth[rest]).mean())
            out.append(row("adult", "PATE, counts", split, right, epsilon=proven, answers=8000))
            plain = LogisticRegression(epsilon=epsilon, delta=DELTA, norm=table["norm"], unit=ROW, classes=[0, 1]).fit(x, y)
            right = float((plain.predict(test[rest]) == truth[rest]).mean())
            out.append(row("adult", "objective perturbation", split, right, epsilon=epsilon))
        papernot = calibrated(
            "confident", queries=1500, unit=ROW, epsilon=2.0, delta=DELTA, answers=500, threshold=200
        )  # as published, but with the noise that keeps epsilon 2
        votes = Teachers(PlainLogistic(), x, y, teachers=TEACHERS, classes=np.array([0, 1]), unit=ROW).votes(
            test[public[:1500]]
        )
        said = papernot.run(votes)
        kept = said[:, 0] == 1
        student = PlainLogistic(C=0.1).fit(test[public[:1500]][kept], said[kept, 1:].argmax(1))
        right = float((student.predict(test[rest]) == truth[rest]).mean())
        out.append(row("adult", "PATE, confident labels", split, right, epsilon=2.0, answers=int(kept.sum())))
    return out


def descent() -> list[dict[str, Any]]:
    kept = json.loads((Path(__file__).parent / "results/sgd_accuracy.json").read_text())["cases"]
    names = [name for name in kept if name.startswith("mnist-scatter-")]
    return [
        row("mnist", "DP-SGD", -1, kept[name]["mean"] / 100, epsilon=kept[name]["epsilon"], read_from="sgd_accuracy.json")
        for name in names
    ]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("data", type=Path)
    asked.add_argument("--splits", type=int, default=5)
    asked.add_argument("--cache", type=Path)
    asked.add_argument("--out")
    given = asked.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    results = [*descent(), *people(given.data, given.splits), *mnist(given.data, given.splits, given.cache)]
    write(given.out, {"delta": DELTA, "teachers": TEACHERS, "cpu_s": time.process_time() - began, "results": results},
          "scikit-learn", "torch")  # fmt: skip


if __name__ == "__main__":
    main()
