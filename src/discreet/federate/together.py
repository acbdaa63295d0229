"""All clients of a round trained as one job: a stack of weights [clients, size], one batched step for all of them.

Clients may have as many rows as they like: they are sorted by the number of their steps, those that are done leave the stack,
and the last batch of an epoch, which may be a small one, is padded by rows that count nothing. Chains of linear layers and
activations are batched products; any other module runs under torch.func.vmap. Both give what `Looped` gives, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from discreet.federate.clients import Rows
from discreet.federate.local import Ints, LocalSGD
from discreet.federate.looped import Looped, Loss, made_up, per_row
from discreet.models.layers import ACTIVATIONS, Layers

CACHE = 1 << 25  # bytes of weights above which more clients at once only wait for memory, on a CPU
MEMORY = 1 << 32  # the same on a GPU, where it is a matter of room
_APART = (nn.CrossEntropyLoss, nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCEWithLogitsLoss, nn.BCELoss)
_ALONE = (nn.modules.batchnorm._BatchNorm, nn.RNNBase, nn.modules.dropout._DropoutNd)
Gradients = Callable[[list[Tensor], Tensor, Tensor, Tensor], list[Tensor]]


class Together(Looped):
    """As `Looped`, in groups that fit memory; `fits` says for which modules."""

    def __init__(self, model: nn.Module, loss: Loss, device: torch.device, *, total: bool = False) -> None:
        super().__init__(model, loss, device, total=total)
        chain = Layers.fits(model) and _in_order(model, self.parameters)
        self._gradients: Gradients = self._chained if chain and _rows_apart(loss) else self._mapped
        self._layers = [layer for layer in model.modules() if not isinstance(layer, nn.Sequential)]
        self._names = [name for name, p in model.named_parameters() if p.requires_grad]
        self.group = (MEMORY if device.type == "cuda" else CACHE) // (4 * max(self.size, 1))

    @staticmethod
    def fits(model: nn.Module, loss: Loss) -> bool:
        """No layer that draws at random, mixes the rows of a batch, or has no batched form."""
        shared = sum(1 for _ in model.named_parameters()) < sum(1 for _ in model.named_parameters(remove_duplicate=False))
        return not shared and not any(isinstance(layer, _ALONE) for layer in model.modules())

    def train(
        self, how: LocalSGD, starts: Tensor, rows: Sequence[Rows], orders: Sequence[Ints], seeds: Sequence[int]
    ) -> Tensor:
        steps = np.array([how.steps(len(inputs)) for inputs, _ in rows], np.int64)
        updates = starts.new_zeros(len(rows), self.size)
        longest = np.argsort(-steps, kind="stable")[: int((steps > 0).sum())]
        for part in np.split(longest, range(max(self.group, 1), len(longest), max(self.group, 1))):
            if len(part):
                own = starts if starts.ndim == 1 else starts[torch.from_numpy(part).to(starts.device)]
                group = [rows[i] for i in part], [orders[i] for i in part], [seeds[i] for i in part]
                updates[torch.from_numpy(part).to(updates.device)] = self._group(how, own, *group, steps[part])
        return updates

    def _group(
        self, how: LocalSGD, starts: Tensor, rows: list[Rows], orders: list[Ints], seeds: list[int], steps: Ints
    ) -> Tensor:
        """One group together; in a private run one after another where some client's rows raise."""
        try:
            return self._stack(how, starts, rows, orders, steps)
        except Exception:
            if not self.total:
                raise
            return super().train(how, starts, rows, orders, seeds)

    def _stack(self, how: LocalSGD, starts: Tensor, rows: Sequence[Rows], orders: Sequence[Ints], steps: Ints) -> Tensor:
        """The changes of one group, those with the most steps first."""
        self._own = self.fresh()  # under vmap each client of the group sees only what is its own
        flat = starts.expand(len(rows), self.size).clone()
        inputs, targets = (torch.cat([pair[k] for pair in rows]).to(self.device) for k in (0, 1))
        batches = [places.to(self.device) for places in _batches(how, orders, steps)]
        moved = torch.zeros_like(flat) if how.momentum else None
        active = [int((steps > step).sum()) for step in range(len(batches))]
        for places, members in zip(batches, active):
            known = places >= 0
            index = torch.where(known, places, places[:, :1]).flatten()
            share = known / known.sum(1, keepdim=True)
            views = _views(flat[:members], self.parameters)
            slopes = self._gradients(views, inputs[index], targets[index], share)
            with torch.no_grad():
                self._descend(how, flat[:members], views, slopes, starts, moved)
        return flat.sub_(starts)

    def _descend(
        self, how: LocalSGD, flat: Tensor, views: list[Tensor], slopes: list[Tensor], starts: Tensor, moved: Tensor | None
    ) -> None:
        if moved is None and not how.proximal:
            torch._foreach_add_(views, slopes, alpha=-how.learning_rate)
            return
        slope = torch.cat([each.reshape(len(flat), -1) for each in slopes], 1)
        if how.proximal:
            slope += how.proximal * (flat - (starts if starts.ndim == 1 else starts[: len(flat)]))
        if moved is not None:
            slope = moved[: len(flat)].mul_(how.momentum).add_(slope)
        flat.sub_(slope, alpha=how.learning_rate)

    def _chained(self, views: list[Tensor], inputs: Tensor, targets: Tensor, share: Tensor) -> list[Tensor]:
        """Batched products; the loss looks at each row by itself, so rows of several clients may stand in one call."""
        leaves = [view.detach().requires_grad_() for view in views]
        x, at = inputs.view(*share.shape, *inputs.shape[1:]), 0
        x = x.flatten(2) if x.ndim > 3 else x
        for layer in self._layers:
            if isinstance(layer, nn.Linear):
                bias = layer.bias is not None
                x = torch.baddbmm(leaves[at + 1][:, None], x, leaves[at].mT) if bias else torch.bmm(x, leaves[at].mT)
                at += 1 + bias
            elif not isinstance(layer, nn.Flatten):
                x = ACTIVATIONS[type(layer)](x)
        losses = per_row(self.loss(x.flatten(0, 1), targets), share.numel())
        return list(torch.autograd.grad(losses @ share.flatten(), leaves))

    def _mapped(self, views: list[Tensor], inputs: Tensor, targets: Tensor, share: Tensor) -> list[Tensor]:
        """Each client's gradient apart from the others', whatever the module is."""

        model, loss_of = self._own

        def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor, parts: Tensor) -> Tensor:
            return per_row(loss_of(functional_call(model, weights, (x,)), y), len(parts)) @ parts

        stacked = dict(zip(self._names, (view.detach() for view in views)))
        x, y = (rows.view(*share.shape, *rows.shape[1:]) for rows in (inputs, targets))
        gradients = vmap(grad(loss), randomness="error")(stacked, x, y, share)
        return [gradients[name] for name in self._names]


