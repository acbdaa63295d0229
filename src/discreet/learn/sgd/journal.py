"""The journal of a run: one line for every noisy sum, on disk before anyone can see the sum.

An interrupted run repeats the steps after its last checkpoint with the same key, and so with the same noise. This reveals
nothing new if their sums are equal bit for bit, and cancels the noise if they are not. The journal decides which: a line holds
a keyed hash of the noisy sum that a step released under a key. A sum is admitted if its step has no line, which is then
written, or if its line has the same hash. So runs that share the file, one after another or concurrently, never release two
different sums with the same noise. docs/theory/learn-resume.md has the proof.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from discreet.noise.ciphers import mac

try:
    import fcntl
except ImportError:  # no such locks on this system: the user must run one process at a time
    fcntl = None  # type: ignore[assignment]

BEGIN = "begin"


class Journal:
    """The file beside a checkpoint, `<checkpoint>.steps`. It is as secret as the checkpoint.

    >>> import tempfile
    >>> journal = Journal(Path(tempfile.mkdtemp()) / "run.steps")
    >>> journal.begin(bytes(32))
    >>> journal.admit(bytes(32), 0, "a"), journal.admit(bytes(32), 0, "a"), journal.admit(bytes(32), 0, "b")
    (True, True, False)
    >>> journal.released(bytes(32))
    1
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[tuple[str, str], str] = {}  # (key, step) to the hash of its noisy sum
        self._read = 0  # how far the file has been read

    def begin(self, key: bytes) -> None:
        """Record that from now on this file has a line for every step under this key."""
        self.admit(key, BEGIN, "")

    def admit(self, key: bytes, step: int | str, tag: str) -> bool:
        """Whether this step's noisy sum may be released; if so, its line is on the disk when this returns."""
        name = (_mark(key), str(step))
        with self._locked() as file:
            self._catch_up(file)
            if name in self._known:
                return self._known[name] == tag
            file.write(f"{name[0]} {name[1]} {tag}\n".encode())
            file.flush()
            os.fsync(file.fileno())
            self._read, self._known[name] = file.tell(), tag
        return True

    def released(self, key: bytes, least: int = 0) -> int | None:
        """The number of the step after the last one released under this key; None where it is unknown.

        It is unknown where the file has fewer lines about the key than `least`: lines are never removed, so it was truncated.
        """
        if not self.path.is_file():
            return None
        mine = self._steps(key)
        known = BEGIN in mine and len(mine) > least
        return max((int(step) + 1 for step in mine if step != BEGIN), default=0) if known else None

    def lines(self, key: bytes) -> int:
        """How many steps under this key have a line."""
        return len([step for step in self._steps(key) if step != BEGIN])

    def _steps(self, key: bytes) -> list[str]:
        with self._locked() as file:
            self._catch_up(file)
        return [step for mark, step in self._known if mark == _mark(key)]

    def take_over(self, other: Journal) -> None:
        """Copy the lines of another file, for a checkpoint that is written to a second place."""
        with other._locked() as theirs:
            other._catch_up(theirs)
        with self._locked() as file:
            self._catch_up(file)
            missing = {name: tag for name, tag in other._known.items() if name not in self._known}
            file.write("".join(f"{mark} {step} {tag}\n" for (mark, step), tag in missing.items()).encode())
            file.flush()
            os.fsync(file.fileno())
            self._read = file.tell()
            self._known.update(missing)

    @contextmanager
    def _locked(self) -> Iterator[IO[bytes]]:
        with open(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
            yield file

    def _catch_up(self, file: IO[bytes]) -> None:
        """Read the lines written since, and cut off an incomplete last one: its sum was never released."""
        if os.fstat(file.fileno()).st_size < self._read:  # cut back, or another file in its place: what was read still holds
            self._read = 0
        file.seek(self._read)
        whole, newline, _ = file.read().rpartition(b"\n")
        for line in whole.decode("ascii", "replace").splitlines():
            mark, _, rest = line.partition(" ")
            step, _, tag = rest.partition(" ")
            self._known.setdefault((mark, step), tag)
        self._read += len(whole) + len(newline)
        file.seek(self._read)
        file.truncate()


def beside(checkpoint: Path) -> Path:
    return checkpoint.with_name(checkpoint.name + ".steps")


def fingerprint(key: bytes, step: int, noisy: Tensor, more: Any = None) -> str:
    """A keyed hash of a noisy sum, every bit of it, and of what else the step releases.

    GMAC: a polynomial over GF(2^128) at a secret point, under a key that nothing else uses. Any two different sums of n numbers
    that do not depend on the key collide with probability at most (n/4 + 4)/2^128.
    """
    own = hmac.digest(key, b"discreet journal", "sha256")
    numbers = noisy.detach().cpu().contiguous().view(torch.uint8).numpy()
    name, tag = mac(own, step.to_bytes(12, "big"), numbers.data, repr(more).encode())
    return f"{name}:{tag.hex()}"


def together(tags: list[str]) -> str:
    """One hash for the parts of a sum that several processes hold."""
    return tags[0] if len(tags) == 1 else hashlib.sha256("\n".join(tags).encode()).hexdigest()


def _mark(key: bytes) -> str:
    """A name for the key that does not reveal it."""
    return hmac.digest(key, b"discreet journal: name of the key", "sha256").hex()[:32]
