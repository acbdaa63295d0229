"""What every object with a secret in it has in common: it is not pickled, not copied, and does not show itself."""

from __future__ import annotations

import os
import threading
from typing import Any

from discreet.errors import InvalidValue

__all__ = ["Once", "Private"]


class Once:
    """Steps that are done once each, by whichever thread comes first, and in the process that made the object alone: after a
    fork the secret is there twice, and each of the two would do the step.

    >>> steps = Once("encrypt")
    >>> steps.take("encrypt"), steps.take("encrypt")
    (True, False)
    """

    __slots__ = ("_left", "_lock", "_process")

    def __init__(self, *steps: str) -> None:
        self._left, self._lock, self._process = set(steps), threading.Lock(), os.getpid()

    def take(self, step: str) -> bool:
        """Whether this is the first time."""
        if os.getpid() != self._process:
            raise InvalidValue(
                "This object was made in another process, which still has it: two processes would use one secret twice. Make "
                "it in the process that uses it."
            )
        with self._lock:
            there = step in self._left
            self._left.discard(step)
        return there


class Private:
    """Pickling, copying and printing would carry the secret out of the process, or start it a second life."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        name = type(self).__name__
        raise InvalidValue(f"A {name} holds a secret: it is not pickled, not copied and never sent. {self._instead()}")

    def __getstate__(self) -> Any:
        return self.__reduce__()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def _instead(self) -> str:
        return "Send what its methods return."
