"""The update that is attacked, checked against the model that it is said to belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from discreet.errors import InvalidValue

PRECISION = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}


@dataclass(frozen=True, slots=True)
class Update:
    """One value per trained parameter, in the model's order and in float64, and how precisely they were sent."""

    values: dict[str, Tensor]
    rounding: float

    def list(self) -> list[Tensor]:
        return list(self.values.values())

    def scaled(self, factor: float) -> Update:
        return Update({name: value * factor for name, value in self.values.items()}, self.rounding)

    def norm(self) -> float:
        return float(torch.sqrt(sum((value**2).sum() for value in self.values.values())))  # type: ignore[arg-type]


def checked(model: nn.Module, update: Any) -> Update:
    """The update of this model: every trained parameter, its shape, finite, and not all zeros."""
    if not isinstance(update, Mapping):
        raise InvalidValue(f"update must map parameter names to tensors; got {type(update).__name__}.")
    wanted = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not wanted:
        raise InvalidValue("The model has no parameter that is trained (requires_grad), so no update of it says anything.")
    missing = [name for name in wanted if name not in update]
    if missing:
        raise InvalidValue(
            f"The update has no value for {len(missing)} of {len(wanted)} trained parameters, the first {missing[0]!r}. "
            "Give every one, or set requires_grad=False on those that the client did not send."
        )
    foreign = [str(name) for name in update if name not in wanted]
    if foreign:
        raise InvalidValue(
            f"The update has {foreign[0]!r}, which is no trained parameter of this model: is it of another model?"
        )
    values, rounding = {}, 0.0
    for name, parameter in wanted.items():
        value = torch.as_tensor(update[name])
        if value.shape != parameter.shape:
            raise InvalidValue(
                f"{name} has the shape {tuple(value.shape)} in the update and {tuple(parameter.shape)} in the model: "
                "is it of another model?"
            )
        if not value.is_floating_point():
            raise InvalidValue(
                f"{name} of the update holds {value.dtype}, not floating-point numbers; undo the quantisation first."
            )
        if not bool(torch.isfinite(value).all()):
            raise InvalidValue(f"{name} of the update has NaN or infinite values; nothing can be read out of them.")
        rounding = max(rounding, PRECISION.get(value.dtype, 1e-6))
        values[name] = value.detach().double().cpu()
    if not any(bool(value.any()) for value in values.values()):
        raise InvalidValue("The update is all zeros: nothing was learned from the batch, so nothing can be read out of it.")
    return Update(values, rounding)
