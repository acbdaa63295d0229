"""Federated learning: simulated clients per second, memory, epsilon, what stock noise delivers, and private accuracy.

    python bench/federated.py [--case gaps,speed,memory,accuracy,gpu] [--flower PYTHON] [--pfl PYTHON] [--data DATA]
                              [--out bench/results/federated.json]

Speed: all simulators train the same clients (bench/peers/federated_clients.py) and take turns round by round; each is a process
of its own on one thread, Flower with its two Ray workers. A ratio is that of the medians of wall-clock seconds; the mean of
processor time, of a process with its children, is beside it, since a busy machine slows processes unevenly. `gpu` needs CUDA.
PYTHON is that of an environment with flwr[simulation], dp-accounting and discreet (pfl-research with torch). DATA holds mnist/
and fashion-mnist/. Each case replaces its own part of FILE.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from _record import commit, machine, write
from discreet.federate import Central, Clients, FedAvg, client, simulate
from discreet.federate import rounds as running
from discreet.federate.looped import Looped

PEERS = Path(__file__).parent / "peers"
sys.path.insert(0, str(PEERS))
from federated_clients import BATCH, CLIENTS, RATE, Turns, network, rows  # noqa: E402

LOSS = nn.CrossEntropyLoss(reduction="none")
WARM, ROUNDS = 3, 15


# ---- speed -----------------------------------------------------------------------------------------------------------------


def turns(kind: str, each: int, engine: str, device: str) -> None:
    """This project's own simulation, one round when told; as a process of its own."""
    if engine == "loop":
        running.engine = lambda model, loss, place, *rest, **more: Looped(model, loss, place)
    kept = [tuple(part.to(device) for part in rows(number)) for number in range(CLIENTS)]
    waiting = Turns()

    def after(done: int, total: int) -> None:
        if device == "cuda":
            torch.cuda.synchronize()
        if not waiting.next():
            os._exit(0)

    strategy = FedAvg(learning_rate=RATE, batch_size=BATCH)
    simulate(
        network(kind), Clients(kept.__getitem__, CLIENTS), LOSS, strategy=strategy, rounds=10**6, per_round=each,
        progress=after, device=device,
    )  # fmt: skip


