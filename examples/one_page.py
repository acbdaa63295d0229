"""Ceiling, floor and budget on one page: a count is published, audited, judged by a policy, and reported.

python examples/one_page.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import discreet
from discreet import Release, audit, report
from discreet.audit import Pair, Readout
from discreet.core.facts import made
from discreet.noise import LaplaceNoise
from discreet.report.gate import Policy

FOLDER = Path(tempfile.mkdtemp())
POLICY = """
[[rule]]
on = "claim"
epsilon = { at_delta = 1e-6, max = 1.0 }

[[rule]]
on = "attack.*"
tpr = { at_fpr = 0.01, max = 0.05 }
"""

count = LaplaceNoise(scale=2, sensitivity=1, unit=discreet.record())
with discreet.Ledger(FOLDER / "ledger.db") as ledger:
    ledger.open("people", unit=discreet.record(), epsilon=2.0, delta=1e-6)
    with ledger.reserve("people", count.claims()) as entry:
        answer = count.run(412)
    seen = audit(count, Readout(), Pair(412, 411), runs=20_000)  # with one person, or without, by a fair coin
    release = Release(
        value=answer, source="people", claims=count.claims(), entry=entry, evidence=(seen,),
        facts={"title": "People in the register", "made": made()},
    )  # fmt: skip

    for finding in Policy.from_toml(POLICY).judge(release):
        print(f"{finding.outcome}: {finding.message}")
    discreet.assert_below(release, tpr=0.05, fpr=0.01)  # the same in a test: RuleFailed, if not

    release.save(FOLDER / "release.json")
    page = report.write([release], FOLDER / "report.html", ledger=ledger)
print(f"{page.name}: {page.stat().st_size / 1000:.0f} kB; the first lines as Markdown:\n")
print("\n".join(report.markdown([release]).splitlines()[:6]))
