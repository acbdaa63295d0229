"""RelaxLoss (Chen, Yu and Fritz 2022): the loss on training rows is kept near a level, as it is on others."""

from __future__ import annotations

from typing import Any

from discreet.core import check
from discreet.heuristic.defences.defended import Defended, fitted_by, of_torch, train
from discreet.models import Recipe, predict


def relax_loss(recipe: Recipe, *, level: float, device: str = "cpu") -> Defended:
    """Descend where a batch's loss is above `level`; below it ascend in even epochs, flatten the other classes in odd ones."""
    check.positive("level", level)
    known = of_torch(recipe)

    def loss(forward: Any, rows: Any, labels: Any, epoch: int) -> Any:
        import torch.nn.functional as F

        scores = forward(rows)
        plain = F.cross_entropy(scores, labels)
        if float(plain.detach()) >= level:
            return plain
        return -plain if epoch % 2 == 0 else F.cross_entropy(scores, _flat(scores, labels))

    def fit(X: Any, y: Any) -> Any:
        model = train(known, X, y, loss=loss, device=device)
        return lambda inputs: predict.scores(model, inputs)

    return Defended("RelaxLoss", fitted_by(known, fit))


def _flat(scores: Any, labels: Any) -> Any:
    """The model's own probability for the label, the rest shared evenly by the other classes."""
    import torch.nn.functional as F

    probabilities = scores.detach().softmax(1)
    own = probabilities.gather(1, labels[:, None])
    mark = F.one_hot(labels, scores.shape[1]).float()
    return mark * own + (1.0 - mark) * (1.0 - own) / max(scores.shape[1] - 1, 1)
