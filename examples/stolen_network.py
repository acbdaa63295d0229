"""A small network is read out of its answers, digit for digit; rounded answers stop that, and a copy is learned instead."""

import numpy as np
import torch
from torch import nn

from discreet.attack.stealing import Rounded, steal_approximate, steal_relu
from discreet.errors import InvalidValue

torch.manual_seed(0)
random = np.random.default_rng(0)
X = random.normal(size=(3000, 8)).astype(np.float32)
y = (X[:, 0] * X[:, 1] + X[:, 2] > 0).astype(np.int64)

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(200):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.as_tensor(X[:1000])), torch.as_tensor(y[:1000])).backward()
    optimizer.step()
model = model.double().eval()


def answers(rows):
    with torch.no_grad():
        return model(torch.as_tensor(np.asarray(rows, np.float64))).numpy()


stolen = steal_relu(answers, inputs=8)
gap = np.abs(stolen.predict(X) - answers(X)).max()
print(f"{stolen.widths[0]} hidden units read out of {stolen.queries} answers; largest difference on 3,000 rows {gap:.0e}")

try:
    steal_relu(Rounded(answers, 3), inputs=8)
except InvalidValue as error:
    print(error)

copy = steal_approximate(Rounded(answers, 3), X[1000:2000], X[2000:], budgets=(50, 200, 800), epochs=20)
for step in copy.curve:
    print(f"{step.queries} rounded answers: agrees on {step.share:.1%} ({step.low:.1%} to {step.high:.1%})")
