"""Python's own sweeping of what lies in circles, kept off where it must not happen."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept() -> Iterator[None]:
    """Nothing that lies in circles is freed meanwhile.

    Python frees it at any moment: the CUDA graphs of an earlier job, too, and that spoils one that is being recorded.

    >>> with kept():
    ...     gc.isenabled()
    False
    """
    swept = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if swept:
            gc.enable()
