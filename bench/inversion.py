"""Faces recreated from recognisers: white-box, black-box, label-only, with a public prior or none, and from private models.

    PYTHONPATH=src python bench/inversion.py --data ../shared/data [--seeds 3] [--out bench/results/inversion.json]

The ORL faces: 40 people, ten pictures each, shrunk to 28 x 23. Twenty people, drawn anew for every seed, are private: a model
learns to tell them apart from seven pictures of each. The other twenty are public. The recogniser that judges knows all 40, by
the public pictures and the three pictures of each private person that no model saw; chance is 1 in 40. Beside the recreated
faces stands the mean of the public people. Private models have a claim on one *picture*; that on a person is a group of seven.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import nn

import discreet
from _record import commit, write
from discreet.accounting import Gaussian, Group, Repeat, calibrate, curve
from discreet.attack.inversion import ClassInversion, DecoderPrior, PicturePrior
from discreet.attack.pictures import ssim

SHAPE, PEOPLE, SHOTS = (28, 23, 1), 20, 7
RUNS = 30  # five models, three ways, with and without public faces
EPSILONS, DELTA, STEPS = (8.0, 1.0), 1e-5, 100


def faces(data: Path) -> np.ndarray:
    from PIL import Image

    mosaic = np.asarray(Image.open(data / "faces-orl" / "orl_faces.png"))
    down, across = mosaic.shape[0] // 112, mosaic.shape[1] // 92
    pictures = mosaic.reshape(down, 112, across, 92).swapaxes(1, 2).reshape(down * across, 112, 92) / 255.0
    return pictures.reshape(-1, 28, 4, 23, 4).mean(axis=(2, 4))[..., None]


class World:
    """Who is private, who is public, and a recogniser of all: linear discriminants of principal components, by cosine."""

    def __init__(self, pictures: np.ndarray, seed: int) -> None:
        who, shot = np.arange(400) // 10, np.arange(400) % 10
        self.people = np.sort(np.random.default_rng(seed).permutation(40)[:PEOPLE])
        inside = np.isin(who, self.people)
        train, held = inside & (shot < SHOTS), inside & (shot >= SHOTS)
        self.public, self.train = pictures[~inside], pictures[train]
        self.labels = np.searchsorted(self.people, who[train])
        self.held, self.held_labels = pictures[held], np.searchsorted(self.people, who[held])
        known, names = pictures[held | ~inside].reshape(-1, 644), who[held | ~inside]
        self.middle = known.mean(axis=0)
        self.axes = np.linalg.svd(known - self.middle, full_matrices=False)[2][:60]
        parts = (known - self.middle) @ self.axes.T
        centres = np.stack([parts[names == name].mean(axis=0) for name in range(40)])
        rest = parts - centres[names]
        scatter = rest.T @ rest / len(rest)
        scatter += 0.01 * np.trace(scatter) / 60 * np.eye(60)
        self.whiten = np.linalg.inv(np.linalg.cholesky(scatter)).T
        self.centres = centres @ self.whiten

    def recognise(self, pictures: np.ndarray) -> np.ndarray:
        seen = (pictures.reshape(len(pictures), -1) - self.middle) @ self.axes.T @ self.whiten
        one, two = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (seen, self.centres))
        return one @ two.T


def fitted(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    search = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-4)
    for _ in range(300):
        loss = nn.functional.cross_entropy(model(rows), labels)
        search.zero_grad()
        loss.backward()
        search.step()
    return model.eval()


def recognisers(rows: torch.Tensor, labels: torch.Tensor) -> dict[str, nn.Module]:
    """The three of the lectures: softmax regression, one hidden layer, and a layer that learned to remove noise first."""
    width = rows.shape[1]
    hidden = nn.Sequential(nn.Linear(width, 300), nn.Sigmoid(), nn.Linear(300, PEOPLE))
    cleaner = nn.Sequential(nn.Linear(width, 300), nn.Sigmoid(), nn.Linear(300, width))
    search = torch.optim.Adam(cleaner.parameters(), 1e-3)
    for _ in range(400):
        loss = (cleaner(rows + 0.1 * torch.randn_like(rows)) - rows).square().mean()
        search.zero_grad()
        loss.backward()
        search.step()
    denoising = nn.Sequential(cleaner[0], cleaner[1], nn.Linear(300, PEOPLE))
    made = {"softmax": nn.Linear(width, PEOPLE), "hidden layer": hidden, "denoising": denoising}
    return {name: fitted(model, rows, labels) for name, model in made.items()}


def private(rows: torch.Tensor, labels: torch.Tensor, epsilon: float) -> tuple[nn.Module, float]:
    """Softmax regression with a claim on one picture, and the epsilon of that claim."""
    model = nn.Linear(rows.shape[1], PEOPLE)
    run = discreet.learn.train(
        model, torch.optim.SGD(model.parameters(), 0.5), (rows - rows.mean(), labels), nn.CrossEntropyLoss(reduction="none"),
        unit=discreet.record(), epsilon=epsilon, delta=DELTA, rate=1.0, steps=STEPS, clip_norm=1.0, divisor=float(len(rows)),
    )  # fmt: skip
    for _ in run:
        pass
    return nn.Sequential(Shift(float(rows.mean())), model).eval(), run.spent()


class Shift(nn.Module):
    def __init__(self, middle: float) -> None:
        super().__init__()
        self.middle = middle

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.middle


def accuracy(model: nn.Module, world: World) -> float:
    with torch.no_grad():
        answers = model(torch.tensor(world.held.reshape(-1, 644), dtype=torch.float32)).argmax(dim=1).numpy()
    return float((answers == world.held_labels).mean())


def attacks(model: nn.Module, world: World, seed: int) -> list[dict[str, Any]]:
    def confidences(pictures: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.tensor(pictures.reshape(-1, 644), dtype=torch.float32)).softmax(dim=1).numpy()

    out = []
    blind = np.repeat(world.public.mean(axis=0)[None], PEOPLE, axis=0)
    means = np.stack([world.train[world.labels == person].mean(axis=0) for person in range(PEOPLE)])
    for knowing, prior in {"public faces": PicturePrior.learned(world.public), "none": PicturePrior.plain(SHAPE)}.items():
        attack = ClassInversion(prior, seed=seed)
        ways = {
            "white-box": lambda: attack.from_gradients(model, range(PEOPLE)),  # noqa: B023
            "black-box": lambda: attack.from_scores(confidences, range(PEOPLE)),  # noqa: B023
            "label-only": lambda: attack.from_labels(lambda pictures: confidences(pictures).argmax(axis=1), range(PEOPLE)),  # noqa: B023
        }
        for way, run in ways.items():
            started = time.process_time()
            found = run()
            spent = time.process_time() - started
            risk, rank = found.compared(world.recognise, world.people, blind)
            out.append({
                "attack": way, "prior": knowing, "top1": risk.members, "low": risk.low, "high": risk.high,
                "rank": float(rank.mean()), "ssim_to_the_mean_of_the_person": float(ssim(found.pictures, means).mean()),
                "blind_top1": risk.control, "queries_per_class": found.queries // PEOPLE, "cpu_seconds": round(spent, 2),
            })  # fmt: skip
    return out


def attacked(pictures: np.ndarray, seed: int) -> tuple[World, list[tuple[str, nn.Module, float | None]]]:
    """Who is private in this draw, and the models that tell them apart."""
    torch.manual_seed(seed)
    world = World(pictures, seed)
    rows, labels = torch.tensor(world.train.reshape(-1, 644), dtype=torch.float32), torch.tensor(world.labels)
    models: list[Any] = [(name, model, None) for name, model in recognisers(rows, labels).items()]
    models += [(f"softmax, epsilon {epsilon:g}", *private(rows, labels, epsilon)) for epsilon in EPSILONS]
    return world, models


def by_decoder(pictures: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """White-box, with a decoder that was trained on the public faces."""
    (world, models), out = attacked(pictures, seed), []
    attack = ClassInversion(DecoderPrior.learned(world.public, seed=seed), seed=seed)
    blind = np.repeat(world.public.mean(axis=0)[None], PEOPLE, axis=0)
    means = np.stack([world.train[world.labels == person].mean(axis=0) for person in range(PEOPLE)])
    for name, model, _ in models:
        found = attack.from_gradients(model, range(PEOPLE))
        risk, rank = found.compared(world.recognise, world.people, blind)
        alike = float(ssim(found.pictures, means).mean())
        out.append({
            "seed": seed, "model": name, "accuracy": accuracy(model, world), "top1": risk.members, "rank": float(rank.mean()),
            "ssim_to_the_mean_of_the_person": alike,
        })  # fmt: skip
        print(out[-1], flush=True)
    return out


def of_seed(pictures: np.ndarray, seed: int) -> list[dict[str, Any]]:
    (world, models), out = attacked(pictures, seed), []
    for name, model, spent in models:
        right = accuracy(model, world)
        for row in attacks(model, world, seed):
            out.append({"seed": seed, "model": name, "epsilon": spent, "accuracy": right, **row})
            print(out[-1], flush=True)
    return out


def table(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over seeds for each model and way of attack."""
    names = ("accuracy", "top1", "rank", "ssim_to_the_mean_of_the_person", "blind_top1", "cpu_seconds")
    out = []
    for model, attack, prior in dict.fromkeys((run["model"], run["attack"], run["prior"]) for run in runs):
        mine = [run for run in runs if (run["model"], run["attack"], run["prior"]) == (model, attack, prior)]
        out.append({
            "model": model, "attack": attack, "prior": prior, "queries_per_class": mine[0]["queries_per_class"],
            **{name: round(statistics.mean(run[name] for run in mine), 4) for name in names},
            "top1_each": [run["top1"] for run in mine],
            "ssim_each": [round(run["ssim_to_the_mean_of_the_person"], 3) for run in mine],
        })  # fmt: skip
    return out


