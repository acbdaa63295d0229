"""Checkpoints: everything that an interrupted run needs to resume exactly.

They hold the key of the sampler and of the noise, so that steps taken again draw the same batches and the same noise; the
journal beside them (journal.py) sees to it that their sums are the same too. A checkpoint is as secret as the data.

torch's `load_state_dict` replaces the settings that an optimizer was given by those of the checkpoint, so a changed learning
rate would be lost without a message. A checkpoint therefore keeps the settings that the run was given at its beginning. One
that is given otherwise now, and was not moved by a scheduler or loop meanwhile, was changed: `resume="exact"` refuses it, and
with `resume="pay"` it holds from the step at which the run goes on.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from discreet.errors import InvalidDocument
from discreet.learn.sgd.clipping import Clipping
from discreet.learn.sgd.distributed import Alone
from discreet.learn.sgd.options import Checkpoint, Performance, Postprocess
from discreet.learn.sgd.plan import State
from discreet.learn.sgd.quantile import Quantile
from discreet.learn.sgd.rows import Rows
from discreet.learn.sgd.sampling import Poisson

FORMAT, OLDER = "discreet-run-4", "discreet-run-3"
PARTS = {
    "plan", "number", "key", "repeatable", "divisor", "norm", "clipping", "algorithm", "source", "units", "rows",
    "model", "optimizer", "scheduler", "torch", "cuda", "terms", "start", "used", "extra",
}  # fmt: skip
CALLED = {"after": "postprocessing"}  # names of parts that have changed since the format was made
ADDED = {FORMAT: {"entries", "settings", "noted"}, OLDER: {"entry"}}


def write(path: Path, document: dict[str, Any]) -> None:
    """Write a checkpoint whole or not at all, readable by its owner alone."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            torch.save(document, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any]:
    """The document of a checkpoint, in the present format."""
    try:
        document = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        raise InvalidDocument(f"{path} cannot be read as a checkpoint: truncated, damaged or something else.") from None
    kind = document.get("format") if isinstance(document, dict) else None
    if kind not in ADDED or not set(document) >= PARTS | ADDED[kind]:
        raise InvalidDocument(f"{path} is not a checkpoint of this version of discreet ({FORMAT}).")
    if kind == OLDER:  # which does not know what settings the run began with, and names one entry
        document |= {"entries": [] if document["entry"] is None else [document["entry"]], "settings": None, "noted": 0}
    return document


