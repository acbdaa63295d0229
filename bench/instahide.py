"""InstaHide and mixup broken: pictures found, how alike they are, in what time; and what encodings are worth for training.

    PYTHONPATH=src python bench/instahide.py --data ../shared/data [--seeds 3] [--cases NAME;NAME]
        [--out bench/results/encodings.json]

Cases that are not named stay as they are in the file; each row says of which commit it is.

100 private pictures of CIFAR-10's test part; public pictures of the encoder and of the attacker are disjoint parts of its
training data (`other publics`: the encoder's are CIFAR-100). 5,000 encodings unless said: each private picture 50 times as the
first of its mixture, and as often, on average, as the second. A picture is found where the recovered one is more like it than
like any other private one, and more like it than the baseline: the attacker's public picture that is most like the original,
chosen knowing it. Curves have one draw a point. CPU seconds on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from _record import commit, write
from discreet.attack.encodings import EncodingsAttack
from discreet.heuristic import InstaHide

PRIVATE, KNOWN = 100, 5000


def tiles(path: Path) -> np.ndarray:
    from PIL import Image

    mosaic = np.asarray(Image.open(path))
    down, across = mosaic.shape[0] // 32, mosaic.shape[1] // 32
    pictures = mosaic.reshape(down, 32, across, 32, 3).swapaxes(1, 2).reshape(down * across, 32, 32, 3)
    return (pictures / np.float32(127.5) - 1).astype(np.float32)


class Pictures:
    def __init__(self, data: Path) -> None:
        folder = data / "cifar10"
        labels = np.load(folder / "labels.npz")
        self.own, self.labels = tiles(folder / "test.webp"), labels["test"]
        self.public, self.known = tiles(folder / "train-3.webp"), tiles(folder / "train-0.webp")[:KNOWN]
        self.train, self.train_labels = tiles(folder / "train-1.webp"), labels["train_1"]
        self.other = tiles(data / "cifar100" / "train-0.webp")


CASES: dict[str, dict[str, Any]] = {
    "with labels": {},
    "without labels": {"told": False},
    "plain mixup": {"signs": False},
    "other publics": {"other": True},
    "k = 6": {"others": 4},
    "mirrored": {"mirror": True},
    "moved by up to 1 pixel": {"crop": 1},
    "moved by up to 3 pixels": {"crop": 3},
}
CURVES = ("with labels", "without labels", "plain mixup", "other publics", "k = 6", "mirrored", "moved by up to 1 pixel")
EACH = (5, 10, 15, 20, 35, 50)  # encodings of each private picture as the first of two
CASES |= {  # the curves: one draw each is enough to show where the attack stops
    f"{name}, {each} each": {**CASES[name], "repeats": each} for name in CURVES for each in EACH if each != 50
}  # fmt: skip


def broken(
    pictures: Pictures, seed: int, *, told: bool = True, signs: bool = True, other: bool = False, others: int = 2,
    mirror: bool = False, crop: int = 0, repeats: int = 50,
) -> dict[str, float]:  # fmt: skip
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(pictures.own), PRIVATE, replace=False)
    own, public = pictures.own[rows], pictures.other if other else pictures.public
    recipe = InstaHide(public=others, signs=signs, mirror=mirror, crop=crop)
    sent = recipe.encode(own, public, repeats=repeats, rng=rng, labels=pictures.labels[rows])
    attack = EncodingsAttack(PRIVATE, others=others, mirror=mirror, seed=seed)
    found = attack.decode(sent.pictures, pictures.known, labels=sent.labels if told else None)
    beside = found.compared(own, pictures.known)
    return {
        "found": beside.found, "ssim": float(beside.ssim.mean()), "baseline": float(beside.baseline.mean()),
        "seconds": found.seconds,
    }  # fmt: skip


def attacks(pictures: Pictures, seeds: int, cases: Iterable[str]) -> Iterator[dict[str, Any]]:
    for name in cases:
        settings, measured = CASES[name], commit()
        draws = 1 if "repeats" in settings else seeds
        runs = [broken(pictures, seed, **settings) for seed in range(draws)]
        row = {
            "case": name, "commit": measured, "encodings": PRIVATE * settings.get("repeats", 50), "seeds": draws,
            "found": [run["found"] for run in runs], "ssim": [round(run["ssim"], 4) for run in runs],
            "baseline_ssim": round(statistics.mean(run["baseline"] for run in runs), 4),
            "cpu_seconds": [round(run["seconds"], 1) for run in runs],
        }  # fmt: skip
        print(row, flush=True)
        yield row


def worth(pictures: Pictures, rows: int, epochs: int) -> list[dict[str, Any]]:
    """Test accuracy of one small network, trained on plain pictures, on mixup and on encodings made anew each epoch."""
    import torch
    from torch import nn

    X, y = pictures.train[:rows], pictures.train_labels[:rows].astype(np.int64)
    test, truth = (
        torch.from_numpy(pictures.own.transpose(0, 3, 1, 2).copy()),
        torch.from_numpy(pictures.labels.astype(np.int64)),
    )
    recipes = {"plain": None, "mixup": InstaHide(signs=False), "InstaHide": InstaHide()}
    out = []
    for name, recipe in recipes.items():
        torch.manual_seed(0)
        rng = np.random.default_rng(0)
        model = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 10),
        )  # fmt: skip
        fitting = torch.optim.Adam(model.parameters(), 1e-3)
        for _ in range(epochs):
            if recipe is None:
                seen, told = X, np.eye(10, dtype=np.float32)[y]
            else:
                made = recipe.encode(X, pictures.public, repeats=1, rng=rng, labels=y)
                seen, told = made.pictures, np.pad(made.labels, ((0, 0), (0, 10 - made.labels.shape[1])))
                told = told / told.sum(axis=1, keepdims=True)
            seen = np.abs(seen) if name == "InstaHide" else seen
            order = rng.permutation(len(seen))
            for at in range(0, len(order), 64):
                part = order[at : at + 64]
                batch = torch.from_numpy(seen[part].transpose(0, 3, 1, 2).copy())
                loss = nn.functional.cross_entropy(model(batch), torch.from_numpy(told[part]))
                fitting.zero_grad()
                loss.backward()
                fitting.step()
        with torch.no_grad():
            asked = test.abs() if name == "InstaHide" else test
            right = float((model(asked).argmax(dim=1) == truth).double().mean())
        out.append({"training on": name, "commit": commit(), "pictures": rows, "epochs": epochs, "accuracy": round(right, 4)})
        print(out[-1], flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=5000, help="pictures of the training comparison")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--cases", default=";".join([*CASES, "worth"]), help="which to measure, divided by semicolons")
    parser.add_argument("--out")
    given = parser.parse_args()
    pictures, names = Pictures(Path(given.data)), given.cases.split(";")
    known = json.loads(Path(given.out).read_text()) if given.out and Path(given.out).exists() else {}
    rows = {row["case"]: row for row in known.get("attacks", [])}
    results = {"attacks": [], "worth": known.get("worth", [])}
    for row in attacks(pictures, given.seeds, [name for name in names if name != "worth"]):
        rows[row["case"]] = row
        results["attacks"] = [rows[name] for name in CASES if name in rows]
        write(given.out, results, "torch", "pillow")
    if "worth" in names:
        results = {
            "attacks": [rows[name] for name in CASES if name in rows],
            "worth": worth(pictures, given.rows, given.epochs),
        }
        write(given.out, results, "torch", "pillow")


if __name__ == "__main__":
    main()
