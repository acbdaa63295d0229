"""Runs every test of this folder with torch, numpy and the standard library alone: `PYTHONPATH=src python -m tests.gpu`.

A word after it runs only tests whose name contains it. The last line counts: passed, failed, skipped.
"""

from __future__ import annotations

import gc
import importlib
import logging
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

import torch
from tests.gpu.tools import DEVICE

MODULES = ("test_layers", "test_models", "test_runs", "test_recovery", "test_resume", "test_synth")


def tests(word: str) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Name, function and arguments of every test; a test with `cases` runs once for each."""
    for module in MODULES:
        space = vars(importlib.import_module(f"tests.gpu.{module}"))
        for name in [name for name in space if name.startswith("test_")]:
            for case in getattr(space[name], "cases", [None]):
                label = f"{module}::{name}" + ("" if case is None else f"[{case}]")
                if word in label:
                    yield label, space[name], () if case is None else (case,)


def main() -> int:
    if DEVICE == "cuda" and not torch.cuda.is_available():
        print("There is no GPU here.\n0 passed, 0 failed, 1 skipped")
        return 0
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name() if DEVICE == 'cuda' else 'the CPU'}", flush=True)
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    counts = {"passed": 0, "failed": 0}
    for label, function, args in tests(sys.argv[1] if len(sys.argv) > 1 else ""):
        start = time.perf_counter()
        try:
            function(*args)
            outcome = "passed"
        except Exception:
            outcome = "failed"
            traceback.print_exc(limit=-6)
        counts[outcome] += 1
        print(f"{outcome} {label} ({time.perf_counter() - start:.1f} s)", flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    print(f"{counts['passed']} passed, {counts['failed']} failed, 0 skipped")
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
