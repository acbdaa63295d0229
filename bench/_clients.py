"""Cases of bench/gradients.py: a client of federated averaging, text, and a server that chooses the weights."""

from __future__ import annotations

import gzip
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from _text import GPT, batches
from _text import sent as text_sent
from _updates import cifar, convolutional, decibels, mlp, sent
from discreet.attack.gradients import federated, gradients, server
from discreet.attack.gradients.network import Network
from discreet.attack.gradients.update import checked
from discreet.audit.binomial import rate_ceiling, rate_floor

Rows = list[dict[str, Any]]
RECOVERED = 19.0  # decibels from which an image counts as recovered, as in Dimitrov et al. 2022


def share(right: int, tried: int) -> dict[str, Any]:
    """A rate with its interval at 95 %."""
    low, high = (float(bound(right, tried, 0.025)) for bound in (rate_floor, rate_ceiling))
    return {"share": right / tried, "low": low, "high": high, "tried": tried}


def text(data: Path, quick: bool) -> Rows:
    """Windows of WikiText-2 of 32 words through a GPT of two blocks and width 384, batches of 8."""
    count = 1 if quick else 3
    words, windows = batches(data, 8, 32, count)
    right, spent, exact = 0, [], 0
    for index, window in enumerate(windows):
        torch.manual_seed(index)
        model = GPT(words)
        found = gradients(model, text_sent(model, window), batch=8, data="text", shape=(32,), seconds=600.0)
        read = {tuple(row) for row in found.rows.tolist()}
        right += sum(tuple(row) in read for row in window[:, :-1].tolist())
        exact += int(found.exact.sum())
        spent.append(found.seconds)
    return [
        {
            "batch": 8, "tokens": 32, "words": words, "width": 384, "sequences": share(right, 8 * count), "certified": exact,
            "cpu_seconds_median": statistics.median(spent),
        }
    ]  # fmt: skip


def malicious(data: Path, quick: bool) -> Rows:
    """CIFAR-10 images of one client of 64, and of a sum of 8 clients of 32; public images set the weights."""
    pictures, labels = cifar(data, 2000)
    out: Rows = []
    for clients, size in ((1, 64),) if quick else ((1, 64), (8, 32)):
        for name in ("honest", "imprint", "single_out"):
            torch.manual_seed(0)
            total = clients * size
            base = nn.Sequential(nn.Flatten(), mlp(3072, 500, 10))
            begin = time.process_time()
            if name == "imprint":
                model: nn.Module = server.imprint(convolutional(nn.ReLU), (3, 32, 32), pictures[1000:], bins=4 * total)
            else:
                model = base if name == "honest" else server.single_out(base, (3, 32, 32), pictures[1000:], rows=total)
            parts = [sent(model, pictures[part], labels[part]) for part in torch.split(torch.arange(total), size)]
            summed = {key: torch.stack([part[key] for part in parts]).sum(0) for key in parts[0]}
            found, agreed = server.read(model, summed, (3, 32, 32))
            truth = pictures[:total].flatten(1).double()
            away = torch.cdist(truth, found.flatten(1)) / 3072**0.5 if len(found) else torch.full((total, 1), torch.inf)
            out.append(
                {
                    "weights": name, "clients": clients, "rows_of_each": size,
                    "read": share(int((away.min(1).values < 1e-3).sum()), total), "said_to_be_rows": int(agreed.sum()),
                    "of_these_wrong": int((away.min(0).values[agreed] > 1e-2).sum()) if bool(agreed.any()) else 0,
                    "cpu_seconds": time.process_time() - begin,
                }
            )  # fmt: skip
    return out


def small(classes: int = 10) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 128),
        nn.ReLU(), nn.Linear(128, classes),
    )  # fmt: skip


def mnist(folder: Path, count: int) -> tuple[Tensor, Tensor]:
    with gzip.open(folder / "mnist" / "train-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(16 + 784 * count), np.uint8, offset=16)
    with gzip.open(folder / "mnist" / "train-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(8 + count), np.uint8, offset=8)
    return torch.tensor(pixels).reshape(-1, 1, 28, 28).float() / 255, torch.tensor(labels).long()


def client(model: nn.Module, rows: Tensor, labels: Tensor, local: federated.Local) -> dict[str, Tensor]:
    """How the weights change; each epoch in an order of its own."""
    first = {name: value.detach() for name, value in model.named_parameters()}
    own = {name: value.clone().requires_grad_() for name, value in first.items()}
    for _ in range(local.epochs):
        for place in torch.split(torch.randperm(len(rows)), local.batch_size):
            loss = F.cross_entropy(functional_call(model, own, (rows[place],)), labels[place])
            made = torch.autograd.grad(loss, list(own.values()))
            own = {
                name: (value.detach() - local.learning_rate * part).requires_grad_()
                for (name, value), part in zip(own.items(), made)
            }
    return {name: own[name].detach() - first[name] for name in first}


def averaging(data: Path, quick: bool) -> Rows:
    """A client with 10 batches of 5 MNIST images; labels are estimated from the update; and each part left out."""
    pictures, labels = mnist(data, 5000)
    out: Rows = []
    for epochs, size, steps in ((1, 10, 300),) if quick else ((1, 10, 300), (5, 10, 300)):
        torch.manual_seed(0)
        model, local = small(), federated.Local(epochs, 0.01, 5)
        update = checked(model, client(model, pictures[:size], labels[:size], local))
        network = Network(model, nn.CrossEntropyLoss(), dtype=torch.float32)
        guessed = federated.labels_of(network, update, size, pictures[4000:4500], local)
        assert guessed is not None
        wrong = int((torch.bincount(guessed, minlength=10) - torch.bincount(labels[:size], minlength=10)).abs().sum()) // 2
        once = federated.Local(1, 0.01 * local.steps(size), size)
        for name, how, prior in (("all", local, federated.PRIOR), ("no prior", local, 0.0), ("no simulation", once, 0.0)):
            if epochs == 1 and name == "no prior":
                continue
            begin = time.process_time()
            found, _ = federated.rows_of(
                network, update, guessed, (1, 28, 28), how, steps=steps, seconds=600.0, seed=0, prior=prior
            )  # fmt: skip
            quality = decibels(pictures[:size], _matched(pictures[:size], found))
            out.append(
                {
                    "epochs": epochs, "batches": size // 5, "rows": size, "attack": name, "labels_wrong": wrong,
                    "recovered": share(sum(each > RECOVERED for each in quality), size),
                    "psnr_mean": statistics.fmean(quality), "cpu_seconds": time.process_time() - begin,
                }
            )  # fmt: skip
            print(out[-1], flush=True)
    return out


def _matched(truth: Tensor, found: Tensor) -> Tensor:
    from scipy.optimize import linear_sum_assignment

    cost = torch.cdist(truth.flatten(1).double(), found.flatten(1).double()) ** 2
    return found[torch.as_tensor(linear_sum_assignment(cost.numpy())[1])]
