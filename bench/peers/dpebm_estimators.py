"""DP-EBM on a prepared table: python dpebm_estimators.py TABLE.npz '{"seeds": 2, "epsilons": [1], "delta": 1e-6}'."""

import json
import sys
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")
from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor  # noqa: E402

table, asked = dict(np.load(sys.argv[1])), json.loads(sys.argv[2])
x, y, xt, yt = (table[name] for name in ("raw", "y", "rawt", "yt"))
bounds = {i: tuple(map(float, pair)) for i, pair in enumerate(table["raw_bounds"])}
out = []
for epsilon in asked["epsilons"]:
    began = time.process_time()
    scores = []
    for _ in range(asked["seeds"]):
        model = DPExplainableBoostingClassifier(
            epsilon=epsilon, delta=asked["delta"], feature_types=["continuous" if w else "nominal" for w in table["numeric"]],
            privacy_bounds=bounds, random_state=None, n_jobs=1,
        )  # fmt: skip
        scores.append(float((model.fit(x, y).predict(xt) == yt).mean()))
    out.append({"model": "DP-EBM", "epsilon": epsilon, "scores": scores, "cpu_s": (time.process_time() - began) / len(scores)})
for epsilon in asked["epsilons"] if "xr" in table else ():
    scores = []
    for _ in range(asked["seeds"]):
        model = DPExplainableBoostingRegressor(
            epsilon=epsilon, delta=asked["delta"], feature_types=["continuous"] * table["xr"].shape[1], random_state=None,
            privacy_bounds=dict.fromkeys(range(table["xr"].shape[1]), (0.0, 1.0)), privacy_target_min=0.0,
            privacy_target_max=1.0, n_jobs=1,
        )  # fmt: skip
        scores.append(float(model.fit(table["xr"], table["yr"]).score(table["xq"], table["yq"])))
    out.append({"model": "DP-EBM, regression", "epsilon": epsilon, "scores": scores, "cpu_s": None})
print(json.dumps(out))
