"""Private digits (or clothes) in a CPU minute: public scattering features, a private mean, a private linear layer.

    python examples/mnist_scatter.py [FOLDER with the idx files of MNIST or Fashion-MNIST] [--epsilon 3]

Without a folder, made-up images show the same steps. Accuracies: bench/results/sgd_accuracy.json.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import discreet
from discreet.accounting import Gaussian, Poisson, Repeat, Sequence, calibrate, curve
from discreet.core import Event
from discreet.learn.features import Centre, private_mean, scatter
from image_data import asked

DELTA = 1e-5
SETTINGS = {"batch": 4096, "steps": 600, "lr": 6.0, "clip_norm": 0.1, "decay": 0.97, "mean_noise": 20.0, "units": 512}


def inputs(images: Tensor) -> Tensor:
    return scatter(images).flatten(1)


def network(shape: torch.Size) -> nn.Module:
    return nn.Linear(shape[0], 10)


def fit(x: Tensor, y: Tensor, *, people: int, epsilon: float, **changed: float) -> tuple[nn.Module, Event]:
    """A linear model of features, and the event of all that was done to the rows. `people` is a public number."""
    return centred(
        lambda mean: nn.Sequential(Centre(mean), network(mean.shape)), x, x, y, {**SETTINGS, **changed}, people, epsilon
    )


def centred(make: Callable[[Tensor], nn.Module], rows: Tensor, x: Tensor, y: Tensor, at: dict[str, float], people: int,
            epsilon: float, **more: Any) -> tuple[nn.Module, Event]:  # fmt: skip
    """Buy the mean of `rows`, train what `make` makes with it on the rest of epsilon."""
    rate, steps, unit = at["batch"] / people, int(at["steps"]), discreet.record()
    longest = rows.shape[1] ** 0.5  # normalised rows are no longer than the root of their number of values
    mean, bought = private_mean(
        rows, clip_norm=longest, unit=unit, delta=DELTA, noise_multiplier=at["mean_noise"], divisor=people
    )
    before = bought.plan.event()
    noise = calibrate(lambda s: Sequence([before, Repeat(Poisson(rate, Gaussian(s)), steps)]), epsilon, DELTA)
    model = make(mean).to(x.device)
    run = discreet.learn.train(
        model, torch.optim.SGD(model.parameters(), at["lr"], momentum=0.9), (x, y), nn.CrossEntropyLoss(reduction="none"),
        unit=unit, delta=DELTA, rate=rate, steps=steps, clip_norm=at["clip_norm"], noise_multiplier=noise, divisor=at["batch"],
        performance=discreet.learn.Performance(microbatch=int(at["units"])), **more,
    )  # fmt: skip
    average = discreet.learn.Average(model, at["decay"])
    for _ in run:
        average.update()
    average.copy_to(model)
    return model, Sequence([before, run.plan.event()])


if __name__ == "__main__":
    real, epsilon, (images, labels, test, truth) = asked(__doc__, 3.0, 2000, 500)
    small = {} if real else {"batch": 500, "steps": 20}
    model, event = fit(inputs(images), labels, people=60_000 if real else 2000, epsilon=epsilon, **small)
    right = (model(inputs(test)).argmax(1) == truth).float().mean()
    print(f"{right:.2%} right; epsilon {curve(event).epsilon(DELTA):.3f} at delta {DELTA:g}, one image added or removed")
