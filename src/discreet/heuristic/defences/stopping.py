"""Early stopping: the epoch with the least loss on rows set aside, not the last."""

from __future__ import annotations

from typing import Any

from discreet.core import check
from discreet.heuristic.defences.defended import Defended, fitted_by, of_torch, set_aside, train
from discreet.models import Recipe, predict


def early_stopping(recipe: Recipe, *, share: float = 0.1, patience: int = 3, device: str = "cpu") -> Defended:
    """Stop when the loss on a `share` of rows set aside has not improved for `patience` epochs; keep the best epoch."""
    check.open_fraction("share", share)
    check.whole("patience", patience)
    known = of_torch(recipe)

    def fit(X: Any, y: Any) -> Any:
        import torch
        import torch.nn.functional as F

        ours, aside = set_aside(len(X), share)
        rows = torch.as_tensor(X[aside], dtype=torch.float32).to(device)
        labels = torch.as_tensor(y[aside], dtype=torch.long).to(device)
        best: dict[str, Any] = {"loss": float("inf"), "epoch": 0, "weights": None}

        def after_epoch(model: Any, epoch: int) -> bool:
            model.eval()
            with torch.no_grad():
                now = float(F.cross_entropy(model(rows), labels))
            if now < best["loss"]:
                best.update(loss=now, epoch=epoch, weights={name: value.clone() for name, value in model.state_dict().items()})
            return epoch - int(best["epoch"]) >= patience

        model = train(known, X[ours], y[ours], after_epoch=after_epoch, device=device)
        if best["weights"] is not None:
            model.load_state_dict(best["weights"])
        return lambda inputs: predict.scores(model, inputs)

    return Defended("early stopping", fitted_by(known, fit))
