"""Mondrian and the checks against anonypy and pycanon, on a sample of Adult: CPU time, classes, and what was lost.

    python bench/kanonymity.py --peer PYTHON [--data FOLDER] [--rows N] [--k K] [--out FILE]

PYTHON has anonypy, pycanon and pandas. Interleaved in one run; both sides start from the same CSV and are re-checked by ours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd

from _record import write
from discreet.heuristic import anonymise, homogeneity, k_anonymity, l_diversity, t_closeness

ROUNDS = 3
QUASI, SECRET = ["age", "education_num", "sex", "race", "marital_status"], "occupation"
NAMES = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
]
_PEER = """
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import pandas as pd, anonypy
from pycanon import anonymity
quasi, secret, k = json.loads(sys.argv[2])
words = ["sex", "race", "marital_status", "occupation"]
frame = pd.read_csv(sys.argv[1], dtype={name: "category" for name in words})
began = time.process_time()
rows = anonypy.Preserver(frame, quasi, secret).anonymize_k_anonymity(k=k)
made = time.process_time() - began
out = pd.DataFrame(rows)
sizes = out.groupby([out[name].astype(str) for name in quasi])["count"].sum()
plain = frame.astype({name: str for name in words})
began = time.process_time()
found = [anonymity.k_anonymity(plain, quasi)]
found += [each(plain, quasi, [secret]) for each in (anonymity.l_diversity, anonymity.t_closeness)]
checked = time.process_time() - began
print(json.dumps({"anonymise": made, "classes": int(sizes.size), "k": int(sizes.min()), "check": checked,
                  "found": [float(each) for each in found], "discernibility": int((sizes ** 2).sum())}))
"""


def ours(file: Path, k: int) -> dict[str, Any]:
    frame = pd.read_csv(file)
    began = time.process_time()
    made = anonymise(frame, QUASI, k=k, sensitive=SECRET)
    taken = time.process_time() - began
    began = time.process_time()
    found = [k_anonymity(frame, QUASI), l_diversity(frame, QUASI, SECRET), t_closeness(frame, QUASI, SECRET)]
    checked = time.process_time() - began
    lost = {"penalty": round(made.penalty(), 4), "exposed_share": homogeneity(made.table, QUASI, SECRET).share}
    return {
        "anonymise": taken, "classes": len(made.low), "k": k_anonymity(made.table, QUASI), "check": checked, "found": found,
        "discernibility": made.discernibility(), **lost,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True, help="a Python with anonypy and pycanon")
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared/data")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results") / "kanonymity.json")
    given = parser.parse_args()
    frame = pd.read_csv(given.data / "adult/adult.data.gz", names=NAMES, skipinitialspace=True)[[*QUASI, SECRET]]
    both: dict[str, list[dict[str, Any]]] = {"ours": [], "peers": []}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "adult.csv"
        frame.sample(given.rows, random_state=0).to_csv(file, index=False)
        for _ in range(ROUNDS):
            both["ours"].append(ours(file, given.k))
            command = [given.peer, "-c", _PEER, str(file), json.dumps([QUASI, SECRET, given.k])]
            both["peers"].append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    ratio = {
        what: round(statistics.median(b[what] / a[what] for a, b in zip(both["ours"], both["peers"])), 1)
        for what in ("anonymise", "check")
    }
    print(json.dumps({**{name: rows[-1] for name, rows in both.items()}, "peers_times_ours": ratio}, indent=1))
    peers = subprocess.run([given.peer, "-m", "pip", "freeze"], check=True, capture_output=True, text=True).stdout.split()
    named = [line for line in peers if line.startswith(("anonypy", "pycanon", "pandas"))]
    write(given.out, {"rows": given.rows, "k": given.k, "peers": named, "peers_times_ours": ratio, "rounds": both}, "pandas")


if __name__ == "__main__":
    main()
