"""Errors while private rows are computed name the place of the error, and nothing of the rows.

Messages of torch, a loss or a Dataset contain values: "could not convert string to float: 'Ann'". A message reaches terminals,
job logs and trackers without noise. So the error that leaves a run names its kind and the line of code. The original message
goes to the logger `discreet.learn.private`, which writes nowhere until the owner of the data gives it a handler.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from discreet.errors import DiscreetError, RunFailed

if TYPE_CHECKING:
    from discreet.learn.sgd.plan import State

log = logging.getLogger("discreet.learn.private")
log.addHandler(logging.NullHandler())
log.propagate = False

_OURS = str(Path(__file__).parents[2])
_THEIRS = str(Path(torch.__file__).parent)


@contextmanager
def without_values() -> Iterator[None]:
    """Convert errors from inside to `RunFailed`, without their message; ours, which show no private value, pass unchanged."""
    try:
        yield
    except DiscreetError:
        raise
    except Exception as error:
        log.error("%s: %s", type(error).__name__, error, exc_info=error)
        kind = torch.OutOfMemoryError if isinstance(error, torch.OutOfMemoryError) else RunFailed
        raise kind(
            f"{type(error).__name__} at {_place(error)}, while private rows were computed. Its message is left out, since it "
            "may show what is in a row: the logger discreet.learn.private has it, for handlers that the owner of the data adds."
        ) from None


@contextmanager
def charged(state: State, source: str) -> Iterator[None]:
    """Errors from now on say that the run was charged."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (RunFailed, torch.OutOfMemoryError)):
            error.__context__ = None  # whose message was left out
        if state.begun:
            paid = f"Entry {state.entries[0]} of {source}" if state.entries else "The whole plan"
            error.add_note(
                f"discreet: {paid} was charged before the first batch and stays spent, since why this failed may depend on "
                "the data. Mend the cause and iterate this run again, or go on from its checkpoint, at no further charge."
            )
        raise


def _place(error: Exception) -> str:
    """The line of code that failed: the last one that is neither torch's nor ours, if there is one."""
    if isinstance(where := getattr(error, "where", None), str) and where:  # of a recorded operation
        return where
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((_OURS, _THEIRS))]
    frame = (own or frames)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
