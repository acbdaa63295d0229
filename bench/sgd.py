"""One private training step against one step of plain SGD, ours and others': forward, backward, clip, noise, update.

    python bench/sgd.py [--device cpu|cuda] [--task TASK] [--variant VARIANT] [--opacus PYTHON] [--jax PYTHON]
                        [--rounds 9] [--out bench/results/sgd.json] [--merge FILE] [--profile FILE]

Every (task, variant) is a process of its own; on the CPU all are pinned to one core with one math thread. Short blocks of
steps are handed out in turn, so that a busy machine slows everybody alike; what is reported is the median over rounds of
the ratio to `plain` in the same round (CPU time; on a GPU, time between device events), its least and most, and the peak
memory of steps over the loaded model (beside it, begin_mib: that of setting up and of the first steps). Peers need an
interpreter that has them (pins in bench/peers) and are left out without one. --merge adds the rows and variants of another
result (the GPU's, made elsewhere) to --out, where it has none.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from _record import machine, write
from peers._sgd_loop import BATCH, CLIP, NOISE

PEERS = Path(__file__).parent / "peers"
ONE = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # one math thread

# task: at most so many times plain SGD, and the goal beyond; at most so many times its peak memory
MUST = {
    "cpu": {
        "mlp": (1.35, 1.15, 1.5), "mlp-small": (1.7, 1.3, 1.5), "mnist-cnn": (1.25, 1.15, 2.5),
        "cifar-cnn": (1.25, 1.15, 2.5), "gpt": (1.3, 1.15, 1.5),
    },
    "cuda": {
        "mlp-4096": (1.5, 1.2, 1.5), "wrn-16-4": (1.5, 1.2, 2.5), "gpt-12": (1.5, 1.2, 1.5), "resnet-18": (1.5, 1.2, 2.5),
        "separable": (1.5, 1.2, 2.5), "llama": (1.5, 1.2, 2.5), "mlp-dropout": (1.5, 1.2, 2.5), "u-net": (1.5, 1.2, 2.5),
        "vit": (1.5, 1.2, 2.5), "lstm": (1.5, 1.2, 2.5),
    },
}  # fmt: skip
VARIANTS = {
    "plain": "torch", "discreet": "discreet", "plain+noise": "torch", "vmap": "torch",
    "opacus-hooks": "opacus", "opacus-functorch": "opacus", "opacus-ew": "opacus", "opacus-ghost": "opacus",
    "jax": "jax", "jax-privacy": "jax",
}  # fmt: skip
PRIVATE = [name for name in VARIANTS if name not in ("plain", "plain+noise", "jax")]
PRECISIONS = {"cpu": ("float32",), "cuda": ("tf32", "bf16")}
Measured = dict[str, Any]


class Worker:
    """One variant of one task in its own process; see peers/_sgd_loop.py."""

    def __init__(self, python: str, script: Path, *asked: str) -> None:
        command = [python, str(script), *asked]
        pipe, place = subprocess.PIPE, os.environ | ONE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=place)
        self.steps, self.replies, self.failed = 1, list[Measured](), ""

    def ready(self, seconds: float, device: str) -> None:
        """Wait for the model, warm it up, choose how many steps fill a block.

        Slow ones are not warmed up for long; but on a GPU the first steps compile and record, and are no measure.
        """
        self.numbers = self._line().get("numbers", 0)
        least, most = (1, 3) if device == "cpu" else (6, 10)
        for number in range(most):
            took = self.block(1, keep=False)
            if number + 1 >= least and took > 4 * seconds:
                break
        self.steps = max(1, int(seconds / took)) if took else 1
        self.begin = float(self._ask("settled").get("begin_mib", 0.0))

    def block(self, steps: int = 0, keep: bool = True) -> float:
        reply = self._ask(str(steps or self.steps))
        if keep and reply:
            self.replies.append(reply)
        return float(reply.get("wall", 0.0))

    def profile(self) -> list[str]:
        """Where the time of a step goes."""
        return list(self._ask("profile").get("profile", [self.failed]))

    def _ask(self, line: str) -> Measured:
        if self.failed:
            return {}
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)
        return self._line()

    def _line(self) -> Measured:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found: Measured = json.loads(line) if line else {"failed": "the process ended"}
        if "failed" in found:
            self.failed = found["failed"]
            return {}
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def measure(task: str, precision: str, given: argparse.Namespace) -> Measured:
    """All variants of one task, in turn."""
    pythons = {"torch": sys.executable, "discreet": sys.executable, "opacus": given.opacus, "jax": given.jax}
    crowd = {}
    for name, kind in VARIANTS.items():
        if pythons[kind] and (not given.variant or name in given.variant or name == "plain"):
            asked = (task, name, "--device", given.device, "--precision", precision)
            crowd[name] = Worker(pythons[kind], PEERS / f"{kind}_sgd.py", *asked)
    for name, worker in crowd.items():
        worker.ready(given.seconds, given.device)
        print(f"{task} {precision} {name}: {worker.failed or 'ready'}", file=sys.stderr)
    for number in range(given.rounds):
        for worker in crowd.values():
            if number < 3 or len(worker.replies) < 3 or statistics.median(slow(worker)) < 4 * given.seconds:
                worker.block()
    found = {name: figures(worker, crowd["plain"]) for name, worker in crowd.items()}
    if given.profile:
        with given.profile.open("a") as file:
            for name in ("plain", "discreet"):
                print(f"\n{task} {precision} {name}", *crowd[name].profile(), sep="\n", file=file)
    for worker in crowd.values():
        worker.close()
    return {"batch": BATCH[task], "numbers": crowd["plain"].numbers, "precision": precision, "variants": found}


def slow(worker: Worker) -> list[float]:
    return [reply["wall"] * worker.steps for reply in worker.replies]


def figures(worker: Worker, plain: Worker) -> Measured:
    """Ratios round by round; a worker that failed says why."""
    if worker.failed:
        return {"failed": worker.failed}
    clock = "device" if "device" in plain.replies[0] else "cpu"
    pairs = list(zip(worker.replies, plain.replies, strict=False))  # the slowest have fewer rounds
    ratios = [one[clock] / base[clock] for one, base in pairs]
    peak, base = (max(reply["peak_mib"] for reply in each.replies) for each in (worker, plain))
    return {
        "ms": round(statistics.median(reply[clock] for reply in worker.replies) * 1e3, 3),
        "times_plain": round(statistics.median(ratios), 3), "least": round(min(ratios), 3), "most": round(max(ratios), 3),
        "times_plain_wall": round(statistics.median(one["wall"] / base["wall"] for one, base in pairs), 3),
        "peak_mib": round(peak, 1), "times_plain_memory": round(peak / base, 2) if base > 0 else None,
        "begin_mib": round(worker.begin, 1),
        "rounds": len(ratios), "steps_a_block": worker.steps,
    }  # fmt: skip


def goals(task: str, device: str, row: Measured) -> dict[str, bool]:
    """What was set as a must for this row, and what lies beyond it; nothing where ours did not run."""
    must, beyond, memory = MUST[device][task]
    variants = row["variants"]
    ours = variants.get("discreet", {"failed": "not run"})
    if "failed" in ours:
        return {}
    found = {
        f"at most {must} times plain SGD": ours["times_plain"] <= must,
        f"beyond: at most {beyond} times plain SGD": ours["times_plain"] <= beyond,
        f"at most {memory} times the memory of plain SGD": ours["peak_mib"] <= memory * variants["plain"]["peak_mib"],
    }
    for name in PRIVATE:
        peer = variants.get(name, {})
        if name != "discreet" and "ms" in peer:
            found[f"faster than {name}"] = ours["times_plain"] < peer["times_plain"]
    return found


def show(name: str, row: Measured) -> None:
    print(f"\n{name}: batch {row['batch']}, {row['numbers']:,} numbers, {row['precision']}")
    print(f"  {'':18}{'ms/step':>10}{'x plain':>9}{'spread':>16}{'wall':>8}{'MiB':>9}{'x plain':>9}")
    for variant, it in row["variants"].items():
        if "failed" in it:
            print(f"  {variant:18}{it['failed'][:90]}")
            continue
        spread = f"{it['least']:.2f}-{it['most']:.2f}"
        memory = f"{it['peak_mib']:9.0f}{it['times_plain_memory'] or 0:9.2f}"
        print(f"  {variant:18}{it['ms']:10.2f}{it['times_plain']:9.2f}{spread:>16}{it['times_plain_wall']:8.2f}{memory}")
    for goal, held in row["goals"].items():
        print(f"  {'holds ' if held else 'MISSED'} {goal}")


def run(given: argparse.Namespace, parts: Measured) -> None:
    """Every task asked for; each is written as soon as it is measured, others in the file are kept."""
    part = parts.setdefault(given.device, {})
    rows = part.setdefault("rows", {})
    part.pop("note", None)  # it was about what is measured anew
    for task in given.task or MUST[given.device]:
        for precision in PRECISIONS[given.device]:
            name = task if given.device == "cpu" else f"{task} {precision}"
            row = measure(task, precision, given)
            row["goals"] = goals(task, given.device, row)
            row["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
            old = rows.get(name, {}).get("variants", {}) if given.variant else {}
            rows[name] = row if not old else {**row, "variants": {**old, **row["variants"]}}
            show(name, row)
            part |= {"machine": {**machine("torch", "cryptography"), **accelerator(given.device)}, "rows": rows}
            save(given.out, parts)


def merged(parts: Measured, others: Measured) -> Measured:
    """What there is, and what only the others have. Ratios are each to plain SGD of their own run."""
    for device, other in others.items():
        part = parts.setdefault(device, {"machine": other["machine"], "rows": {}})
        for name, row in other["rows"].items():
            mine = part["rows"].setdefault(name, {**row, "variants": {}})
            good = {variant: it for variant, it in row["variants"].items() if "failed" not in it}
            mine["variants"] = {**good, **mine["variants"]}
            mine["goals"] = goals(name.split()[0], device, mine)
    return parts


def accelerator(device: str) -> dict[str, str]:
    if device == "cpu":
        return {}
    import torch

    return {"accelerator": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda)}


def save(path: Path | None, parts: Measured) -> None:
    write(path, {"clip_norm": CLIP, "noise_multiplier": NOISE, "parts": parts}, "torch")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=tuple(MUST), default="cpu")
    parser.add_argument("--task", action="append", choices=tuple(BATCH))
    parser.add_argument("--variant", action="append", choices=tuple(VARIANTS))
    parser.add_argument("--opacus", metavar="PYTHON")
    parser.add_argument("--jax", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a block lasts")
    parser.add_argument("--profile", type=Path, help="write where the time of a step goes, operation by operation")
    parser.add_argument("--merge", type=Path, help="take the parts of this result instead of measuring")
    parser.add_argument("--out", type=Path, help="write the result as JSON; what it holds of other tasks is kept")
    given = parser.parse_args()
    parts = json.loads(given.out.read_text())["parts"] if given.out and given.out.exists() else {}
    if given.merge:
        save(given.out, merged(parts, json.loads(given.merge.read_text())["parts"]))
        return 0
    if given.profile:
        given.profile.write_text("Microseconds and calls of one step by operation, plain SGD and ours.\n")
    if given.device == "cpu":
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core for everyone, children too
    run(given, parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
