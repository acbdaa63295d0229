"""A few processes for tests of torch.distributed: started once, given jobs, on loopback, never waited for without end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard

import discreet
import discreet.learn.sgd.sharded
import discreet.learn.sgd.train  # everything is loaded before processes are forked
from discreet.noise.source import seeded_for_tests

PATIENCE = 120  # seconds that a job may take before the processes are ended


class Ranks:
    """Runs a function of this module on 1 to `most` processes that form a gloo group; `alone` is the same without a group."""

    def __init__(self, most: int, scratch: Path) -> None:
        context = multiprocessing.get_context("forkserver")  # torch is loaded once, before the server forks
        context.set_forkserver_preload(["ranks"])
        self._scratch, self._jobs = scratch, 0
        self._ends, self._processes = [], []
        for _ in range(most):
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(there,), daemon=True)
            process.start()
            self._ends.append(here)
            self._processes.append(process)

    def __call__(self, world: int, job: Any, **given: Any) -> list[Any]:
        answers = self._answers(world, job, given)
        for good, answer in answers:
            if not good:
                raise AssertionError(answer)
        return [answer for _, answer in answers]

    def exits(self, world: int, job: Any, **given: Any) -> list[int | None]:
        """Runs a job that kills processes: the exit code of each, None for those that live. Killed ones take no other job."""
        self._answers(world, job, given)
        return [process.exitcode for process in self._processes[:world]]

    def _answers(self, world: int, job: Any, given: dict[str, Any]) -> list[tuple[bool, Any]]:
        self._jobs += 1
        meet = self._scratch / f"meet-{self._jobs}"
        for rank in range(world):
            self._ends[rank].send((rank, world, str(meet), job.__name__, given))
        answers = []
        for rank in range(world):
            if not self._ends[rank].poll(PATIENCE):
                self.close()
                raise TimeoutError(f"{job.__name__} on {world} processes: rank {rank} did not answer within {PATIENCE} s")
            try:
                answers.append(self._ends[rank].recv())
            except (EOFError, ConnectionResetError):
                self._processes[rank].join(PATIENCE)
                answers.append((False, f"the process ended with {self._processes[rank].exitcode}"))
        return answers

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join(10)


def _work(end: Any) -> None:
    torch.set_num_threads(1)
    if sys.platform == "linux":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    while True:
        rank, world, meet, job, given = end.recv()
        try:
            torch.distributed.init_process_group(
                "gloo", f"file://{meet}", rank=rank, world_size=world, timeout=timedelta(seconds=PATIENCE / 2)
            )
            end.send((True, globals()[job](**given)))
        except BaseException:
            end.send((False, traceback.format_exc()))
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()


# ---- models -----------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.ask, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.last, self.up, self.down = nn.RMSNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.ask(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.last(x))))


class Transformer(nn.Module):
    """Positions without a batch axis, a gate of its own (through torch.func), a head tied to the table."""

    def __init__(self, entries: int = 7, width: int = 8, positions: int = 5) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(entries, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.gate = Gate(width)
        self.head = nn.Linear(width, entries, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.table(x) + self.place(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.gate(h)).mean(1)


class Gate(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate


def made(kind: str, seed: int = 0) -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """A model and 40 rows for it. Shapes do not divide by the number of processes, and one has fewer rows than there are."""
    torch.manual_seed(seed)
    if kind == "mlp":
        model = nn.Sequential(nn.Linear(6, 9), nn.LayerNorm(9), nn.Tanh(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 3))
        model[1].register_buffer("seen", torch.zeros(2))
        return model, (torch.randn(40, 6), torch.randint(3, (40,)))
    return Transformer(), (torch.randint(7, (40, 5)), torch.randint(7, (40,)))


def split(model: nn.Module) -> nn.Module:
    for part in model if isinstance(model, nn.Sequential) else model.blocks:
        if list(part.parameters()):
            fully_shard(part)
    return fully_shard(model)


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, target, reduction="none")


def nothing(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A loss without a gradient: what is left of a run is its noise."""
    return output.sum(1) * 0.0


# ---- jobs -------------------------------------------------------------------------------------------------------------


