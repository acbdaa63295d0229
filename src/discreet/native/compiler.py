"""C text that lies beside Python, compiled where this machine has a compiler, and kept in the user's cache folder.

Whoever uses it holds what came out against numpy or torch first, and has another way where there is none: without a compiler,
or with DISCREET_NATIVE=0 in the environment.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")  # the two in the middle let loops vectorise
PATIENCE = 60  # seconds a compiler may take


def library(name: str, text: str, *flags: str) -> ctypes.CDLL | None:
    """C text, compiled for this processor; None where that cannot be."""
    if os.environ.get("DISCREET_NATIVE") == "0" or os.name != "posix" or _only_asks_for_a_compiler():
        return None
    try:
        return ctypes.CDLL(str(_built(name, text, (*FLAGS, *flags))))
    except (OSError, subprocess.SubprocessError):
        return None


def _built(name: str, text: str, flags: tuple[str, ...]) -> Path:
    """The shared library for this text and this processor; made if it is not there yet."""
    mark = hashlib.sha256("\0".join((text, *flags, _processor())).encode()).hexdigest()[:32]
    folder = _folder()
    library = folder / f"{name}-{mark}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as room:
            made = _compiled(text, flags, Path(room))
            os.replace(made, library)
    return library


def _compiled(text: str, flags: tuple[str, ...], room: Path) -> Path:
    compiler = next((path for path in map(shutil.which, (os.environ.get("CC", ""), "cc", "gcc", "clang")) if path), None)
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    written, made = room / "text.c", room / "made.so"
    written.write_text(text)
    for machine in (("-march=native",), ()):
        command = [compiler, *flags, *machine, str(written), "-o", str(made), "-lm"]
        if subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False).returncode == 0:
            return made
    raise OSError("the C compiler failed")


def _only_asks_for_a_compiler() -> bool:
    """On a Mac without developer tools `cc` is a program that opens a window."""
    homes = ("/Library/Developer/CommandLineTools", "/Applications/Xcode.app")
    return platform.system() == "Darwin" and not any(Path(home).exists() for home in homes)


def _folder() -> Path:
    """A folder that nobody but this user can write: what lies there is run."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "discreet"
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = cache.stat()
        if found.st_uid == os.getuid() and not found.st_mode & 0o022 and os.access(cache, os.W_OK):
            return cache
    except (OSError, RuntimeError):
        pass
    return Path(tempfile.mkdtemp(prefix="discreet-"))


def _processor() -> str:
    """What -march=native depends on, so that a home folder shared between machines holds one library for each kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    kept = sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    return "\n".join((platform.machine(), *kept))
