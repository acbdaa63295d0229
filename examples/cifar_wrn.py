"""Private photographs on a GPU: a wide residual network that starts from a public prior.

    python examples/cifar_wrn.py [FOLDER with CIFAR-10; see image_data.py] [--epsilon 8] [--device cuda]

After De et al. (2022): standardised weights, groups normalised, changed copies of every image that count as one, an average of
the weights. It starts from what it learned of images that random processes made (random_images.py), first with its last layer
alone. Without a folder, a few steps. Accuracies: bench/results/sgd_accuracy.json.
"""

import torch
from torch import Tensor, nn

import discreet
from discreet.accounting import Gaussian, Poisson, Repeat, Sequence, calibrate, curve
from discreet.core import Event
from image_data import asked
from random_images import prior
from wide_resnet import Wide, augment

DELTA = 1e-5
SETTINGS = {"batch": 4096, "steps": 400, "head_steps": 60, "lr": 2.0, "head_lr": 30.0, "clip_norm": 1.0, "decay": 0.9999,
            "copies": 4, "units": 1500}  # fmt: skip


def inputs(images: Tensor) -> Tensor:
    return (images if images.is_floating_point() else images / 255) * 4 - 2


def network(shape: torch.Size) -> nn.Module:
    model = Wide()
    last = {"head.weight": torch.zeros_like(model.head.weight), "head.bias": model.head.bias}
    model.load_state_dict(last | prior("cuda" if torch.cuda.is_available() else "cpu"))
    return model


@torch.no_grad()
def seen(model: nn.Module, x: Tensor) -> Tensor:
    """What goes into the last layer."""
    last, model.head = model.head, nn.Identity()
    found = torch.cat([model(part) for part in x.split(1000)])
    model.head = last
    return found


def fit(x: Tensor, y: Tensor, *, people: int, epsilon: float, **changed: float) -> tuple[nn.Module, Event]:
    """A trained network and the event of all that was done to the rows. `people` is a public number."""
    at = {**SETTINGS, **changed}
    model = (network(x.shape[1:]) if people > 1000 else Wide(10, 1)).to(x.device)
    rate, steps, events = at["batch"] / people, [int(at["head_steps"]), int(at["steps"])], []
    noise = calibrate(lambda s: Repeat(Poisson(rate, Gaussian(s)), sum(steps)), epsilon, DELTA)
    same = {"unit": discreet.record(), "delta": DELTA, "rate": rate, "noise_multiplier": noise, "divisor": at["batch"],
            "clip_norm": at["clip_norm"], "loss": nn.CrossEntropyLoss(reduction="none")}  # fmt: skip
    copies = {"augment": discreet.learn.Augment(augment, copies=int(at["copies"])),
              "performance": discreet.learn.Performance(microbatch=int(at["units"]))}  # fmt: skip
    average = discreet.learn.Average(model, at["decay"])
    first, second = (model.head, (seen(model, x), y), at["head_lr"], steps[0], {}), (model, (x, y), at["lr"], steps[1], copies)
    for part, data, lr, count, more in (first, second):
        run = discreet.learn.train(part, torch.optim.SGD(part.parameters(), lr), data, steps=count, **same, **more)
        run.fit(lambda step: average.update(), progress=True)
        events.append(run.plan.event())
    average.copy_to(model)
    return model, Sequence(events)


if __name__ == "__main__":
    real, epsilon, (images, labels, test, truth) = asked(__doc__, 8.0, 64, 64, size=32, colours=3)
    small = {} if real else {"batch": 16, "steps": 3, "head_steps": 2, "copies": 2}
    model, event = fit(inputs(images), labels, people=50_000 if real else 64, epsilon=epsilon, **small)
    right = torch.cat([model(part).argmax(1) for part in inputs(test).split(1000)]) == truth
    print(f"{right.float().mean():.2%} right; epsilon {curve(event).epsilon(DELTA):.3f} at delta {DELTA:g}")
