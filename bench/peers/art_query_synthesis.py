"""ART's hill climbing on given weights: processor seconds for a row, on the last line.

python art_query_synthesis.py weights.npz ROWS CONFIDENCE STEPS
"""

import contextlib
import os
import sys
import time

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np
from art.attacks.inference.membership_inference import ShadowModels

kind, place, rows, sure, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
with np.load(place) as found:
    w1, b1, w2, b2 = (found[name] for name in found.files)
width, classes = w1.shape[0], w2.shape[1]
draw = np.random.default_rng(0)


def predict(x):
    scores = np.tanh(x @ w1 + b1) @ w2 + b2
    p = np.exp(scores - scores.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def fresh():
    return draw.integers(0, 2, width).astype(np.float32)


def changed(record, count):
    record = record.copy()
    places = draw.choice(width, count, replace=False)
    record[places] = 1.0 - record[places]
    return record


def asked_in_numpy():
    from art.estimators.classification import BlackBoxClassifier

    return BlackBoxClassifier(predict, (width,), classes)


def asked_in_torch():
    import torch
    from art.estimators.classification import PyTorchClassifier
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(width, w1.shape[1]), nn.Tanh(), nn.Linear(w1.shape[1], classes), nn.Softmax(1))
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), (w1.T, b1, w2.T, b2)):
            parameter.copy_(torch.from_numpy(value.copy()))
    return PyTorchClassifier(model.eval(), nn.NLLLoss(), (width,), classes, device_type="cpu")


target = asked_in_torch() if kind == "torch" else asked_in_numpy()
target.predict(np.zeros((1, width), np.float32))
made = ShadowModels.__new__(ShadowModels)  # the climbing alone: no shadow is trained
made._rng = np.random.default_rng(0)
began = time.process_time()
for row in range(rows):
    with contextlib.suppress(RuntimeError):  # a row that was given up
        made._hill_climbing_synthesis(target, row % classes, sure, None, steps, 3, 1, fresh, changed)
print((time.process_time() - began) / rows)
