"""Shadow models by Privacy Meter's own loop: processor seconds per model. Packages: torch, and a checkout of Privacy Meter.

python privacy_meter_shadow.py CHECKOUT WIDTH HIDDEN CLASSES BATCH ROWS

The package on the index (privacy-meter 1.0.1) audits models that others trained; the trainer stands in its repository,
github.com/privacytrustlab/ml_privacy_meter (MIT; e384af8 was measured), and is called there as it is: its table, its `train`,
torch's loader as its `get_dataloader` makes it, but in this very process, which costs less than the four it would start. It
would also be asked about the other half after every epoch; that is left out.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset

MODELS, EPOCHS = 3, 2


def module(path: Path) -> Any:
    """One file of the checkout; its packages would import text models and images too."""
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


def main() -> int:
    checkout = Path(sys.argv[1])
    width, hidden, classes, batch, rows = map(int, sys.argv[2:7])
    train = module(checkout / "trainers" / "default_trainer.py").train
    table = module(checkout / "dataset" / "tabular.py").TabularDataset
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    data = table(draw.integers(0, 2, (rows, width)).astype(np.float32), draw.integers(0, classes, rows))
    how = {"optimizer": "SGD", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.0, "epochs": EPOCHS, "device": "cpu"}
    began = 0.0
    for number in range(1 + MODELS):
        if number == 1:  # the first model loads what torch loads late
            began = time.process_time()
        model = nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, classes))
        half = Subset(data, draw.permutation(rows)[: rows // 2].tolist())
        train(model, DataLoader(half, batch_size=batch, shuffle=True), how)
    print((time.process_time() - began) / MODELS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