def _views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Each parameter of every client, [clients, ...], in the memory of the stack."""
    parts = flat.split([p.numel() for p in like], 1)
    return [part.view(len(flat), *p.shape) for part, p in zip(parts, like)]


def _batches(how: LocalSGD, orders: Sequence[Ints], steps: Ints) -> list[Tensor]:
    """For each step the places [clients, batch] among all rows of the group; -1 where a batch is a small one."""
    counts = [order.shape[1] for order in orders]
    size = min(how.batch_size or max(counts), max(counts))
    out = np.full((int(steps[0]), len(orders), size), -1, np.int64)
    start = 0
    for client, order in enumerate(orders):
        count = counts[client]
        each = -(-count // size)
        padded = np.full((len(order), each * size), -1, np.int64)
        padded[:, :count] = order + start
        out[: len(order) * each, client] = padded.reshape(-1, size)
        start += count
    return [torch.from_numpy(out[step, : int((steps > step).sum())]) for step in range(len(out))]


def _in_order(model: nn.Module, parameters: Sequence[Tensor]) -> bool:
    """Whether the layers come in the order of the parameters, weights before biases."""
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    expected = [p for layer in linear for p in (layer.weight, layer.bias) if p is not None]
    return len(expected) == len(parameters) and all(p is q for p, q in zip(expected, parameters))


def _rows_apart(loss: Loss) -> bool:
    """A loss of torch that gives each row's number from that row alone."""
    return type(loss) in _APART and getattr(loss, "reduction", None) == "none"


def engine(
    model: nn.Module, loss: Loss, device: torch.device, sample: Rows, how: LocalSGD, *, total: bool = False
) -> Looped:  # fmt: skip
    """The stack where it computes the same as the loop on made-up rows; the loop where it does not, or cannot.

    Of `sample`, the rows of some client, only shapes and types are used: which engine runs tells nothing of their values.
    """
    plain, (inputs, targets) = Looped(model, loss, device, total=total), made_up(sample, 5)
    plain.refuse_changing(inputs, targets)
    if not Together.fits(model, loss):
        return plain
    size = 3 if how.batch_size is not None else None  # so that the second batch is a small one
    trial = LocalSGD(how.learning_rate, 1, size, how.momentum, how.proximal)
    rows = [(inputs, targets), (inputs[:1], targets[:1])]
    orders = [np.arange(len(inputs))[None] for inputs, _ in rows]
    start = plain.weights()
    expected = Looped(model, loss, device).train(trial, start, rows, orders, [0, 0])
    plain.put(start)
    try:
        together = Together(model, loss, device).train(trial, start, rows, orders, [0, 0])
    except (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError):
        return plain
    close = torch.allclose(together, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max().nan_to_num()) + 1e-12)
    stack = Together(model, loss, device, total=total)
    return stack if close and stack.group > 1 else plain
