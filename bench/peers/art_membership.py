"""The shadow attack by ART: processor seconds for each shadow model, the attack itself counted in.

Packages: adversarial-robustness-toolbox==1.20.1, torch.

python art_membership.py FILE.npz SHADOWS      X, y; the first half are members
"""

from __future__ import annotations

import os
import sys
import time

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np
import torch
from art.attacks.inference.membership_inference import MembershipInferenceBlackBox, ShadowModels
from art.estimators.classification import PyTorchClassifier
from torch import nn


def main() -> int:
    data, shadows = np.load(sys.argv[1]), int(sys.argv[2])
    X, y, classes = data["X"], data["y"], int(data["y"].max()) + 1
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(X.shape[1], 128), nn.Tanh(), nn.Linear(128, classes))
    template = PyTorchClassifier(
        model, nn.CrossEntropyLoss(), (X.shape[1],), classes, torch.optim.Adam(model.parameters(), 1e-3), device_type="cpu"
    )
    fit = template.fit
    template.fit = lambda x, labels, **more: fit(x, labels, batch_size=64, nb_epochs=40, **more)
    began = time.process_time()
    made = ShadowModels(template, num_shadow_models=shadows)
    (x_in, y_in, p_in), (x_out, y_out, p_out) = made.generate_shadow_dataset(X, np.eye(classes, dtype=np.float32)[y])
    attack = MembershipInferenceBlackBox(template, attack_model_type="rf")
    attack.fit(x_in, y_in, x_out, y_out, p_in, p_out)
    attack.infer(X, y, probabilities=True)
    print((time.process_time() - began) / shadows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
