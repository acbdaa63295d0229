"""Was this model fine-tuned from ours? And what share of its training rows were from one group?

python examples/made_from_ours.py
"""

import numpy as np
from torch import nn

from discreet.attack.inversion import PropertyInference
from discreet.attack.stealing import descended
from discreet.models import Recipe, Trainer

rng = np.random.default_rng(0)


def people(count: int, share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of two groups, whose labels follow different rules."""
    has = np.arange(count) < share * count
    X = rng.normal(size=(count, 6)).astype(np.float32)
    return X, (X[:, 0] + np.where(has, 1, -1) * X[:, 1] > 0).astype(np.int64), has


trainer = Trainer(Recipe(lambda: nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2)), epochs=5, learning_rate=0.01))
X, y, _ = people(300, 0.7)
ours, another = trainer.one(X, y, seed=1), trainer.one(X, y, seed=2)
tuned = {name: value + 0.05 * value.std() for name, value in ours.state_dict().items()}
print("fine-tuned:", descended(ours, tuned))
print("trained anew:", descended(ours, another))

own, labels, has = people(900, 0.5)
print("of the group:", PropertyInference(300, shadows=200).infer(ours, trainer, own, labels, has, own[:100]))