@dataclass
class Parts:
    """The parts of a run that a checkpoint must hold or agree with."""

    state: State
    model: nn.Module
    optimizer: Any  # a torch optimizer, or what a trainer has wrapped around one
    scheduler: Any
    rows: Rows
    loss: Any
    clipping: Clipping
    postprocess: Postprocess
    group: Alone
    device: torch.device
    source: str
    settings: dict[str, Any] = field(init=False)  # of optimizer and scheduler, as the run began

    def __post_init__(self) -> None:
        self.settings = given_settings(self.optimizer, self.scheduler)

    def agreement(self, checkpoint: Checkpoint | None, performance: Performance) -> dict[str, Any]:
        """The values on which all processes of one run must agree."""
        groups = self.optimizer.param_groups
        return {
            "plan": self.state.plan.document(), "clipping": repr(vars(self.clipping)), "divisor": self.state.divisor,
            "number of units": self.rows.units, "microbatch": performance.microbatch, "radius": self.postprocess.radius,
            "checkpoint": None if checkpoint is None else (checkpoint.every, checkpoint.resume),
            "parameters": [(name, tuple(p.shape), p.requires_grad) for name, p in self.model.named_parameters()],
            "optimizer": [{name: repr(value) for name, value in group.items() if name != "params"} for group in groups],
        }  # fmt: skip

    # ---- writing -----------------------------------------------------------------------------------------------------

    def document(self, noted: int) -> dict[str, Any]:
        """A checkpoint of the run as it is now; `noted`: the lines that the journal beside it has."""
        return {
            "format": FORMAT,
            **self.state.state(),
            "noted": noted,
            "norm": self.clipping.norm,
            "clipping": self.clipping.kind,
            "algorithm": algorithm(self.optimizer),
            "source": self.source,
            "units": self.rows.units,
            "rows": self._rows_mark(),
            "settings": self.settings,
            "terms": self._terms(),
            "model": self.group.whole(self.model.state_dict()),
            "optimizer": self.group.whole(self.optimizer.state_dict()),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def _terms(self) -> dict[str, Any]:
        """The other inputs of a step's gradients, by name: with the same noise, they must be the same."""
        return {
            "copies": self.rows.copies, "augment": _name(self.rows.augment), "loss": _name(self.loss),
            "radius": self.postprocess.radius, "after": _name(self.postprocess.gradient), "scheduler": _name(self.scheduler),
        }  # fmt: skip

    def _rows_mark(self) -> str | None:
        """A fingerprint of the rows; read them for it where a unit's part in a step depends on its part in others."""
        return self.rows.mark(read=not isinstance(self.state.plan.sampler, Poisson))

    # ---- reading -----------------------------------------------------------------------------------------------------

    def check(self, path: Path, document: dict[str, Any], *, paid: bool) -> None:
        """Refuse differences that no payment resolves: another plan, other updates, or a source that was not charged."""
        if document["plan"] != self.state.plan.document():
            raise InvalidDocument(
                f"{path} was made under another plan (unit, rate, steps, noise or clip norm differ), so its accounting does "
                "not match. Ask for the same plan again, or start over with another checkpoint file."
            )
        if document["algorithm"] != algorithm(self.optimizer):
            raise InvalidDocument(
                f"{path} was made with {document['algorithm']}, not {algorithm(self.optimizer)}. Use the same."
            )
        if document["clipping"] != self.clipping.kind:
            raise InvalidDocument(
                f"{path} clips another way ({document['clipping'].lower()}). Ask for the same clipping again."
            )
        if self.state.divisor and document["divisor"] != self.state.divisor:
            raise InvalidDocument(
                f"{path} has the divisor {document['divisor']:g}, not {self.state.divisor:g}. Ask for the same one again."
            )
        if paid and (not document["entries"] or document["source"] != self.source):
            by = "by no ledger" if not document["entries"] else f"as {document['source']}"
            raise InvalidDocument(
                f"{path} is of a run that was paid for {by}, so {self.source} would be released without being charged. "
                "Go on as the run began, or start over with another checkpoint file."
            )

    def same_rows(self, document: dict[str, Any]) -> bool:
        return bool(document["units"] == self.rows.units and document["rows"] == self._rows_mark())

    def differences(self, document: dict[str, Any]) -> list[str]:
        """The names of settings that differ from the checkpoint's: with the same noise, they must be the same."""
        names = []
        if not self.same_rows(document):
            names.append("other rows" if document["units"] == self.rows.units else "another number of units")
        names += [
            f"another {CALLED.get(name, name)}" for name, term in self._terms().items() if document["terms"].get(name) != term
        ]
        if len(document["optimizer"]["param_groups"]) == len(
            self.optimizer.param_groups
        ):  # else `restore` says that it differs
            changed = changed_settings(document, self.settings)
            names += [f"another {name} of the optimizer or its scheduler" for name in changed]
        return names

    def restore(self, path: Path, document: dict[str, Any]) -> None:
        """Put the states of model, optimizer and scheduler, the clip norm and torch's generators in place."""
        try:
            optimizer, scheduler = restored_settings(document, self.settings)
            self.model.load_state_dict(self.group.placed(document["model"], self.model.state_dict()))
            self.optimizer.load_state_dict(self._placed(optimizer))
            if self.scheduler is not None and scheduler is not None:
                self.scheduler.load_state_dict(scheduler)
        except (RuntimeError, ValueError, KeyError) as error:
            raise InvalidDocument(f"{path} does not fit this model or optimizer: {error}") from None
        if isinstance(self.clipping, Quantile):
            self.clipping.norm = document["norm"]
        torch.set_rng_state(document["torch"])
        if document["cuda"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(document["cuda"], self.device)

    def _placed(self, optimizer: dict[str, Any]) -> dict[str, Any]:
        """The state of the optimizer; what has a parameter's shape is placed where the parameter is."""
        held = [p for group in self.optimizer.param_groups for p in group["params"]]

        def placed(place: int, state: dict[str, Any]) -> Any:
            like = {name: held[place] for name, value in state.items() if getattr(value, "shape", None) == held[place].shape}
            return self.group.placed(state, like)

        return {**optimizer, "state": {place: placed(place, state) for place, state in optimizer["state"].items()}}


def algorithm(optimizer: Any) -> str:
    """The name of the optimizer, whatever a trainer has wrapped around its class since."""
    kinds = type(optimizer).__mro__
    own = (kind for kind in kinds if not kind.__module__.startswith(("lightning.", "pytorch_lightning.")))
    return next(own, kinds[0]).__name__


def _name(part: Any) -> str | None:
    return None if part is None else getattr(part, "__qualname__", type(part).__qualname__)


MISSING = "discreet: not given"
RATE, FIRST_RATE = "lr", "initial_lr"  # as torch's schedulers name them


def given_settings(optimizer: torch.optim.Optimizer, scheduler: Any) -> dict[str, Any]:
    """What optimizer and scheduler are set to now, in a form that a checkpoint can hold."""
    groups = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    return {"optimizer": _plain(groups), "scheduler": None if scheduler is None else _plain(scheduler.state_dict())}


def changed_settings(document: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """The names of settings that the run was given otherwise than at its beginning."""
    return _merged(document, settings)[1]


def restored_settings(document: dict[str, Any], settings: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The states to load: those of the checkpoint, with what was changed."""
    state = _merged(document, settings)[0]
    groups = []
    for old, new in zip(document["optimizer"]["param_groups"], state["optimizer"], strict=True):
        if new.get(FIRST_RATE) != old.get(FIRST_RATE):  # a scheduler moves the rate: it stays at the same part of the first one
            new[RATE] = old[RATE] * (new[FIRST_RATE] / old[FIRST_RATE])
        groups.append({**old, **new})
    return {**document["optimizer"], "param_groups": groups}, state["scheduler"]


def _merged(document: dict[str, Any], wanted: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    groups = [
        {name: value for name, value in group.items() if name != "params"} for group in document["optimizer"]["param_groups"]
    ]
    now = {"optimizer": groups, "scheduler": document["scheduler"]}
    names: list[str] = []
    then = document.get("settings")
    if then is None:
        return now, names
    if wanted["scheduler"] is None or then["scheduler"] is None:  # one was left out, or added: the terms of the run tell that
        wanted, then = {**wanted, "scheduler": MISSING}, {**then, "scheduler": MISSING}
    return _merge(now, then, wanted, "", names), sorted(set(names))


def _merge(now: Any, then: Any, wanted: Any, name: str, names: list[str]) -> Any:
    """A part of the checkpoint, or the new setting where the old one never moved and the new one differs."""
    if all(isinstance(part, dict) for part in (now, then, wanted)):
        return {
            key: _merge(part, then.get(key, MISSING), wanted.get(key, MISSING), str(key), names) for key, part in now.items()
        }
    if all(isinstance(part, (list, tuple)) and len(part) == len(now) for part in (now, then, wanted)):
        merged = [_merge(*parts, name, names) for parts in zip(now, then, wanted, strict=True)]
        return merged if isinstance(now, list) else tuple(merged)
    if (isinstance(wanted, str) and wanted == MISSING) or not _same(now, then) or _same(wanted, then):
        return now
    names.append(name)
    return copy.deepcopy(wanted)


def _plain(value: Any) -> Any:
    """Numbers, words, tensors and what is made of them; anything else by its type alone."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items() if isinstance(key, (str, int))}
    if isinstance(value, (list, tuple)):
        parts = [_plain(part) for part in value]
        return tuple(parts) if type(value) is tuple else parts
    if isinstance(value, Tensor):
        return value.detach().cpu().clone()
    return value if value is None or type(value) in (bool, int, float, str) else type(value).__qualname__


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, Tensor) or isinstance(other, Tensor):
        value, other = torch.as_tensor(value), torch.as_tensor(other)
        return value.shape == other.shape and bool((value.cpu() == other.cpu()).all())
    if isinstance(value, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(value) == len(other) and all(_same(mine, its) for mine, its in zip(value, other, strict=True))
    return bool(value == other)
