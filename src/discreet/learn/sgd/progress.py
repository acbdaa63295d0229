"""How far a run is, on stderr: steps, epsilon spent, speed, time left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discreet.learn.sgd.run import Run, Step

EVERY = 0.5  # seconds between updates


def shown(steps: Iterator[Step], run: Run) -> Iterator[Step]:
    """The same steps, with a bar."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    parts = (
        TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("epsilon {task.fields[epsilon]}"),
        TextColumn("{task.fields[speed]} steps/s"), TimeRemainingColumn(),
    )  # fmt: skip
    began, first, last = time.monotonic(), run.number, 0.0
    with Progress(*parts, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=run.plan.steps, completed=run.number, epsilon="0.00", speed="-")
        for step in steps:
            now = time.monotonic()
            if now - last > EVERY or step.number == step.steps:
                last = now
                speed = (step.number - first) / max(now - began, 1e-9)
                bar.update(task, completed=step.number, epsilon=f"{run.spent():.2f}", speed=f"{speed:.1f}")
            yield step
