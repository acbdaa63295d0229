"""Private digits end to end: a small convolutional network on pixels, no features made beforehand.

    python examples/mnist_cnn.py [FOLDER with the idx files of MNIST or Fashion-MNIST] [--epsilon 3]

The network is that of Papernot et al. ("Tempered sigmoid activations", 2021); tanh keeps its gradients short. Every image is
seen in several places at once, which together count as one.
Without a folder, made-up images show the same steps. Accuracies: bench/results/sgd_accuracy.json.
"""

import torch
from torch import Tensor, nn

import discreet
from discreet.core import Event
from image_data import asked

DELTA = 1e-5
SETTINGS = {"batch": 4096, "steps": 1500, "lr": 1.5, "momentum": 0.9, "fall": 0, "clip_norm": 0.1, "decay": 0.98, "copies": 4,
            "units": 1024, "width": 16, "groups": 0}  # fmt: skip
__all__ = ["DELTA", "SETTINGS", "fit", "inputs", "network"]


def inputs(images: Tensor) -> Tensor:
    """Pixels with mean about 0 and variance about 1; the two numbers are public."""
    return ((images if images.is_floating_point() else images.float() / 255)[:, None] - 0.13) / 0.31


def network(shape: torch.Size, width: int = int(SETTINGS["width"]), groups: int = int(SETTINGS["groups"])) -> nn.Module:
    """With `width` filters in the first layer, normalised in so many groups where that is above 0."""
    assert tuple(shape) == (1, 28, 28)
    one, two = ([nn.GroupNorm(groups, many, affine=False)] if groups else [] for many in (width, 2 * width))
    return nn.Sequential(
        nn.Conv2d(1, width, 8, stride=2, padding=3), *one, nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(width, 2 * width, 4, stride=2), *two, nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(32 * width, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


def augment(x: Tensor) -> Tensor:
    """Every image moved by up to 2 pixels, each by itself."""
    top, left = torch.randint(0, 5, (2, len(x), 1), device=x.device)
    rows, columns = (start + torch.arange(28, device=x.device) for start in (top, left))
    every = torch.arange(len(x), device=x.device)[:, None, None]
    room = nn.functional.pad(x[:, 0], (2,) * 4, value=-0.13 / 0.31)
    return room[every, rows[:, :, None], columns[:, None, :]][:, None]


def fit(x: Tensor, y: Tensor, *, people: int, epsilon: float, **changed: float) -> tuple[nn.Module, Event]:
    """A trained network and the event of its training. `people` is a public number."""
    at = {**SETTINGS, **changed}
    model = network(x.shape[1:], int(at["width"]), int(at["groups"])).to(x.device)
    optimizer = torch.optim.SGD(model.parameters(), at["lr"], momentum=at["momentum"])
    run = discreet.learn.train(
        model, optimizer, (x, y), nn.CrossEntropyLoss(reduction="none"),
        unit=discreet.record(), epsilon=epsilon, delta=DELTA, rate=at["batch"] / people, steps=int(at["steps"]),
        clip_norm=at["clip_norm"], divisor=at["batch"],
        performance=discreet.learn.Performance(microbatch=int(at["units"])),
        augment=discreet.learn.Augment(augment, copies=int(at["copies"])) if at["copies"] > 1 else None,
    )  # fmt: skip
    average = discreet.learn.Average(model, at["decay"])
    for step in run:
        average.update()
        optimizer.param_groups[0]["lr"] = at["lr"] * (1 - at["fall"] * step.number / step.steps)  # falls to 0 where fall is 1
    average.copy_to(model)
    return model, run.plan.event()


if __name__ == "__main__":
    real, epsilon, (images, labels, test, truth) = asked(__doc__, 3.0, 1000, 500)
    small = {} if real else {"batch": 250, "steps": 20, "copies": 2}
    model, event = fit(inputs(images), labels, people=60_000 if real else 1000, epsilon=epsilon, **small)
    right = (model(inputs(test)).argmax(1) == truth).float().mean()
    print(f"{right:.2%} right; epsilon {discreet.accounting.curve(event).epsilon(DELTA):.3f} at delta {DELTA:g}")
