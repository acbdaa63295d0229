"""diffprivlib on a prepared table: python diffprivlib_estimators.py TABLE.npz '{"seeds": 5, "epsilons": [1]}'

Or its logistic regression on the two worlds of the audit: python diffprivlib_estimators.py audit RUNS.
"""

import json
import sys
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")
import diffprivlib.models as dp  # noqa: E402


def fits(table, asked):
    x, y, xt, yt = (table[name] for name in ("x", "y", "xt", "yt"))
    d, norm = x.shape[1], float(table["norm"])
    bounds = (np.zeros(d), np.ones(d))
    kinds = {
        "logistic C=1": lambda e, s: dp.LogisticRegression(epsilon=e, data_norm=norm, C=1.0, max_iter=500, random_state=s),
        "logistic C=.01": lambda e, s: dp.LogisticRegression(epsilon=e, data_norm=norm, C=0.01, max_iter=500, random_state=s),
        "naive Bayes": lambda e, s: dp.GaussianNB(epsilon=e, bounds=bounds, random_state=s),
    }
    out = []
    for name, make in kinds.items():
        for epsilon in asked["epsilons"]:
            began = time.process_time()
            scores = [float((make(epsilon, s).fit(x, y).predict(xt) == yt).mean()) for s in range(asked["seeds"])]
            out.append(
                {"model": name, "epsilon": epsilon, "scores": scores, "cpu_s": (time.process_time() - began) / len(scores)}
            )
    if "xr" in table:
        xr, yr, xq, yq = (table[name] for name in ("xr", "yr", "xq", "yq"))
        for epsilon in asked["epsilons"]:
            made = [
                dp.LinearRegression(
                    epsilon=epsilon, bounds_X=(np.zeros(xr.shape[1]), np.ones(xr.shape[1])), bounds_y=(0, 1), random_state=s
                ).fit(xr, yr)
                for s in range(asked["seeds"])
            ]
            scores = [float(m.score(xq, yq)) for m in made]
            out.append({"model": "linear regression", "epsilon": epsilon, "scores": scores, "cpu_s": None})
    return out


def audit(runs):
    """How often the coefficient is tiny, without and with a row of length 100."""
    y, hits = np.array([0, 1, 1]), []
    for world, last in enumerate((0.0, 100.0)):
        x = np.array([[0.0], [0.0], [last]])
        made = (
            dp.LogisticRegression(
                epsilon=4.0,
                data_norm=100.0,
                C=0.1,
                fit_intercept=False,
                tol=1e-10,
                max_iter=1000,
                random_state=s + world * 10**7,
            ).fit(x, y)
            for s in range(runs)
        )
        hits.append(int(sum(abs(m.coef_[0, 0]) <= 0.01 for m in made)))
    return {"claimed": 4.0, "runs": runs, "hits": hits}


def audit_linear(runs):
    """How often the coefficient is huge, with x = 1 and with x = 0.001 in the one row that is not zero."""
    y, hits = np.array([0.0, 0.0, 0.5]), []
    for world, last in enumerate((1.0, 0.001)):
        x = np.array([[0.0], [0.0], [last]])
        given = {"epsilon": 4.0, "bounds_X": (0.0, 1.0), "bounds_y": (0.0, 1.0), "fit_intercept": False}
        made = (dp.LinearRegression(**given, random_state=s + world * 10**7).fit(x, y) for s in range(runs))
        hits.append(int(sum(abs(m.coef_[0]) > 1000 for m in made)))
    return {"claimed": 4.0, "runs": runs, "hits": hits}


def others(table, asked):
    """Centres of k-means, the share of variance that components keep, and accuracy of random forests."""
    x, low, high, out = table["share"], np.zeros(5), np.ones(5), []
    forest = {"n_estimators": 10, "max_depth": 5, "classes": [0, 1], "bounds": tuple(map(list, table["raw_bounds"].T))}
    for epsilon in asked["epsilons"]:
        for s in range(asked["seeds"]):
            found = dp.KMeans(8, epsilon=epsilon, bounds=(low, high), random_state=s).fit(x).cluster_centers_.tolist()
            out.append({"model": "k-means", "epsilon": epsilon, "found": found})
            pca = dp.PCA(2, epsilon=epsilon, data_norm=5**0.5 / 2, bounds=(low - 0.5, high - 0.5), random_state=s)
            out.append({"model": "components", "epsilon": epsilon, "found": pca.fit(x - 0.5).components_.tolist()})
        for s in range(2):
            model = dp.RandomForestClassifier(epsilon=epsilon, random_state=s, **forest).fit(table["raw"], table["y"])
            score = float((model.predict(table["rawt"]) == table["yt"]).mean())
            out.append({"model": "random forest", "epsilon": epsilon, "score": score})
    return out


if sys.argv[1] == "others":
    print(json.dumps(others(dict(np.load(sys.argv[2])), json.loads(sys.argv[3]))))
elif sys.argv[1] == "audit_linear":
    print(json.dumps(audit_linear(int(sys.argv[2]))))
elif sys.argv[1] == "audit":
    print(json.dumps(audit(int(sys.argv[2]))))
else:
    print(json.dumps(fits(dict(np.load(sys.argv[1])), json.loads(sys.argv[2]))))
