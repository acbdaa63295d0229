"""Tasks for the tests of the attack queue; a worker process imports them by name."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from discreet.errors import InvalidValue


def pretend(options: Mapping[str, Any], progress: Callable[[int, int], None]) -> None:
    """Says more than it should, reports its progress, and then waits, fails, breaks, or writes a release."""
    print("private 12345", file=sys.stderr)
    print("training shadows: 1 of 9, private 12345", flush=True)
    progress(3, 4)
    match options["how"]:
        case "wait":
            time.sleep(60)
        case "family":  # a process of its own, which must not outlive it
            with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
                Path(options["note"]).write_text(str(child.pid))
                child.wait()
        case "fail":
            raise InvalidValue("It cannot be done.")
        case "break":
            raise RuntimeError("oops")
        case "environment":
            raise InvalidValue(f"{'DISCREET_LEDGER' in os.environ} {os.environ['OMP_NUM_THREADS']}")
    os.link(options["claim"], os.path.join(options["out"], "release.json"))
