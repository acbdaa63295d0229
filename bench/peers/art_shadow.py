"""Shadow models by ART's own loop: processor seconds per model. Packages: adversarial-robustness-toolbox==1.20.1, torch.

python art_shadow.py WIDTH HIDDEN CLASSES BATCH ROWS
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
from art.attacks.inference.membership_inference import ShadowModels
from art.estimators.classification import PyTorchClassifier
from torch import nn

MODELS, EPOCHS = 3, 2


def main() -> int:
    width, hidden, classes, batch, rows = map(int, sys.argv[1:6])
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    X, y = draw.integers(0, 2, (rows, width)).astype(np.float32), draw.integers(0, classes, rows)
    model = nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, classes))
    template = PyTorchClassifier(
        model, nn.CrossEntropyLoss(), (width,), classes, torch.optim.SGD(model.parameters(), 0.1, 0.9), device_type="cpu"
    )
    fit = template.fit
    template.fit = lambda x, labels, **more: fit(x, labels, batch_size=batch, nb_epochs=EPOCHS, **more)
    began = time.process_time()
    # each of ART's shadows gets a half of what it is given; as many rows as ours get
    ShadowModels(template, num_shadow_models=MODELS).generate_shadow_dataset(X, np.eye(classes, dtype=np.float32)[y])
    print((time.process_time() - began) / MODELS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
