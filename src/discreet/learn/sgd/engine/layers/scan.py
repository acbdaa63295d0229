"""One recurrent layer over all positions, forward and backward, in few kernels.

Autograd would keep ten graph nodes for every position. Here a position is one product and one cell, in both directions of the
layer at once, and the backward gives the gradients of all gates, from which per-unit gradients of the recurrent weight are
computed. On a GPU the cells are torch's own fused kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from discreet.learn.sgd.engine.layers.linear import LinearRecord

Saved = Sequence[Tensor]  # what the backward of one position needs


def scan(
    mode: str, inputs: Sequence[Tensor], states: Sequence[tuple[Tensor, ...]], weights: Sequence[Tensor],
    biases: Sequence[Tensor | None], backwards: Sequence[bool], records: Sequence[LinearRecord],
) -> tuple[list[Tensor], list[tuple[Tensor, ...]]]:  # fmt: skip
    """The outputs of every direction [examples, positions, width] and its last state.

    `inputs` are projections [examples, positions, gates] by direction. The backward tells each record which hidden states
    its weight met and what the gradients of its gates were.
    """
    kind = inputs[0].dtype
    ordered = [sequence.flip(1) if turned else sequence for sequence, turned in zip(inputs, backwards)]
    gates = torch.stack(ordered).permute(2, 0, 1, 3).contiguous()  # [positions, directions, examples, gates]
    if not gates.requires_grad and any(record.parameters for record in records):
        gates.requires_grad_()  # only the recurrent weight is trained; its backward begins here
    first = [torch.stack(parts).to(kind) for parts in zip(*states)]
    weight = torch.stack([w.detach() for w in weights]).to(kind)
    shift = None if biases[0] is None else torch.stack([b.detach() for b in biases if b is not None])[:, None].to(kind)
    cell = first[1] if mode == "LSTM" else None
    hidden, last = _Scan.apply(gates, first[0], cell, weight, shift, CELLS[mode], tuple(zip(records, backwards)))
    outputs = [sequence.transpose(0, 1) for sequence in hidden.unbind(1)]
    ends = [(hidden[-1, place], *(() if last is None else (last[place],))) for place in range(len(inputs))]
    return [sequence.flip(1) if turned else sequence for sequence, turned in zip(outputs, backwards)], ends


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, hidden: Tensor, cell: Tensor | None, weight: Tensor, shift: Tensor | None, kind: Any,
        records: Any,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        hiddens, saved, turned = [hidden], list[Saved](), weight.mT
        for gate in gates:
            product = torch.bmm(hidden, turned) if shift is None else torch.baddbmm(shift, hidden, turned)
            hidden, cell, tensors = kind.forward(gate, product, hidden, cell)
            hiddens.append(hidden)
            saved.append(tensors)
        ctx.kind, ctx.records = kind, records
        every = torch.stack(hiddens)
        ctx.save_for_backward(weight, every, *(tensors for position in saved for tensors in position))
        return every[1:].clone(), cell

    @staticmethod
    def backward(ctx: Any, to_hiddens: Tensor, to_cell: Tensor | None) -> tuple[Tensor | None, ...]:
        """Positions from the last to the first; a product brings the gradient of a gate back to the hidden state before."""
        weight, hiddens, *saved = ctx.saved_tensors
        count = len(saved) // len(to_hiddens)  # tensors kept of one position
        to_hidden, to_inputs, met = to_hiddens[-1], list[Tensor](), list[Tensor]()
        for position in range(len(to_hiddens) - 1, -1, -1):
            to_input, to_product, straight, to_cell = ctx.kind.backward(
                to_hidden, to_cell, saved[count * position : count * (position + 1)]
            )
            to_inputs.append(to_input)
            met.append(to_product)
            beside = to_hiddens[position - 1] if position else None
            before = straight if beside is None else beside if straight is None else beside + straight
            to_hidden = torch.bmm(to_product, weight) if before is None else torch.baddbmm(before, to_product, weight)
        inputs = torch.stack(to_inputs[::-1])
        products = inputs if met[0] is to_inputs[0] else torch.stack(met[::-1])
        for place, (record, turned) in enumerate(ctx.records):
            if record.parameters:
                pair = (t[:, place].transpose(0, 1) for t in (hiddens[:-1], products))
                record.x, record.gradient = (t.flip(1) if turned else t for t in pair)
        return inputs, to_hidden, to_cell, None, None, None, None


class _LSTM:
    """Gates: input, forget, new, output."""

    @staticmethod
    def forward(inputs: Tensor, product: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Saved]:
        if inputs.is_cuda:
            flat = (t.view(-1, t.shape[-1]) for t in (inputs, product, cell))
            after, now, workspace = (t.view(*inputs.shape[:-1], -1) for t in torch.ops.aten._thnn_fused_lstm_cell(*flat))
            return after, now, (workspace, cell, now)
        i, f, g, o = (inputs + product).chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        now = f * cell + i * g
        return o * now.tanh(), now, (torch.cat((i, f, g, o), -1), cell, now)

    @staticmethod
    def backward(to_hidden: Tensor, to_cell: Tensor | None, saved: Saved) -> tuple[Tensor, Tensor, None, Tensor]:
        workspace, cell, now = saved
        if workspace.is_cuda:
            flat = [None if t is None else t.reshape(-1, t.shape[-1]) for t in (to_hidden, to_cell, cell, now, workspace)]
            gates, before, _ = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(*flat, False)
            gates = gates.view(workspace.shape)
            return gates, gates, None, before.view(cell.shape)
        i, f, g, o = workspace.chunk(4, -1)
        bent = now.tanh()
        inner = to_hidden * o * (1 - bent * bent)
        inner = inner if to_cell is None else inner + to_cell
        gates = torch.cat(
            (inner * g * i * (1 - i), inner * cell * f * (1 - f), inner * i * (1 - g * g), to_hidden * bent * o * (1 - o)), -1
        )
        return gates, gates, None, inner * f


class _GRU:
    """Gates: reset, update, new; the new gate's recurrent part is reset before it is added."""

    @staticmethod
    def forward(inputs: Tensor, product: Tensor, hidden: Tensor, cell: None) -> tuple[Tensor, None, Saved]:
        if inputs.is_cuda:
            flat = (t.reshape(-1, t.shape[-1]) for t in (inputs, product, hidden))
            after, workspace = torch.ops.aten._thnn_fused_gru_cell(*flat)
            return after.view(hidden.shape), None, (workspace,)
        (xr, xz, xn), (hr, hz, hn) = inputs.chunk(3, -1), product.chunk(3, -1)
        reset, update = (xr + hr).sigmoid(), (xz + hz).sigmoid()
        new = torch.tanh(xn + reset * hn)
        return new + update * (hidden - new), None, (reset, update, new, hn, hidden)

    @staticmethod
    def backward(to_hidden: Tensor, to_cell: None, saved: Saved) -> tuple[Tensor, Tensor, Tensor, None]:
        if len(saved) == 1:
            flat = to_hidden.reshape(-1, to_hidden.shape[-1])
            to_input, product, straight, *_ = torch.ops.aten._thnn_fused_gru_cell_backward(flat, saved[0], False)
            shape = to_hidden.shape[:-1]
            return to_input.view(*shape, -1), product.view(*shape, -1), straight.view(*shape, -1), None
        reset, update, new, hn, hidden = saved
        to_new = to_hidden * (1 - update) * (1 - new * new)
        to_reset = to_new * hn * reset * (1 - reset)
        to_update = to_hidden * (hidden - new) * update * (1 - update)
        to_input = torch.cat((to_reset, to_update, to_new), -1)
        return to_input, torch.cat((to_reset, to_update, to_new * reset), -1), to_hidden * update, None


class _Tanh:
    @staticmethod
    def forward(inputs: Tensor, product: Tensor, hidden: Tensor, cell: None) -> tuple[Tensor, None, Saved]:
        after = torch.tanh(inputs + product)
        return after, None, (after,)

    @staticmethod
    def backward(to_hidden: Tensor, to_cell: None, saved: Saved) -> tuple[Tensor, Tensor, None, None]:
        gates = to_hidden * (1 - saved[0] * saved[0])
        return gates, gates, None, None


class _ReLU(_Tanh):
    @staticmethod
    def forward(inputs: Tensor, product: Tensor, hidden: Tensor, cell: None) -> tuple[Tensor, None, Saved]:
        after = torch.relu(inputs + product)
        return after, None, (after,)

    @staticmethod
    def backward(to_hidden: Tensor, to_cell: None, saved: Saved) -> tuple[Tensor, Tensor, None, None]:
        gates = to_hidden * (saved[0] > 0)
        return gates, gates, None, None


CELLS: dict[str, Any] = {"LSTM": _LSTM, "GRU": _GRU, "RNN_TANH": _Tanh, "RNN_RELU": _ReLU}
