"""The gate: do releases keep to a policy?

policy.py    privacy.toml, read strictly       lines.py    the line of each key
rules.py     what each rule asks               parts.py    parts a release must have
measure.py   intervals, and how many targets would decide
proofs.py    the ledger that paid, and who signed
finding.py   what a rule found                 outputs.py  the same for machines and job summaries
"""

from __future__ import annotations

from discreet.report.gate.below import assert_below
from discreet.report.gate.finding import OUTCOMES, Finding, Judged, worst
from discreet.report.gate.policy import Policy
from discreet.report.gate.proofs import Proofs, proofs_of

__all__ = ["OUTCOMES", "Finding", "Judged", "Policy", "Proofs", "assert_below", "proofs_of", "worst"]
