"""A private model in three changed lines, paid for from a ledger.

python examples/private_training.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn

import discreet

FOLDER = Path(tempfile.mkdtemp())
torch.manual_seed(0)  # the made-up table and the first weights; noise and batches come from the operating system
inputs = torch.randn(8_000, 20)
target = (inputs @ torch.randn(20, 3) + 0.3 * torch.randn(8_000, 3)).argmax(1)
train_rows, test_rows = (inputs[:6_000], target[:6_000]), (inputs[6_000:], target[6_000:])

ledger = discreet.Ledger(FOLDER / "ledger.db")
ledger.open("people", unit=discreet.record(), epsilon=4.0, delta=1e-5)

model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
run = discreet.learn.train(
    model, optimizer, train_rows, nn.CrossEntropyLoss(reduction="none"), unit=discreet.record(), epsilon=2.0, delta=1e-6,
    rate=0.05, steps=200, clip_norm=1.0, divisor=300, ledger=ledger, source="people",
)  # fmt: skip
for _step in run:
    pass
release = run.release(FOLDER / "model")

accuracy = float((model(test_rows[0]).argmax(1) == test_rows[1]).float().mean())
print(f"accuracy {accuracy:.1%} at epsilon {run.spent():.2f}, delta {run.plan.delta:g}")
print(f"left in the budget: {ledger.left('people'):.2f} of 4.00; entry {release.entry}")
print(f"the model with its claim: {FOLDER / 'model'}")
