"""The simplest attack: a number read off what was released."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Attack


class Readout(Attack[Any]):
    """Scores every target with `read(seen, target)`; by default the released number itself.

    >>> Readout(lambda seen, target: seen[target]).score([3.0, 5.0], [1, 0]).tolist()
    [5.0, 3.0]
    """

    def __init__(
        self,
        read: Callable[[Any, Any], float] | None = None,
        *,
        view: str | Iterable[str] = "answers",
        name: str = "readout",
    ) -> None:
        self.read = read
        self.view = frozenset((view,) if isinstance(view, str) else view)
        self.name = name

    def score(self, seen: Any, targets: Sequence[Any]) -> NDArray[np.float64]:
        read = self.read or (lambda seen, target: seen)
        return np.array([float(read(seen, target)) for target in targets])
