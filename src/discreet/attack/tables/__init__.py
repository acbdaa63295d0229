"""Attacks on synthetic tables: is this record in the table that was synthesised?

attacks.py    the attacks, each an object: density ratios, shadow generators, noisy counts, distance to the closest record
canaries.py   a generator audited in one fit
risks.py      singling out, linkability and inference, against a control group
run.py        everything that a finished synthetic table can be asked, in one call
alike.py      one kind of values for each column, whatever file a table came from
density.py    how dense a table is at a row; encode.py: tables of mixed types as numbers
"""

from discreet.attack.tables.attacks import ClosestRecord, DensityRatio, NoisyCounts, ShadowGenerators
from discreet.attack.tables.canaries import audit_generator, made_canaries
from discreet.attack.tables.risks import Risk, inference, linkability, singling_out
from discreet.attack.tables.run import ATTACKS, TableAttack, attack_table

__all__ = [
    "ATTACKS", "ClosestRecord", "DensityRatio", "NoisyCounts", "Risk", "ShadowGenerators", "TableAttack", "attack_table",
    "audit_generator", "inference", "linkability", "made_canaries", "singling_out",
]  # fmt: skip
