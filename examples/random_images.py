"""A public prior for private photographs: a network that learned from images that random processes made.

    python examples/random_images.py [--steps 7130] [--device cuda] [--out out/prior.npz]

After Tang et al. (2023): nobody's photograph is looked at, so nothing is spent. examples/cifar_wrn.py starts from it.
On an H200 it takes some minutes; without a GPU a tiny network takes a few steps.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from discreet.learn.features import learn_prior
from wide_resnet import Wide

STEPS = 7130  # of 1,024 images, seen twice


def learn(model: Wide, **settings: int) -> dict[str, Tensor]:
    """The weights it learns, without those of its last layer."""
    last, model.head = model.head, nn.Identity()
    start = time.monotonic()
    for number, loss in learn_prior(model, **settings):
        if number % 100 == 0:
            print(f"step {number}, loss {loss:.3f}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    found = {name: value.clone() for name, value in model.state_dict().items()}
    model.head = last
    return found


def prior(device: str, kept: Path = Path("out/prior.npz"), steps: int = STEPS) -> dict[str, Tensor]:
    """The weights of a WRN-16-4 that has seen no photograph, learned once and kept, in half precision."""
    if not kept.exists():
        if device == "cpu":
            sys.exit(f"There is no {kept}; learn it on a GPU first: python examples/random_images.py --device cuda")
        kept.parent.mkdir(parents=True, exist_ok=True)
        found = learn(Wide().to(device), steps=steps)
        np.savez(kept, **{name: value.half().cpu().numpy() for name, value in found.items()})
    with np.load(kept) as weights:
        return {name: torch.from_numpy(weights[name]).float() for name in weights.files}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("out/prior.npz"), help="where the weights are kept")
    asked = parser.parse_args()
    torch.manual_seed(0)
    if asked.device == "cpu":
        found = learn(Wide(10, 1), steps=min(asked.steps, 5), batch=16, pool=64)
    else:
        found = prior(asked.device, asked.out, asked.steps)
    print(f"{sum(value.numel() for value in found.values()):,} numbers learned from images that random processes made")
