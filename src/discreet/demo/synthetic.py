"""A synthetic table of the patients, beside the rest: made, attacked and compared with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.core import Release, record
from discreet.demo.hospital import SOURCE, WARDS, Cohort

if TYPE_CHECKING:
    from discreet.ledger import Ledger

EPSILON, DELTA = 0.75, 1e-6  # the delta of the budget, so that every surface tells one epsilon
CANARIES, TARGETS = 400, 1000
SCHEMA: dict[str, Any] = {"age": (0, 100), "ward": list(WARDS), "days": (1, 30)}
HOW: dict[str, Any] = {"unit": record(), "epsilon": EPSILON, "delta": DELTA, "schema": SCHEMA}


def rows(cohort: Cohort) -> Any:
    """The columns of a cohort that analysts may ask about."""
    import pyarrow as pa

    return pa.table({"age": cohort.age, "ward": cohort.ward, "days": cohort.days})


def synthesise(patients: Cohort, strangers: Cohort, ledger: Ledger, folder: Path) -> Release[Any]:
    """Fit, write the table, attack it and compare it. What the attacks and the comparison show is for the hospital alone."""
    import pyarrow.parquet as parquet

    from discreet import synth
    from discreet.attack.tables import attack_table, audit_generator
    from discreet.core import ExternalValue

    real, others = rows(patients), rows(strangers)
    fitted = synth.fit(real, ledger=ledger, source=SOURCE, **HOW)
    folder.mkdir(exist_ok=True)
    table = parquet.read_table(fitted.value.sample().to_parquet(folder / "synthetic.parquet"))
    canaries = audit_generator(_fit_again, real, canaries=CANARIES)
    attacks = attack_table(table, real, others, secret="days", targets=TARGETS)
    fidelity = synth.measure_fidelity(real, table, unit=record(), schema=SCHEMA)
    facts = {**fitted.facts, "title": "Synthetic patients", **attacks.facts(), "owner_fidelity": fidelity.to_json()}
    facts["attack_settings"] = {
        "canaries": f"{CANARIES:,}, each in or out by a fair coin, in one more fit",
        "rows asked about": f"{TARGETS:,} members, {TARGETS:,} others",
    }
    released = fitted.map(lambda model: ExternalValue("Model"))
    return replace(released, evidence=(canaries, *attacks.evidence), facts=facts)


def _fit_again(table: Any) -> Any:
    """The same synthesis of other rows, for the audit: it is not charged, so its result is never released."""
    import pyarrow as pa

    from discreet import synth

    return synth.fit(pa.table(table), **HOW).value.sample().to_arrow()
