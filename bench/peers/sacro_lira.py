"""LiRA by SACRO-ML: processor seconds for each shadow model, the attack itself counted in. Packages: sacroml==2.0.1.

python sacro_lira.py FILE.npz SHADOWS      X, y; the first half are members
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
import warnings

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np
from sacroml.attacks.likelihood_attack import LIRAAttack
from sacroml.attacks.target import Target
from sklearn.neural_network import MLPClassifier


def main() -> int:
    warnings.simplefilter("ignore")
    data, shadows = np.load(sys.argv[1]), int(sys.argv[2])
    X, y, half = data["X"], data["y"], len(data["y"]) // 2
    model = MLPClassifier(
        (128,), activation="tanh", alpha=0.0, batch_size=64, learning_rate_init=1e-3, max_iter=40, n_iter_no_change=1000
    )
    model.fit(X[:half], y[:half])
    target = Target(model=model, X_train=X[:half], y_train=y[:half], X_test=X[half:], y_test=y[half:])
    with tempfile.TemporaryDirectory() as folder:
        attack = LIRAAttack(n_shadow_models=shadows, output_dir=folder, write_report=False)
        began = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            attack.attack(target)
        spent = time.process_time() - began
    print(spent / shadows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
