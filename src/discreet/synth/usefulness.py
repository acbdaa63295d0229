"""Accuracy on real rows of a model trained on synthetic ones. For the owner of the data: not for release."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.columns import Columns, codes, columns, missing, numeric
from discreet.errors import InvalidValue, MissingExtra


@dataclass(frozen=True, slots=True)
class Usefulness:
    """How well `label` is predicted on real test rows after training on synthetic rows, and after training on real ones.

    Accuracy, and the area under the ROC curve where the label has two values.
    """

    label: str
    rows: int
    synthetic_accuracy: float
    real_accuracy: float
    synthetic_auc: float | None
    real_auc: float | None

    def to_json(self) -> dict[str, Any]:
        return {"for_release": False, **asdict(self)}

    def __str__(self) -> str:
        area = "" if self.synthetic_auc is None else f", AUC {self.synthetic_auc:.3f} (on real rows {self.real_auc:.3f})"
        return (f"{self.label} of {self.rows:,} real rows, learned from synthetic ones: right on {self.synthetic_accuracy:.1%} "
                f"(learned from real ones: {self.real_accuracy:.1%}){area}. Not for release.")  # fmt: skip


def train_on_synthetic(synthetic: Any, real: Any, test: Any, label: str) -> Usefulness:
    """Train on synthetic, test on real: gradient boosting, with the same trained on the real rows beside it.

    `test` are real rows that neither table was made of.

    >>> import numpy as np
    >>> x = np.arange(400) % 50
    >>> rows = {"x": x, "y": (x > 25).astype(int)}
    >>> train_on_synthetic(rows, rows, rows, "y").synthetic_accuracy
    1.0
    """
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.metrics import roc_auc_score
    except ImportError:
        raise MissingExtra("scikit-learn", "sklearn", "Training on synthetic rows") from None
    tables = [columns(table) for table in (synthetic, real, test)]
    shared = [name for name in tables[0] if all(name in table for table in tables)]
    if label not in shared or len(shared) < 2:
        raise InvalidValue(f"All three tables must have the column {label!r} and at least one more in common.")
    (features, marks), classes = _numbers(tables, shared, label)
    if not len(marks[2]) or any(len(np.unique(y)) < 2 for y in marks[:2]):
        raise InvalidValue(f"{label} must have at least two values in each table to be learned.")
    accuracies, areas = [], []
    for X, y in zip(features[:2], marks[:2]):
        fitted = HistGradientBoostingClassifier(random_state=0).fit(X, y)
        accuracies.append(float(np.mean(fitted.predict(features[2]) == marks[2])))
        if len(classes) == 2:
            areas.append(float(roc_auc_score(marks[2], fitted.predict_proba(features[2])[:, 1])))
    both = areas if len(areas) == 2 else [None, None]
    return Usefulness(label, len(marks[2]), *accuracies, *both)


def _numbers(tables: list[Columns], shared: list[str], label: str) -> Any:
    """Features and labels of each table as numbers: categories numbered over all tables, missing values as NaN."""
    sizes = [len(next(iter(table.values()))) for table in tables]
    places = np.cumsum(sizes)[:-1]
    arrays: list[NDArray[Any]] = []
    for name in shared:
        parts = [table[name] for table in tables]
        if name != label and all(numeric(part) for part in parts):
            arrays.append(np.concatenate(parts).astype(np.float64))
            continue
        numbers, values = codes(np.concatenate([part.astype(object) for part in parts]))
        gap = np.array([missing(value) for value in values])
        arrays.append(np.where(gap[numbers], np.nan, numbers))
    at = shared.index(label)
    labelled = ~np.isnan(arrays[at])  # a row without a label teaches nothing
    X = np.stack([column for i, column in enumerate(arrays) if i != at], axis=1)
    masks = np.split(labelled, places)
    features = [rows[some] for rows, some in zip(np.split(X, places), masks)]
    labels = [rows[some].astype(np.int64) for rows, some in zip(np.split(arrays[at], places), masks)]
    return (features, labels), np.unique(arrays[at][labelled])
