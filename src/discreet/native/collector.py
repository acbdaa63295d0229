"""Python's garbage collector, paused where a collection would do harm."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """No reference cycle is collected inside this block.

    Python may collect at any allocation. A collection that frees the CUDA graphs of an earlier job invalidates one that is
    being captured.

    >>> with gc_paused():
    ...     gc.isenabled()
    False
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