class Peer:
    """A process that simulates one round when it is told."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name, self.wall, self.processor = name, [], []
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )

    def round(self) -> None:
        before = processor_seconds(self._process.pid)
        print("go", file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("took "):
                self.wall.append(float(line.split()[1]))
                self.processor.append(processor_seconds(self._process.pid) - before)
                return
        raise RuntimeError(f"{self.name} ended")

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(60)

    def result(self, each: int) -> dict[str, float]:
        wall, processor = (np.array(part[WARM:]) for part in (self.wall, self.processor))
        low, high = np.percentile(wall, [25, 75])
        return {
            "clients_per_second": each / float(np.median(wall)), "wall_seconds": float(np.median(wall)),
            "wall_quartiles": [float(low), float(high)], "processor_seconds": float(processor.mean()), "rounds": len(wall),
        }  # fmt: skip


def processor_seconds(process: int) -> float:
    """Of a process and all that descend from it."""
    found: dict[int, tuple[int, float]] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(each.parent.name)] = int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    family, grew = {process}, True
    while grew:
        more = {number for number, (parent, _) in found.items() if parent in family} - family
        family, grew = family | more, bool(more)
    return sum(found[number][1] for number in family if number in found)


def speed(flower: str | None, pfl: str | None, device: str = "cpu") -> dict[str, Any]:
    results: dict[str, Any] = {}
    for kind, each in (("mlp", 20), ("cnn", 20)) if device == "cpu" else (("cnn", 100),):
        own = [sys.executable, __file__, "--turns", kind, "--each", str(each), "--device", device]
        peers = [Peer("discreet", [*own, "--engine", "stack"]), Peer("loop", [*own, "--engine", "loop"])]
        if flower:
            peers.append(Peer("flower", [flower, str(PEERS / "flower_simulation.py"), kind, str(each)]))
        if pfl:
            peers.append(Peer("pfl", [pfl, str(PEERS / "pfl_simulation.py"), kind, str(each)]))
        for number in range(WARM + ROUNDS):
            for peer in peers:
                peer.round()
            print(kind, number, {peer.name: round(peer.wall[-1], 4) for peer in peers}, flush=True)
        found = {peer.name: peer.result(each) for peer in peers}
        for peer in peers:
            peer.close()
        for name in found:
            if name != "discreet":
                for clock in ("wall", "processor"):
                    ratio = found[name][f"{clock}_seconds"] / found["discreet"][f"{clock}_seconds"]
                    found["discreet"][f"times_{name}_{clock}"] = ratio
        results[f"{kind}, {each} per round"] = found
    return results


# ---- memory ----------------------------------------------------------------------------------------------------------------


def resident(clients: int) -> None:
    """100 rounds of 20 clients out of so many, whose rows are made when they are read; the peak is printed, in MiB."""
    known = Clients(rows, clients)
    begun = time.process_time()
    strategy = FedAvg(learning_rate=RATE, batch_size=BATCH)
    simulate(network("mlp"), known, LOSS, strategy=strategy, rounds=100, per_round=20)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"peak_mib": peak, "processor_seconds": time.process_time() - begun}))


def memory() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for clients in (100, 1_000, 10_000):
        done = subprocess.run(
            [sys.executable, __file__, "--resident", str(clients)], check=True, capture_output=True, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        found[f"{clients} clients"] = json.loads(done.stdout.splitlines()[-1])
        print(clients, found[f"{clients} clients"], flush=True)
    return found


# ---- accuracy --------------------------------------------------------------------------------------------------------------


def images(folder: Path, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    def read(name: str, start: int) -> np.ndarray:
        (file,) = folder.glob(f"{name}.*")
        unpacked = (gzip if file.suffix == ".gz" else lzma).decompress(file.read_bytes())
        return np.frombuffer(unpacked, np.uint8, offset=start)

    pixels = read(f"{part}-images-idx3-ubyte", 16).reshape(-1, 784).astype(np.float32) / 255
    return torch.from_numpy(pixels), torch.from_numpy(read(f"{part}-labels-idx1-ubyte", 8).astype(np.int64))


def accuracy(data: Path, seeds: int) -> dict[str, Any]:
    """10,000 clients of about 6 images with skewed labels; a claim for a client, epsilon 8 at delta 1e-5."""
    results: dict[str, Any] = {}
    for name in ("mnist", "fashion-mnist"):
        train, test = images(data / name, "train"), images(data / name, "t10k")
        runs: dict[str, list[float]] = {"plain": [], "private": []}
        for seed in range(seeds):
            known = Clients.dirichlet(*train, clients=10_000, alpha=1.0, seed=seed)
            torch.manual_seed(seed)
            model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
            strategy = FedAvg(learning_rate=0.1, epochs=2, batch_size=4)
            privacy = Central(unit=client(), clip_norm=0.5, rate=0.1, divisor=1000.0, epsilon=8.0, delta=1e-5)
            plain = simulate(model, known, LOSS, strategy=strategy, rounds=100, per_round=1000, seed=seed)
            private = simulate(model, known, LOSS, strategy=strategy, rounds=100, privacy=privacy, source=name, seed=seed)
            for kind, done in (("plain", plain), ("private", private)):
                runs[kind].append(float((done.model(test[0]).argmax(1) == test[1]).float().mean()))
            print(name, seed, runs, flush=True)
        noise = privacy.noise(100, sum(p.numel() for p in model.parameters()))
        results[name] = {
            **{kind: {"mean": float(np.mean(found)), "runs": found} for kind, found in runs.items()},
            "epsilon": 8.0, "delta": 1e-5, "noise_multiplier": noise, "clients": 10_000, "rounds": 100, "rate": 0.1,
        }  # fmt: skip
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="gaps,speed,memory,accuracy")
    parser.add_argument("--flower")
    parser.add_argument("--pfl")
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    for name in ("--turns", "--engine"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    for name in ("--each", "--resident"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turns:
        turns(given.turns, given.each, given.engine, given.device)
    elif given.resident:
        resident(given.resident)
    else:
        cases(given)


def cases(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    wanted = given.case.split(",")
    found = json.loads(given.out.read_text()) if given.out and given.out.exists() else {}
    found = {name: part for name, part in found.items() if name in ("gaps", "speed", "memory", "accuracy", "gpu")}
    measured: dict[str, Any] = {}
    if "gaps" in wanted and given.flower:
        done = subprocess.run([given.flower, str(PEERS / "flower_gaps.py")], check=True, capture_output=True, text=True)
        measured["gaps"] = json.loads(done.stdout.splitlines()[-1])
    if "speed" in wanted:
        measured["speed"] = speed(given.flower, given.pfl)
    if "memory" in wanted:
        measured["memory"] = memory()
    if "accuracy" in wanted and given.data.exists():
        measured["accuracy"] = accuracy(given.data, given.seeds)
    if "gpu" in wanted:
        measured["gpu"] = speed(None, None, "cuda")
    for part in measured.values():
        part["measured"] = {"commit": commit(), **machine("torch")}
    write(given.out, {**found, **measured}, "torch")
    print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
