"""Pictures of the people that a classifier tells apart, recreated from it, and a judge that never saw their pictures.

python examples/faces_from_a_model.py
"""

from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import nn

from discreet.attack.inversion import ClassInversion, PicturePrior
from discreet.attack.pictures import png, sheet

rng = np.random.default_rng(5)
common = gaussian_filter(rng.normal(size=(1, 16, 12, 1)), (0, 3, 3, 0)) * 0.8


def faces(people: int, each: int) -> np.ndarray:
    own = gaussian_filter(rng.normal(size=(people, 16, 12, 1)), (0, 1.5, 1.5, 0)) * 0.5
    return np.clip(0.5 + common + np.repeat(own, each, axis=0) + rng.normal(size=(people * each, 16, 12, 1)) * 0.03, 0, 1)


public, private = faces(30, 4), faces(8, 8)
who, held = np.repeat(np.arange(8), 8), np.arange(64) % 8 >= 5
torch.manual_seed(0)
model = nn.Linear(192, 8)
rows, labels = torch.tensor(private[~held].reshape(-1, 192), dtype=torch.float32), torch.tensor(who[~held])
search = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(200):
    loss = nn.functional.cross_entropy(model(rows), labels)
    search.zero_grad()
    loss.backward()
    search.step()

means = np.stack([private[held & (who == person)].mean(axis=0) for person in range(8)])


def judge(pictures: np.ndarray) -> np.ndarray:
    flat = [part.reshape(len(part), -1) - public.mean(axis=0).ravel() for part in (pictures, means)]
    left, right = (part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-9) for part in flat)
    return left @ right.T


found = ClassInversion(PicturePrior.learned(public)).from_gradients(model, range(8))
risk, _ = found.compared(judge, np.arange(8), np.repeat(public.mean(axis=0)[None], 8, axis=0))
print(risk)
Path("faces.png").write_bytes(png(sheet([means, found.pictures])))
print("faces.png: held-out means of the people, and what the model showed")
