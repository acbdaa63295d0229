"""scikit-learn's own checks of every private estimator: which fail, and whether that was declared.

    conventions.py [--out FILE]

It runs on whichever scikit-learn it is started with; `make conventions` starts it on the current one and the two before. The
declared ones are checks that want an error for what a private row holds, that want two fits to be equal, or that set a
parameter by the name of the class.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import sklearn
from sklearn.utils.estimator_checks import check_estimator

from discreet import record
from discreet.learn import (
    PCA,
    GaussianNB,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    KBinsDiscretizer,
    KMeans,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    Ridge,
    StandardScaler,
)

PRIVATE: dict[str, Any] = {"epsilon": 1e6, "delta": 1e-6, "unit": record()}
LINEAR: dict[str, Any] = {**PRIVATE, "epsilon": 100.0, "norm": 10.0, "classes": "observed"}
ESTIMATORS = [
    LogisticRegression(**LINEAR), LinearSVC(**LINEAR), GaussianNB(bounds=(-10, 10), classes="observed", **PRIVATE),
    HistGradientBoostingClassifier(bounds=(-10, 10), n_bins=64, classes="observed", **PRIVATE),
    HistGradientBoostingRegressor(bounds=(-10, 10), n_bins=64, target_bounds=(-100, 100), **PRIVATE),
    Ridge(norm=10.0, bounds=(-100, 100), **PRIVATE), LinearRegression(norm=10.0, bounds=(-100, 100), **PRIVATE),
    PCA(1, norm=10.0, **PRIVATE), KMeans(3, bounds=(-10, 10), **PRIVATE), StandardScaler(bounds=(-10, 10), **PRIVATE),
    KBinsDiscretizer(bounds=(-10, 10), **PRIVATE),
]  # fmt: skip
NOISE, TOTAL = "two fits have different noise", "an error that depends on a private row tells that somebody has it"
DECLARED = {
    **dict.fromkeys(("check_fit_idempotent", "check_supervised_y_2d", "check_classifier_data_not_an_array",
                     "check_regressor_data_not_an_array", "check_regressors_int"), NOISE),
    **dict.fromkeys(("check_estimators_empty_data_messages", "check_dtype_object", "check_supervised_y_no_nan"), TOTAL),
    **dict.fromkeys(("check_estimator_sparse_array", "check_estimator_sparse_matrix"), "set with_mean by the name of a class"),
}  # fmt: skip


def checked(estimator: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=DECLARED)
    named = {
        status: sorted({each["check_name"] for each in found if each["status"] == status}) for status in ("failed", "xfail")
    }
    return {"checks": len(found), "failed": named["failed"], "declared": named["xfail"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="add what was found for this scikit-learn to the file")
    given = parser.parse_args()
    found = {}
    for estimator in ESTIMATORS:
        name = type(estimator).__name__
        found[name] = checked(estimator)
        print(f"{sklearn.__version__}  {name:30} {found[name]['checks']:3} checks, failed: {found[name]['failed']}", flush=True)
    if given.out:
        from _record import write

        path = Path(given.out)
        kept = json.loads(path.read_text())["results"] if path.exists() else {}
        write(path, {"results": {**kept, sklearn.__version__: found}}, "scikit-learn")
    sys.exit(any(each["failed"] for each in found.values()))


if __name__ == "__main__":
    main()
