"""The settings of optimizer and scheduler in a checkpoint: a resumed run must have those it began with, or says which differ.

torch's `load_state_dict` puts the settings of the checkpoint in the place of those that were given, so a changed learning rate
would be forgotten without a word. A checkpoint therefore keeps what the run was given at its beginning. What is given otherwise
now, and has not moved by itself meanwhile, was changed: `resume="exact"` refuses it, and with `resume="pay"` it holds from the
step on at which the run goes on.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

MISSING = "discreet: not given"
RATE, FIRST_RATE = "lr", "initial_lr"  # as torch's schedulers name them


def given(optimizer: torch.optim.Optimizer, scheduler: Any) -> dict[str, Any]:
    """What optimizer and scheduler are set to now, in a form that a checkpoint can hold."""
    groups = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    return {"optimizer": _plain(groups), "scheduler": None if scheduler is None else _plain(scheduler.state_dict())}


def changed(document: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """The names of settings that the run was given otherwise than at its beginning."""
    return _merged(document, settings)[1]


def restored(document: dict[str, Any], settings: dict[str, Any]) -> tuple[dict[str, Any], Any]:
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
    """A part of the checkpoint, or what is wanted in its place: it stood still since the beginning, and is given otherwise."""
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


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        one, other = torch.as_tensor(one), torch.as_tensor(other)
        return one.shape == other.shape and bool((one.cpu() == other.cpu()).all())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_same(mine, its) for mine, its in zip(one, other, strict=True))
    return bool(one == other)
