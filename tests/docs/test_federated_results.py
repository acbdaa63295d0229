"""What the guide quotes is what bench/results/federated.json shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOUND = json.loads((ROOT / "bench/results/federated.json").read_text())
GUIDE = (ROOT / "docs/guides/federated.md").read_text()


def test_the_gaps_are_as_measured() -> None:
    flower, ours = FOUND["gaps"]["flower"], FOUND["gaps"]["discreet"]
    rows = re.findall(r"^\| ([^|]+?) \| \**([\d.]+)\**[^|]* \| ([\d.]+) \|$", GUIDE, re.MULTILINE)
    names = {"all clients alike": "all alike, all answer", "one client has": "one client has 99 % of the rows",
             "5 of 10": "5 of 10 answer", "a parameter of": "a parameter of no dimension"}  # fmt: skip
    seen = {name: (told, mine) for row, told, mine in rows for start, name in names.items() if row.startswith(start)}
    assert set(seen) == set(names.values())
    for name, (told, mine) in seen.items():
        digits = len(told.partition(".")[2])
        assert (told, mine) == (f"{flower[name]:.{digits}f}", f"{ours[name]:.2f}")
    assert f"| {FOUND['gaps']['epsilon']['flower']:.1f} | {FOUND['gaps']['epsilon']['discreet']:.2f} |" in GUIDE


def test_speed_and_memory_are_as_measured() -> None:
    mlp, cnn = (FOUND["speed"][f"{kind}, 20 per round"]["discreet"] for kind in ("mlp", "cnn"))
    first = [f"{mlp[f'times_{peer}_wall']:.{digits}f}" for peer, digits in (("flower", 0), ("pfl", 1), ("loop", 1))]
    second = [f"{cnn[f'times_{peer}_wall']:.1f}" for peer in ("flower", "pfl", "loop")]
    text = " ".join(GUIDE.split())
    assert f"clients a second were {first[0]} times those of Flower's own simulation by the clock, {first[1]} times" in text
    assert f"and {first[2]} times those of a loop" in text
    assert f"network {second[0]}, {second[1]} and {second[2]} times" in text
    peaks = [FOUND["memory"][f"{clients} clients"]["peak_mib"] for clients in (10_000, 100)]
    assert f"over 10,000 clients took {peaks[0]:.0f} MiB, over 100 clients {peaks[1]:.0f} MiB" in text
