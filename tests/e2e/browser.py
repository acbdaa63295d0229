"""A headless browser for the tests of pages: its network requests and console messages are kept, its pixels can be read."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
_NOBODY = "not an origin"


@dataclass(frozen=True)
class Seen:
    """What the browser made of a page."""

    dom: str
    requests: list[str]
    console: list[str]
    picture: Path


def program() -> str:
    """The browser, or a skip that says why."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no chromium here; `make test` installs it where it can")
    return found


def look(page: Path, folder: Path, *, width: int = 1180, height: int = 2200, dark: bool = False) -> Seen:
    """Open the page twice: once for its document, once for a picture; both with an own, empty profile."""
    log, picture = folder / "net.json", folder / "picture.png"
    more = ["--blink-settings=preferredColorScheme=0"] if dark else []
    common = [program(), *FLAGS, *more, f"--window-size={width},{height}"]
    dom = _run(
        [
            *common,
            f"--user-data-dir={folder / 'one'}",
            "--enable-logging=stderr",
            f"--log-net-log={log}",
            "--dump-dom",
            page.as_uri(),
        ]
    )
    _run([*common, f"--user-data-dir={folder / 'two'}", f"--screenshot={picture}", page.as_uri()])
    console = [line for line in dom.stderr.splitlines() if "CONSOLE" in line]
    return Seen(dom.stdout, _requests(log), console, picture)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)


def _requests(log: Path) -> list[str]:
    """Every address outside the machine that the page asked for; what the browser asks for itself has no origin."""
    text = log.read_text()
    document = json.loads(text if text.rstrip().endswith("}") else text.rstrip().rstrip(",") + "]}")
    asked = [
        event["params"] for event in document["events"] if isinstance(event.get("params"), dict) and "url" in event["params"]
    ]
    mine = {params["url"] for params in asked if params.get("initiator", _NOBODY) != _NOBODY}
    return sorted(url for url in mine if url.startswith(("http:", "https:", "ws:", "wss:", "ftp:")))
