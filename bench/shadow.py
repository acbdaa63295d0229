"""Shadow models trained together against one by one: processor time on one core, or the clock of a GPU.

    python bench/shadow.py [--device cpu|cuda] [--art PYTHON] [--privacy-meter CHECKOUT] [--models 64] [--out FILE]

One by one means a tight loop over batches that lie in memory, without a DataLoader, which is a good third faster than with one;
on a GPU also the same loop recorded as a CUDA graph. Only a few of the models are trained one by one, and their time is
multiplied. `--art` names an interpreter that has adversarial-robustness-toolbox, whose own shadow loop then runs too;
`--privacy-meter` a checkout of github.com/privacytrustlab/ml_privacy_meter, whose trainer then runs under this interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1"}

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from _record import write
from discreet.attack.membership import Recipe, splits, train_shadows

NETS = {
    "30-64-2, batch 64": (30, 64, 2, 64, 4_000, 8.0),
    "600-128-100, batch 100": (600, 128, 100, 100, 20_000, 1.9),
}
GPU_NETS = {"600-128-100, batch 100": (600, 128, 100, 100, 20_000)}


def recipe(width: int, hidden: int, classes: int, batch: int, epochs: int) -> Recipe:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, classes))

    return Recipe(build, epochs=epochs, batch_size=batch, optimizer="sgd", learning_rate=0.1, momentum=0.9)


def table(width: int, classes: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return draw.integers(0, 2, (rows, width)).astype(np.float32), draw.integers(0, classes, rows)


def clock(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def alone(how: Recipe, X: np.ndarray, y: np.ndarray, inside: np.ndarray, device: str, *, graphed: bool = False) -> float:
    """Seconds per model of a tight loop, whole batches only."""
    rows, labels = torch.as_tensor(X).to(device), torch.as_tensor(y).to(device)
    taken = []
    for chosen in inside:
        began = clock(device)
        model = how.build().to(device)
        optimizer = torch.optim.SGD(model.parameters(), how.learning_rate, how.momentum)
        members = torch.from_numpy(np.flatnonzero(chosen)).to(device)
        batch = torch.zeros(how.batch_size, dtype=torch.long, device=device)

        def step(model: nn.Module = model, optimizer: Any = optimizer, batch: torch.Tensor = batch) -> None:
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(rows[batch]), labels[batch]).backward()
            optimizer.step()

        replay = _graph(step) if graphed else step
        for _ in range(how.epochs):
            for part in members[torch.randperm(len(members), device=device)].split(how.batch_size):
                if len(part) == how.batch_size:
                    batch.copy_(part)
                    replay()
        taken.append(clock(device) - began)
    return statistics.median(taken)


def _graph(step: Any) -> Any:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def together(how: Recipe, X: np.ndarray, y: np.ndarray, inside: np.ndarray, device: str) -> float:
    """Seconds for all models; asking them about one row is counted in."""
    began = clock(device)
    train_shadows(how, X, y, inside, query=X[:1], device=device)
    return clock(device) - began


def on_cpu(models: int, rounds: int, peers: dict[str, list[str]]) -> dict[str, Any]:
    torch.set_num_threads(1)
    rows: dict[str, Any] = {}
    goals = {}
    for name, (width, hidden, classes, batch, count, goal) in NETS.items():
        X, y = table(width, classes, count)
        how = recipe(width, hidden, classes, batch, epochs=2)
        inside = splits(len(X), models, 0)
        ratios, each = [], []
        for _ in range(rounds):  # interleaved
            one = alone(how, X, y, inside[:3], "cpu")
            all_of_them = together(how, X, y, inside, "cpu")
            ratios.append(one * models / all_of_them)
            each.append((one, all_of_them))
            print(f"{name}: {ratios[-1]:.2f} times", file=sys.stderr, flush=True)
        found: dict[str, Any] = {
            "models": models, "times_one_by_one": round(statistics.median(ratios), 2),
            "spread": [round(min(ratios), 2), round(max(ratios), 2)],
            "cpu_s_per_model_alone": round(statistics.median(a for a, _ in each), 4),
            "cpu_s_per_model_together": round(statistics.median(b for _, b in each) / models, 4),
        }  # fmt: skip
        for peer, command in peers.items():
            theirs = _peer(command, width, hidden, classes, batch, count)
            found[f"{peer}_cpu_s_per_model"] = round(theirs, 4)
            found[f"times_{peer}"] = round(theirs * models / statistics.median(b for _, b in each), 2)
        rows[name] = found
        goals[f"{name}: at least {goal} times one by one"] = found["times_one_by_one"] >= goal
    return {"rows": rows, "goals": goals}


def on_gpu() -> dict[str, Any]:
    rows: dict[str, Any] = {}
    goals = {}
    for name, (width, hidden, classes, batch, count) in GPU_NETS.items():
        X, y = table(width, classes, count)
        how = recipe(width, hidden, classes, batch, epochs=20)
        few = recipe(width, hidden, classes, batch, epochs=4)
        together(few, X, y, splits(len(X), 8, 0), "cuda")  # warm
        eager = alone(few, X, y, splits(len(X), 3, 0), "cuda") * 5
        graphed = alone(how, X, y, splits(len(X), 3, 0), "cuda", graphed=True)
        found: dict[str, Any] = {"eager_s_per_model": round(eager, 3), "graphed_s_per_model": round(graphed, 4)}
        for models in (64, 256, 1024):
            taken = min(together(how, X, y, splits(len(X), models, 0), "cuda") for _ in range(2))
            found[f"{models} models"] = {
                "seconds": round(taken, 3), "times_eager": round(eager * models / taken, 1),
                "times_graphed": round(graphed * models / taken, 1),
            }  # fmt: skip
            print(name, models, found[f"{models} models"], flush=True)
        rows[name] = found
        goals["64 models: at least 50 times eager"] = found["64 models"]["times_eager"] >= 50
        goals["64 models: at least 25 times graphed"] = found["64 models"]["times_graphed"] >= 25
        goals["1024 models, 20 epochs, 10,000 rows: under 10 s"] = found["1024 models"]["seconds"] < 10
    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows, "goals": goals}


def _peers(art: str | None, privacy_meter: str | None) -> dict[str, list[str]]:
    """The commands of the loops of others, but for the sizes."""
    here = Path(__file__).parent / "peers"
    found = {"art": [art, str(here / "art_shadow.py")]} if art else {}
    if privacy_meter:
        found["privacy_meter"] = [sys.executable, str(here / "privacy_meter_shadow.py"), privacy_meter]
    return found


def _peer(command: list[str], *sizes: int) -> float:
    done = subprocess.run([*command, *map(str, sizes)], capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--art", metavar="PYTHON")
    parser.add_argument("--privacy-meter", metavar="CHECKOUT")
    parser.add_argument("--merge", type=Path, help="a result of --device cuda from another machine, to be kept in --out")
    parser.add_argument("--out", type=Path, help="write the result as JSON; what other devices wrote stays")
    given = parser.parse_args()
    kept = json.loads(given.out.read_text())["parts"] if given.out and given.out.exists() else {}
    if given.merge:
        kept["cuda"] = json.loads(given.merge.read_text())["parts"]["cuda"]
    elif given.device == "cuda":
        kept["cuda"] = on_gpu()
    else:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        kept["cpu"] = on_cpu(given.models, given.rounds, _peers(given.art, given.privacy_meter))
    print(json.dumps(kept, indent=1))
    write(given.out, {"parts": kept}, "torch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
