"""Private photographs on a GPU: a wide residual network that starts from a public prior.

    python examples/cifar_wrn.py [FOLDER with CIFAR-10; see image_data.py] [--epsilon 8] [--device cuda]

After De et al. ("Unlocking high-accuracy", 2022): standardised weights, groups normalised, large batches, several changed
copies of every image that count as one, and an average of the weights. The network starts with what it learned from images that
random processes made (random_images.py; Tang et al. 2023), which nobody's privacy pays for; that takes some minutes, once.
Without a folder a tiny network takes a few steps. Accuracies: bench/results/sgd_accuracy.json.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import discreet
from discreet.accounting import curve
from discreet.core import Event
from image_data import load, made_up
from random_images import prior
from wide_resnet import Wide, augment

DELTA = 1e-5
SETTINGS = {"batch": 4096, "steps": 250, "lr": 4.0, "clip_norm": 1.0, "decay": 0.9999, "copies": 4, "units": 1500}


def inputs(images: Tensor) -> Tensor:
    return (images if images.is_floating_point() else images / 255) * 4 - 2


def network(shape: torch.Size) -> nn.Module:
    model = Wide()
    last = {name: value for name, value in model.state_dict().items() if name.startswith("head")}
    model.load_state_dict(last | prior("cuda" if torch.cuda.is_available() else "cpu"))
    return model


def fit(x: Tensor, y: Tensor, *, people: int, epsilon: float, **changed: float) -> tuple[nn.Module, Event]:
    """A trained network and the event of its training. `people` is a public number."""
    at = {**SETTINGS, **changed}
    model = (network(x.shape[1:]) if people > 1000 else Wide(10, 1)).to(x.device)
    nn.init.zeros_(model.head.weight)  # so the first steps move the last layer alone
    run = discreet.learn.train(
        model, torch.optim.SGD(model.parameters(), at["lr"]), (x, y), nn.CrossEntropyLoss(reduction="none"), augment=augment,
        unit=discreet.record(), epsilon=epsilon, delta=DELTA, rate=at["batch"] / people, steps=int(at["steps"]),
        clip_norm=at["clip_norm"], divisor=at["batch"], copies=int(at["copies"]), microbatch=int(at["units"]),
    )  # fmt: skip
    average, start = discreet.learn.Average(model, at["decay"]), time.monotonic()
    for step in run:
        average.update()
        if step.number % 50 == 0:
            print(f"step {step.number} of {step.steps}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    average.copy_to(model)
    return model, run.plan.event()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    data = load(asked.folder) if asked.folder else (*made_up(64, 32, 3), *made_up(64, 32, 3))
    images, labels, test, truth = (part.to(asked.device) for part in data)
    small = {} if asked.folder else {"batch": 16, "steps": 3, "copies": 2}
    model, event = fit(inputs(images), labels, people=50_000 if asked.folder else 64, epsilon=asked.epsilon, **small)
    found = torch.cat([model(part).argmax(1) for part in inputs(test).split(1000)])
    print(f"{(found == truth).float().mean():.2%} right; epsilon {curve(event).epsilon(DELTA):.3f} at delta {DELTA:g}")
