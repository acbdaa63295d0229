"""C that is built with the package, where the machine that installs it has a compiler; and the garbage collector.

Each source file is built for several levels of x86-64 processors, and the highest level that this processor supports is loaded.
Callers compare a library's results with numpy or torch first, and fall back to these on other platforms, where nothing was
built, or with DISCREET_NATIVE=0 in the environment.
"""

from __future__ import annotations

import ctypes
import os
import platform
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

HERE = Path(__file__).parent
AES = frozenset({"aes", "pclmulqdq"})
V3 = AES | {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
LEVELS: dict[str, frozenset[str]] = {  # what /proc/cpuinfo must list, from the highest level down; setup.py has their flags
    "v4": V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "vaes"},
    "v3": V3,
    "base": frozenset(),
}


def library(name: str) -> ctypes.CDLL | None:
    """The library built from `name`.c for this processor; None where there is none."""
    if os.environ.get("DISCREET_NATIVE") == "0":
        return None
    for level, needed in LEVELS.items():
        path = built(name, level)
        if path is not None and needed <= features():
            try:
                return ctypes.CDLL(str(path))
            except OSError:  # built for another system that shares this folder
                continue
    return None


def built(name: str, level: str) -> Path | None:
    """The file that setup.py built for one level."""
    paths = (HERE / f"_{name}_{level}{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((path for path in paths if path.exists()), None)


@lru_cache(maxsize=1)
def features() -> frozenset[str]:
    """The processor's instruction sets; empty where the system does not say."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return frozenset()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    listed = [frozenset(line.partition(":")[2].split()) for line in lines if line.startswith("flags")]
    return frozenset.intersection(*listed) if listed else frozenset()