def begun(
    kind: str = "mlp", wrap: str = "plain", *, momentum: float = 0.9, quiet: bool = False, seeded: bool = True,
    adam: bool = False, **given: Any,
) -> Any:  # fmt: skip
    """A run on this process, and its model; weights differ from process to process until the run levels them."""
    first = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
    model, data = made(kind)
    if wrap == "plain" and not first:
        nn.init.zeros_(next(model.parameters()))
    if wrap == "split":
        split(model)
    if wrap == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    asked = {"unit": discreet.record(), "delta": 1e-5, "rate": 0.08, "steps": 6, "clip_norm": 0.7, "noise_multiplier": 0.8}
    asked |= given
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), 0.3, momentum=momentum)
    if adam:  # a gradient near zero is not turned into a whole step, which would make rounding count
        optimizer = torch.optim.AdamW(model.parameters(), 0.02, eps=1e-2)
    with seeded_for_tests(b"the same everywhere") if seeded else nullcontext():
        run = discreet.learn.train(model, optimizer, asked.pop("data", data), nothing if quiet else loss, **asked)
        if seeded:
            run._begin()
    return run, model


def weights(run: Any) -> dict[str, Any]:
    return {name: value.detach().clone().numpy() for name, value in run._parts.group.whole(run.model.state_dict()).items()}


def trained(**given: Any) -> dict[str, Any]:
    run, _ = begun(**given)
    for _ in run:
        pass
    return weights(run)


def broken(twin: str, wrap: str = "plain", **given: Any) -> dict[str, Any]:
    """A run whose noise is drawn by the wrong processes."""
    from discreet.learn.sgd import distributed, sharded

    kind = sharded.Sharded if wrap == "split" else distributed.Together
    right = kind.noise

    def everywhere(self: Any, stream: Any, into: Any, *, step: int, scale: float) -> None:
        stream.fill(into, step=step, scale=scale)

    def first_only(self: Any, stream: Any, into: Any, *, step: int, scale: float) -> None:
        right(self, stream, into, step=step, scale=scale if self.rank == 0 else 0.0)

    def same_place(self: Any, stream: Any, into: Any, *, step: int, scale: float) -> None:
        """Every shard takes the noise of the first."""
        stream.fill(into, step=step, scale=scale)

    kind.noise = {"everywhere": everywhere, "first_only": first_only, "same_place": same_place}[twin]  # type: ignore[method-assign]
    try:
        return trained(wrap=wrap, **given)
    finally:
        kind.noise = right  # type: ignore[method-assign]


def own_loop(wrap: str, **given: Any) -> dict[str, Any]:
    """A loop that calls the model it was given, wrapper and all."""
    run, model = begun(wrap=wrap, **given)
    for inputs, target in run.batches():
        run.step(loss(model(inputs), target))
    return weights(run)


def stopped(path: str, at: int, **given: Any) -> int:
    run, _ = begun(**given)
    for step in run:
        if step.number == at:
            break
    if run._parts.group.rank == 0 or run._parts.group.split:
        run.save(path)
    return run.number


def interrupted(at: int, **given: Any) -> int:
    """A run that ends after some steps, as if it had been killed."""
    run, _ = begun(**given)
    for step in run:
        if step.number == at:
            break
    return run.number


def killed(at: int, ranks: tuple[int, ...], **given: Any) -> None:
    """A run of which some processes are killed with SIGKILL after a step that all have taken, or in the middle of the next."""
    run, _ = begun(**given)
    for step in run:
        if step.number == at:
            torch.distributed.barrier()
            if torch.distributed.get_rank() in ranks:
                os.kill(os.getpid(), signal.SIGKILL)


def resumed(**given: Any) -> Any:
    """How far a run came that was continued, and the rounds paid for beside its plan; or why it could not be."""
    try:
        run, _ = begun(**given)
        for _ in run:
            pass
    except discreet.errors.DiscreetError as error:
        return str(error)
    return run.number, run._state.extra


def refused(**given: Any) -> tuple[str, str]:
    """What goes wrong where the second process was asked for something else."""
    other = given.pop("other", {})
    if "place" in given:
        given["ledger"] = discreet.Ledger(given.pop("place"))
    if torch.distributed.get_rank() == 1:
        given |= other
    try:
        trained(**given)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def paid(place: str, folder: str, wrap: str = "plain", **given: Any) -> dict[str, Any]:
    """A run without a seed, paid for and released; every process has the ledger open."""
    run, _ = begun(wrap=wrap, seeded=False, ledger=discreet.Ledger(place), source="people", **given)
    for _ in run:
        pass
    first = torch.distributed.get_rank() == 0
    made = run.release(folder if first or wrap == "split" else None)  # as people write it; shards need everybody
    return {
        "entry": made.entry,
        "spent": run.spent(),
        "divisor": run._state.divisor,
        "key": run._state.key,
        "weights": weights(run),
    }
