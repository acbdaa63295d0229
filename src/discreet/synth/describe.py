"""What a report tells of a synthetic table: its method, how the budget was split, what was measured. All of it is public."""

from __future__ import annotations

import math
from typing import Any

from discreet.synth.methods import Spending
from discreet.synth.model import Model

MOST = 400  # measured tables that are listed


def description(model: Model, spending: Spending, epsilon: float, delta: float) -> dict[str, Any]:
    """The fact `synthetic` of a release: from the model, whose claim covers it, and from the plan, which saw no rows."""
    measured = [it for it in model.measurements if len(it.columns) > 1]
    return {
        "method": model.method, "epsilon": epsilon, "delta": delta, "rows": model.rows, "noise": dict(spending.parts),
        "columns": [{"name": cells.name, "cells": cells.size} for cells in model.cells],
        "measured": [{"columns": [model.columns[c] for c in it.columns], "sigma": it.sigma} for it in measured[:MOST]],
        "measured_count": len(model.measurements), "converged": model.converged,
        **({"gap": model.gap} if math.isfinite(model.gap) else {}),
    }  # fmt: skip
