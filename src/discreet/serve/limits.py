"""How often something may be tried: failures are counted, in a window, in bounded memory."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable


class Limit:
    """At most `most` marks of one name within `window` seconds; names that nobody asked for lately are forgotten first."""

    def __init__(self, most: int, window: float, *, names: int = 10_000, clock: Callable[[], float] = time.monotonic) -> None:
        self.most, self.window, self._names, self._clock = most, window, names, clock
        self._marks: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, name: str) -> float:
        """Seconds until this name may try again; 0 if it may now."""
        with self._lock:
            marks = self._marks.get(name)
            if marks is None:
                return 0.0
            now = self._clock()
            while marks and marks[0] <= now - self.window:
                marks.popleft()
            return marks[0] + self.window - now if len(marks) >= self.most else 0.0

    def mark(self, name: str) -> None:
        """Count one try."""
        with self._lock:
            marks = self._marks.setdefault(name, deque(maxlen=self.most))
            self._marks.move_to_end(name)
            marks.append(self._clock())
            while len(self._marks) > self._names:
                self._marks.popitem(last=False)

    def unmark(self, name: str) -> None:
        """The last try was none to count."""
        with self._lock:
            if marks := self._marks.get(name):
                marks.pop()

    def forget(self, name: str) -> None:
        """It went well: what was counted no longer counts."""
        with self._lock:
            self._marks.pop(name, None)
