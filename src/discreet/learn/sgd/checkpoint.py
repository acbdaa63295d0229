"""Checkpoints: everything a killed run needs to go on as if nothing had happened.

They hold the key of the sampler and of the noise, so that steps taken again draw the same batches and the same noise; the
journal beside them (journal.py) sees to it that their sums are the same too. A checkpoint is as secret as the data.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from discreet.errors import InvalidDocument
from discreet.learn.sgd import resume, settings

if TYPE_CHECKING:
    from discreet.learn.sgd.run import Run

FORMAT, OLDER = "discreet-run-4", "discreet-run-3"
PARTS = {
    "plan", "number", "key", "repeatable", "divisor", "norm", "clipping", "algorithm", "source", "units", "rows",
    "model", "optimizer", "scheduler", "torch", "cuda", "terms", "start", "used", "extra",
}  # fmt: skip
ADDED = {FORMAT: {"entries", "settings", "noted"}, OLDER: {"entry"}}


def save(path: Path, run: Run) -> Path:
    """Written whole or not at all, readable by its owner alone."""
    document = {
        "format": FORMAT,
        "plan": run.plan.document(),
        "number": run.number,
        "key": run._key,
        "repeatable": run._repeatable,
        "divisor": run._divisor,
        "norm": run._clipping.norm,
        "clipping": type(run._clipping).__name__,
        "algorithm": algorithm(run.optimizer),
        "source": run._source,
        "units": run._rows.units,
        "rows": run._rows_mark(),
        "entries": list(run._payments.entries),
        "settings": run._settings,
        "noted": resume.lines(run, path) if run._group.rank == 0 else 0,
        "start": run._start,
        "used": run._used,
        "extra": run._extra,
        "terms": _terms(run),
        "model": run._group.whole(run.model.state_dict()),
        "optimizer": run._group.whole(run.optimizer.state_dict()),
        "scheduler": None if run._scheduler is None else run._scheduler.state_dict(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(run._device) if run._device.type == "cuda" else None,
    }
    run._group.write(lambda: _write(path, document))
    return path


def _write(path: Path, document: dict[str, Any]) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            torch.save(document, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def load(path: Path, run: Run) -> bool:
    """Go on from a checkpoint; refuse one of another plan, since its steps were paid for under other terms.

    Returns whether its rows are known to be those of the run. Whatever else differs is refused too unless the run pays for
    steps that come out otherwise.
    """
    document = run._group.first(lambda: _read(path))
    kind = document.get("format") if isinstance(document, dict) else None
    if kind not in ADDED or not set(document) >= PARTS | ADDED[kind]:
        raise InvalidDocument(f"{path} is not a checkpoint of this version of discreet ({FORMAT}).")
    if kind == OLDER:  # which does not know what settings the run began with, and names one entry
        document |= {"entries": [it for it in [document["entry"]] if it is not None], "settings": None, "noted": 0}
    if document["plan"] != run.plan.document():
        raise InvalidDocument(
            f"{path} was made under another plan (unit, rate, steps, noise or clip norm differ), so its accounting does "
            "not match. Ask for the same plan again, or start over with another checkpoint file."
        )
    _same_terms(path, document, run)
    run.number, run._key, run._divisor = document["number"], document["key"], document["divisor"]
    run._start, run._used, run._extra, run._noted = (document[name] for name in ("start", "used", "extra", "noted"))
    run._repeatable, run._payments.entries = document["repeatable"], tuple(document["entries"])
    known = document["units"] == run._rows.units and document["rows"] == run._rows_mark()
    other = _others(document, run, known)
    if other and not run._pays:
        resume.refuse(run, f"it was made with {', '.join(other)}")
    optimizer, scheduler = settings.restored(document, run)
    try:
        run.model.load_state_dict(run._group.placed(document["model"], run.model.state_dict()))
        run.optimizer.load_state_dict(_placed(optimizer, run))
        if run._scheduler is not None and scheduler is not None:
            run._scheduler.load_state_dict(scheduler)
    except (RuntimeError, ValueError, KeyError) as error:
        raise InvalidDocument(f"{path} does not fit this model or optimizer: {error}") from None
    run._clipping.norm = document["norm"]
    torch.set_rng_state(document["torch"])
    if document["cuda"] is not None and run._device.type == "cuda":
        torch.cuda.set_rng_state(document["cuda"], run._device)
    return known and document["rows"] is not None


def _others(document: dict[str, Any], run: Run, known: bool) -> list[str]:
    """What the run was given otherwise than the one of the checkpoint, by name: with the same noise it must be the same."""
    other = [] if known else ["other rows" if document["units"] == run._rows.units else "another number of units"]
    other += [f"another {name}" for name, it in _terms(run).items() if document["terms"].get(name) != it]
    groups = document["optimizer"]["param_groups"]
    if len(groups) == len(run.optimizer.param_groups):  # else it does not fit, which is told later
        other += [f"another {name} of the optimizer or its scheduler" for name in settings.changed(document, run)]
    return other


def algorithm(optimizer: torch.optim.Optimizer) -> str:
    """The name of the optimizer, whatever a trainer has wrapped around its class since."""
    own = (it for it in type(optimizer).__mro__ if not it.__module__.startswith(("lightning.", "pytorch_lightning.")))
    return next(own, type(optimizer)).__name__


def _terms(run: Run) -> dict[str, Any]:
    """What else the gradients of a step are made of, as far as it has a name: with the same noise they must be the same."""
    return {
        "copies": run._rows.copies, "augment": _name(run._rows.augment), "loss": _name(run._loss), "radius": run._radius,
        "after": _name(run._after), "scheduler": _name(run._scheduler),
    }  # fmt: skip


def _name(given: Any) -> str | None:
    return None if given is None else getattr(given, "__qualname__", type(given).__qualname__)


def _same_terms(path: Path, document: dict[str, Any], run: Run) -> None:
    """What no payment mends: another way to make updates, or a source that was not charged."""
    if document["algorithm"] != algorithm(run.optimizer):
        raise InvalidDocument(f"{path} was made with {document['algorithm']}, not {algorithm(run.optimizer)}. Use the same.")
    if document["clipping"] != type(run._clipping).__name__:
        raise InvalidDocument(f"{path} clips another way ({document['clipping'].lower()}). Ask for the same clipping again.")
    if run._divisor is not None and document["divisor"] != run._divisor:
        raise InvalidDocument(
            f"{path} has the divisor {document['divisor']:g}, not {run._divisor:g}. Ask for the same one again."
        )
    if run._ledger is not None and (not document["entries"] or document["source"] != run._source):
        paid = "by no ledger" if not document["entries"] else f"as {document['source']}"
        raise InvalidDocument(
            f"{path} is of a run that was paid for {paid}, so {run._source} would be released without being charged. "
            "Go on as the run began, or start over with another checkpoint file."
        )


def _read(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        raise InvalidDocument(f"{path} cannot be read as a checkpoint: truncated, damaged or something else.") from None


def _placed(optimizer: dict[str, Any], run: Run) -> dict[str, Any]:
    """The state of the optimizer: what it keeps for a parameter, in the parameter's shape, lies where the parameter does."""
    held = [p for group in run.optimizer.param_groups for p in group["params"]]
    state = {
        i: run._group.placed(kept, {name: held[i] for name, it in kept.items() if getattr(it, "shape", None) == held[i].shape})
        for i, kept in optimizer["state"].items()
    }
    return {**optimizer, "state": state}
