"""Private photographs on a GPU in a minute: public scattering features, a private mean, a small private convolutional network.

    python examples/cifar_scatter.py [FOLDER with CIFAR-10; see image_data.py] [--epsilon 3] [--device cuda]

After Tramèr and Boneh (2021); every image and its mirror image count as one.
Without a folder, made-up images show the same steps. Accuracies: bench/results/sgd_accuracy.json.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from discreet.accounting import curve
from discreet.core import Event
from discreet.learn import Augment
from discreet.learn.features import Centre, scatter
from image_data import asked
from mnist_scatter import DELTA, centred

SETTINGS = {"batch": 8192, "steps": 400, "lr": 8.0, "clip_norm": 0.1, "decay": 0.97, "mean_noise": 20.0, "units": 2048}


def inputs(images: Tensor) -> Tensor:
    """The features of every image and of its mirror image, [n, 2, 243, 8, 8], in half precision."""
    return torch.cat([torch.stack([scatter(x), scatter(x.flip(-1))], 1).half() for x in images.split(1000)])


def network(shape: torch.Size) -> nn.Module:
    return Both(nn.Sequential(
        nn.Conv2d(shape[1], 64, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(64, 64, 3, padding=1), nn.Tanh(),
        nn.Flatten(), nn.Linear(1024, 10),
    ))  # fmt: skip


class Both(nn.Sequential):
    """Of one view of every image, [n, 243, 8, 8]; of two, [n, 2, 243, 8, 8], the mean."""

    def forward(self, x: Tensor) -> Tensor:
        views = [x] if x.dim() == 4 else x.unbind(1)
        return torch.stack([super(Both, self).forward(view.float()) for view in views]).mean(0)


def in_turn(x: Tensor) -> Tensor:
    """Of the copies of an image, which lie side by side, one is the image and the next its mirror image."""
    return x[torch.arange(len(x), device=x.device), torch.arange(len(x), device=x.device) % 2]


def fit(x: Tensor, y: Tensor, *, people: int, epsilon: float, **changed: float) -> tuple[nn.Module, Event]:
    """A network of features, and the event of all that was done to the rows. `people` is a public number."""
    return of_both(network, x, y, {**SETTINGS, **changed}, people, epsilon)


def of_both(make: Callable[[torch.Size], nn.Module], x: Tensor, y: Tensor, at: dict[str, float], people: int,
            epsilon: float) -> tuple[nn.Module, Event]:  # fmt: skip
    """Buy the mean of both views of all rows, train what `make` makes on each view in turn."""
    return centred(
        lambda mean: nn.Sequential(Centre(mean.view(x.shape[2:])), make(x.shape[1:])),
        x.mean(1, dtype=torch.float32).flatten(1), x, y, at, people, epsilon, augment=Augment(in_turn, copies=2),
    )  # fmt: skip


if __name__ == "__main__":
    real, epsilon, (images, labels, test, truth) = asked(__doc__, 3.0, 500, 100, size=32, colours=3)
    small = {} if real else {"batch": 250, "steps": 10}
    model, event = fit(inputs(images), labels, people=50_000 if real else 500, epsilon=epsilon, **small)
    right = (model(inputs(test)).argmax(1) == truth).float().mean()
    print(f"{right:.2%} right; epsilon {curve(event).epsilon(DELTA):.3f} at delta {DELTA:g}, one image added or removed")