def best_possible(pictures: np.ndarray, seed: int) -> float:
    """How often the judge recognises the mean of a person's training pictures, which no attack has."""
    world = World(pictures, seed)
    means = np.stack([world.train[world.labels == one].mean(axis=0) for one in range(PEOPLE)])
    return float((world.recognise(means).argmax(axis=1) == world.people).mean())


def ceilings() -> dict[str, float]:
    """The largest share of people recognised by whoever would be right once in 40 had the person not been there.

    The claim is on one picture, so a person is a group of seven. A trade-off curve is concave: the mean of the shares with
    each person is at most its power at the mean of those without.
    """

    def event(epsilon: float) -> Any:
        noise = calibrate(lambda size: Repeat(Gaussian(size), STEPS), epsilon=epsilon, delta=DELTA)
        return Repeat(Gaussian(noise), STEPS)

    return {f"{epsilon:g}": float(curve(Group(event(epsilon), SHOTS)).power(1 / 40)) for epsilon in EPSILONS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", help="seeds that stand in it are not run again")
    given = parser.parse_args()
    pictures = faces(Path(given.data))
    known = json.loads(Path(given.out).read_text()) if given.out and Path(given.out).exists() else {}
    counts = Counter(run["seed"] for run in known.get("runs", []))  # a seed that was stopped midway is run again
    drawn = known.get("decoder", [])
    runs, measured = [run for run in known.get("runs", []) if counts[run["seed"]] == RUNS], known.get("commit", commit())
    for seed in range(given.seeds):
        runs = runs if any(run["seed"] == seed for run in runs) else [*runs, *of_seed(pictures, seed)]
        seeds = sorted({run["seed"] for run in runs})
        drawn = drawn if any(run["seed"] == seed for run in drawn) else [*drawn, *by_decoder(pictures, seed)]
        best = [best_possible(pictures, each) for each in seeds]
        write(given.out, {
            "commit": measured, "chance": 1 / 40, "seeds": len(seeds), "ceilings": ceilings(), "table": table(runs),
            "means_of_training_pictures_top1": best, "decoder": drawn,
            "runs": runs,
        }, "torch")  # fmt: skip


if __name__ == "__main__":
    main()
