"""What a secure sum costs: a round of federated learning with it over one without, and many clients with drop-outs.

    PYTHONPATH=src python bench/secure_sum.py [ROW ...] [--rounds N] [--out bench/results/secure_sum.json]
        [--flower bench/results/secure_sum_flower.json]

Times are CPU seconds of one thread, whole rounds in turn with and without, medians. Rows:

`round`: ten clients train 101,770 parameters (784-128-10) for one epoch, in steps of 16, on 64, 600 and 6,000 made-up rows each
(6,000 is MNIST dealt to ten), and their updates are averaged: by `simulate` with the plain mean, and with
`rule=SecureSum(...).rule`, all parties in one process. The sum is also timed alone, beside writing updates as bytes and adding.
`many`: 1,000 clients with a million parameters each, of whom 5 % drop out when they should send their numbers.
`growth`: what one client computes, for 100 to 10,000 clients, with the fewest neighbours that withstand 5 % that collude and
10 % that drop out.
`flower`: what bench/peers/flower_secure_sum.py wrote, in an environment of its own with flwr; --flower adds it.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import math
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from _record import commit, write
from discreet.federate import Clients, FedAvg, Identity, SecureSum, simulate
from discreet.federate.secure import messages, sparse_graph
from discreet.federate.secure.client import OWN, SEALED

torch.set_num_threads(1)


def clock(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def spread(values: list[float]) -> dict[str, float]:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {"median": float(middle), "lower quartile": float(low), "upper quartile": float(high)}


def one_round(rounds: int) -> list[dict[str, Any]]:
    return [_one_round(rows, max(3, rounds * 64 // rows) if rows > 64 else rounds) for rows in (64, 600, 6000)]


def _one_round(rows: int, rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    size = sum(p.numel() for p in model.parameters())
    clients = Clients.evenly(torch.randn(10 * rows, 784), torch.randint(0, 10, (10 * rows,)), clients=10, seed=0)
    how = FedAvg(learning_rate=0.1, batch_size=16, weighting="equal")
    loss = nn.CrossEntropyLoss(reduction="none")
    plan = SecureSum(size=size, clients=10, clip=1.0, threshold=7)
    kept: list[Any] = []

    def run(**more: Any) -> None:
        simulate(model, clients, loss, strategy=how, rounds=1, **more)

    times: dict[str, list[float]] = {"plain round": [], "secure round": [], "sum alone": [], "bytes and addition alone": []}
    for _ in range(rounds + 1):
        plain, _ = clock(run)
        secure, _ = clock(lambda: run(rule=plan.rule, watch=kept.append))
        updates = kept.pop().updates.numpy()
        alone, found = clock(lambda values=updates: plan.mean_of(values))
        least, _ = clock(lambda values=updates: sum(np.frombuffer(value.tobytes(), np.float32) for value in values) / 10)
        for name, seconds in zip(times, (plain, secure, alone, least)):
            times[name].append(seconds)
    times = {name: seconds[1:] for name, seconds in times.items()}  # the first warms up
    off = float(np.abs(found - updates.astype(np.float64).mean(0)).max())
    return {
        "clients": 10, "parameters": size, "rows of a client": rows, "rounds": rounds, "bits": plan.bits,
        **{name: spread(seconds) for name, seconds in times.items()},
        "ratio": spread([two / one for one, two in zip(times["plain round"], times["secure round"])]),
        "error": off, "error allowed (half a step)": plan.error,
    }  # fmt: skip


def many(clients: int = 1000, size: int = 1_000_000) -> dict[str, Any]:
    neighbours, threshold = sparse_graph(clients, colluding=clients // 20, dropped=clients // 10)
    plan = SecureSum(size=size, clients=clients, clip=1.0, threshold=threshold, neighbours=neighbours, seed=os.urandom(16))
    bounds = plan.bounds(colluding=clients // 20, dropped=clients // 10)
    dropped = set(np.random.default_rng(0).choice(clients, clients // 20, replace=False).tolist())
    base = np.random.default_rng(1).integers(-1000, 1000, size)

    def numbers(client: int) -> Any:  # a row that nobody needs to keep: a rotation of one base row
        return np.roll(base, client * 997)

    spent = {"clients": 0.0, "server": 0.0}

    def timed(who: str, work: Callable[[], Any]) -> Any:
        seconds, found = clock(work)
        spent[who] += seconds
        return found

    identities = [Identity() for _ in range(clients)]
    roster = [identity.public for identity in identities]
    server = plan.server(roster, round=0)
    parties = [plan.client(number, identity, roster, round=0) for number, identity in enumerate(identities)]
    traffic = 0
    for party in parties:
        server.receive(timed("clients", party.keys))
    for stage in ("shares", "masked", "answer"):
        sent = timed("server", server.proceed)
        for number, message in sent.items():
            if stage == "masked" and number in dropped:
                continue
            extra = (numbers(number),) if stage == "masked" else ()
            step = getattr(parties[number], stage)
            answer = timed("clients", lambda do=step, m=message, e=extra: do(m, *e))
            traffic += len(message) + len(answer)
            timed("server", lambda a=answer: server.receive(a))
        print(stage, {name: round(value, 1) for name, value in spent.items()}, flush=True)
    total, stayed = timed("server", server.total)
    expected = sum(numbers(client) for client in stayed)
    return {
        "clients": clients, "parameters": size, "dropped": len(dropped), "neighbours": neighbours, "threshold": threshold,
        "probability to learn more, at 5 % colluding": bounds.learned, "probability to fail, at 10 % dropped": bounds.failed,
        "exact": bool((total == expected).all()), "in the sum": len(stayed),
        "CPU seconds per client": spent["clients"] / clients, "CPU seconds of the server": spent["server"],
        "bytes per client": traffic / clients, "bytes of plain numbers": size * plan.width // 8,
        "peak memory in GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }  # fmt: skip


def growth(size: int = 100_000) -> list[dict[str, Any]]:
    """One client of each federation. Its neighbours are real; what would come from clients further off is left out."""
    rows = []
    for clients in (100, 300, 1000, 3000, 10_000):
        neighbours, threshold = sparse_graph(clients, colluding=clients // 20, dropped=clients // 10)
        plan = SecureSum(size=size, clients=clients, clip=1.0, threshold=threshold, neighbours=neighbours, seed=bytes(16))
        identities = [Identity() for _ in range(clients)]
        roster = [identity.public for identity in identities]
        at, values = plan.session(roster, 0), np.zeros(size, np.float32)
        me = plan.client(0, identities[0], roster, round=0)
        others = {number: plan.client(number, identities[number], roster, round=0) for number in plan.graph[0]}
        first, own = clock(me.keys)
        keys = {number: other.keys() for number, other in others.items()}
        second, _ = clock(lambda m=me, k=keys, a=at: m.shares(messages.write(messages.OTHERS, a, 0, b"".join(k.values()))))
        sealed = b""
        for number, other in others.items():  # each is given the keys of those neighbours of its own that are here
            near = [own if near == 0 else keys[near] for near in plan.graph[number] if near == 0 or near in keys]
            object.__setattr__(plan, "threshold", 1)  # for these stand-ins alone, whose other neighbours are not here
            parts = other.shares(messages.write(messages.OTHERS, at, number, b"".join(near)))
            object.__setattr__(plan, "threshold", threshold)
            body = parts[messages.HEADER.size : -messages.SIGNATURE]
            mine = [body[p + 4 : p + 4 + SEALED] for p in range(0, len(body), 4 + SEALED) if body[p : p + 4] == bytes(4)]
            sealed += number.to_bytes(4, "little") + mine[0]
        delivery = messages.write(messages.DELIVERY, at, 0, sealed)
        third, _ = clock(lambda m=me, d=delivery, v=values: m.masked(d, v))
        asked = b"".join(number.to_bytes(4, "little") + bytes([OWN]) for number in others)
        question = messages.write(messages.SURVIVORS, at, 0, asked)
        fourth, _ = clock(lambda m=me, q=question: m.answer(q))
        seconds = first + second + third + fourth
        rows.append({"clients": clients, "neighbours": neighbours, "threshold": threshold, "CPU seconds": seconds,
                     "milliseconds per log2(clients)": 1000 * seconds / math.log2(clients)})  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=["round", "growth", "many"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out")
    parser.add_argument("--flower")
    asked = parser.parse_args()
    work = {"round": lambda: one_round(asked.rounds), "growth": growth, "many": many}
    kept = json.loads(Path(asked.out).read_text()).get("rows", {}) if asked.out and Path(asked.out).exists() else {}
    for row in asked.rows:
        kept[row] = work[row]()
        print(json.dumps({row: kept[row]}, indent=1))
    if asked.flower:
        kept["flower"] = json.loads(Path(asked.flower).read_text())
    if asked.out:
        write(asked.out, {"commit": commit(), "rows": kept}, "torch", "cryptography")
    return 0


if __name__ == "__main__":
    sys.exit(main())
