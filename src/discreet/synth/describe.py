"""The facts about a synthetic table in a report: method, split of the budget, measurements. All of it is public."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

from discreet.synth.cells import Cells
from discreet.synth.methods import Spending
from discreet.synth.model import Model
from discreet.synth.schema import Schema

MOST = 400  # measured tables that are listed


def description(model: Model, spending: Spending, epsilon: float, delta: float, schema: Schema | None = None) -> dict[str, Any]:
    """The fact `synthetic` of a release: from the model, whose claim covers it, and from the plan, which saw no rows."""
    measured = [measurement for measurement in model.measurements if len(measurement.columns) > 1]
    return {
        "method": model.method, "epsilon": epsilon, "delta": delta, "rows": model.rows, "noise": dict(spending.parts),
        "columns": [{"name": cells.name, "cells": cells.size, **_found_facts(cells, schema)} for cells in model.cells],
        "measured": [{"columns": [model.columns[c] for c in table.columns], "sigma": table.sigma} for table in measured[:MOST]],
        "measured_count": len(model.measurements), "converged": model.converged,
        **({"gap": model.gap} if math.isfinite(model.gap) else {}),
    }  # fmt: skip


def _found_facts(cells: Cells, schema: Schema | None) -> dict[str, Any]:
    """The parts of a column's schema that were found privately; the claim covers them."""
    aspects = () if schema is None else schema.columns[cells.name].find
    column = cells.column
    parts: dict[str, Any] = {
        "categories": ("values", column.values),
        "bins": ("bins", column.bins),
        "mass": ("mass", column.mass),
    }
    entries = {parts[aspect][0]: list(map(_plain, parts[aspect][1])) for aspect in aspects}
    if "mass" in aspects and isinstance(column.bins, tuple):
        entries["bins"] = list(map(_plain, column.bins))  # where points would fill a bin, each of its values has one
    return {"found": entries} if entries else {}


def _plain(value: Any) -> Any:
    if isinstance(value, int) and abs(value) >= 1 << 53:  # beyond the whole numbers of every JSON reader
        return str(value)
    return value.isoformat() if isinstance(value, date) else value
