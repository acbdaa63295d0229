"""What a private run costs before its first step: the trial on made-up rows, and the proof that examples are independent.

    python bench/sgd_start.py [--layers 12] [--out bench/results/sgd_start.json]

A GPT of so many layers, one math thread, in CPU seconds. The second time it is another model of the same
code and shapes, of which the proof is remembered.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import discreet
from _record import machine, write
from discreet.learn import train

sys.path.insert(0, str(Path(__file__).parent / "peers"))
MOST = 10.0  # CPU seconds for twelve layers


def prepared(layers: int) -> dict[str, float]:
    """CPU seconds until a run is ready, the trial and the proof together, and how many operations were proven."""
    from _sgd_nets import GPT, losses

    model: nn.Module = GPT(words=512, length=64, width=256, layers=layers, heads=4, fused=False)
    data: tuple[Tensor, Tensor] = (torch.randint(512, (8, 64)), torch.randint(512, (8, 64)))
    start = time.process_time()
    run = train(
        model, torch.optim.SGD(model.parameters(), 0.1), data, losses, unit=discreet.record(), delta=1e-5, rate=0.5, steps=10,
        clip_norm=1.0, noise_multiplier=1.0, divisor=4.0,
    )  # fmt: skip
    took = time.process_time() - start
    if run.path != "fast":
        raise SystemExit(f"Not proven: {run.why}")
    return {"ready": round(took, 2), "operations": int(run.why.split()[0])}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    given = parser.parse_args()
    torch.set_num_threads(1)
    prepared(1)  # what is loaded once, and the comparison of torch with its files
    first, again = prepared(given.layers), prepared(given.layers)
    found = {
        "layers": given.layers, "cpu_seconds": {"first": first, "again": again}, "must": MOST, "holds": first["ready"] <= MOST,
        "machine": machine("torch"),
    }  # fmt: skip
    print(found)
    write(given.out, found, "torch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
