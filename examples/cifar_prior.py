"""Private photographs without training a network on them: features of a public prior, a private mean, a private linear layer.

    python examples/cifar_prior.py [FOLDER with CIFAR-10; see image_data.py] [--epsilon 3] [--device cuda]

The features are what a network sees that learned from images of random processes (random_images.py, which wants a GPU, once);
it stays as it is, so only the linear layer pays. Every image and its mirror image count as one.
Without a folder, made-up images and a network that learned nothing show the same steps. Accuracies:
bench/results/sgd_accuracy.json.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cifar_scatter import Both, of_both
from cifar_wrn import network as with_prior
from discreet.accounting import curve
from discreet.core import Event
from image_data import asked
from mnist_scatter import DELTA
from wide_resnet import Wide

SETTINGS = {"batch": 8192, "steps": 300, "lr": 8.0, "clip_norm": 0.1, "decay": 0.98, "mean_noise": 20.0, "units": 1024}


def inputs(images: Tensor, model: Wide | None = None) -> Tensor:
    """What the network sees of every image and of its mirror image, [n, 2, channels, 4, 4], in half precision."""
    model = (model or with_prior(images.shape[1:])).to(images.device)

    @torch.no_grad()
    def seen(x: Tensor) -> Tensor:
        x = (x if x.is_floating_point() else x / 255) * 4 - 2
        with torch.autocast(x.device.type, torch.bfloat16):
            found = F.avg_pool2d(model.norm(model.blocks(x)).float(), 2)
        size = found.flatten(1).norm(dim=1)[:, None, None, None]
        return (found * found[0].numel() ** 0.5 / size.clamp_min(1e-6)).half()  # all of one length

    return torch.cat([torch.stack([seen(x), seen(x.flip(-1))], 1) for x in images.split(500)])


def network(shape: torch.Size) -> nn.Module:
    return Both(nn.Flatten(), nn.Linear(shape[1:].numel(), 10))


def fit(x: Tensor, y: Tensor, *, people: int, epsilon: float, **changed: float) -> tuple[nn.Module, Event]:
    """A linear model of features, and the event of all that was done to the rows. `people` is a public number."""
    return of_both(network, x, y, {**SETTINGS, **changed}, people, epsilon)


if __name__ == "__main__":
    real, epsilon, (images, labels, test, truth) = asked(__doc__, 3.0, 300, 100, size=32, colours=3)
    small, model = ({}, None) if real else ({"batch": 150, "steps": 10}, Wide(10, 1))
    fitted, event = fit(inputs(images, model), labels, people=50_000 if real else 300, epsilon=epsilon, **small)
    right = (fitted(inputs(test, model)).argmax(1) == truth).float().mean()
    print(f"{right:.2%} right; epsilon {curve(event).epsilon(DELTA):.3f} at delta {DELTA:g}, one image added or removed")
