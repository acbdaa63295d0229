"""What a report tells of a synthetic table: its method, how the budget was split, what was measured. All of it is public."""

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
    measured = [it for it in model.measurements if len(it.columns) > 1]
    return {
        "method": model.method, "epsilon": epsilon, "delta": delta, "rows": model.rows, "noise": dict(spending.parts),
        "columns": [{"name": cells.name, "cells": cells.size, **_found(cells, schema)} for cells in model.cells],
        "measured": [{"columns": [model.columns[c] for c in it.columns], "sigma": it.sigma} for it in measured[:MOST]],
        "measured_count": len(model.measurements), "converged": model.converged,
        **({"gap": model.gap} if math.isfinite(model.gap) else {}),
    }  # fmt: skip


def _found(cells: Cells, schema: Schema | None) -> dict[str, Any]:
    """What was found privately of a column, as its schema would say it: the claim covers it."""
    asked = () if schema is None else schema.columns[cells.name].find
    column = cells.column
    parts: dict[str, Any] = {
        "categories": ("values", column.values),
        "bins": ("bins", column.bins),
        "mass": ("mass", column.mass),
    }
    said = {parts[what][0]: list(map(_plain, parts[what][1])) for what in asked}
    if "mass" in asked and isinstance(column.bins, tuple):
        said["bins"] = list(map(_plain, column.bins))  # where points would fill a bin, each of its values has one
    return {"found": said} if said else {}


def _plain(value: Any) -> Any:
    if isinstance(value, int) and abs(value) >= 1 << 53:  # beyond the whole numbers of every JSON reader
        return str(value)
    return value.isoformat() if isinstance(value, date) else value
