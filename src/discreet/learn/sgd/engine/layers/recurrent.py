"""Recurrent layers: an input projection over all positions at once, and a recurrent one over the hidden states.

The hidden states are computed position by position, as they must be; what the weights met is kept for all positions
together, so that a layer is two linear records and not two for every position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from discreet.errors import InvalidValue
from discreet.learn.sgd.engine.cast import casted
from discreet.learn.sgd.engine.layers import linear
from discreet.learn.sgd.engine.tape import Forward, Record, Tape

State = tuple[Tensor, ...]  # the hidden state, and the cell of an LSTM
Cell = Callable[[Tensor, Tensor, State], State]  # projections of input and of hidden state, state before: state after


class Steps(linear.LinearRecord):
    """A weight used once for every position.

    Where what it gives is only added to the input's projection, its gradients are those of that; otherwise zeros are added
    to what it gives, which have its gradients as theirs.
    """

    def __init__(self, tape: Tape, weight: Tensor, bias: Tensor | None, like: Tensor, beside: Record | None = None) -> None:
        super().__init__(tape, *(p if p is not None and p.requires_grad else None for p in (weight, bias)))
        self._weight, self._bias = weight.detach(), None if bias is None else bias.detach()
        self._beside, self._taps, self._each = beside, None, None
        if beside is None and self.parameters:
            zeros = torch.zeros(*like.shape[:2], weight.shape[0], dtype=like.dtype, device=like.device, requires_grad=True)
            self._taps, self._each = zeros, zeros.unbind(1)
        self._met: dict[int, Tensor] = {}

    def __call__(self, x: Tensor, position: int) -> Tensor:
        self._met[position] = casted(x)[0].detach()
        y = F.linear(x, self._weight, self._bias)
        return y if self._each is None else y + self._each[position]

    def reached(self) -> bool:
        gradient = getattr(self._beside, "gradient", None) if self._taps is None else self._taps.grad
        if gradient is not None:
            self.x, self.gradient = torch.stack([self._met[t] for t in range(len(self._met))], 1), gradient
        return super().reached()


def _lstm(x: Tensor, h: Tensor, state: State) -> State:
    i, f, g, o = (x + h).chunk(4, -1)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru(x: Tensor, h: Tensor, state: State) -> State:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
    new, keep = torch.tanh(xn + (xr + hr).sigmoid() * hn), (xz + hz).sigmoid()
    return (new + keep * (state[0] - new),)


def _tanh(x: Tensor, h: Tensor, state: State) -> State:
    return (torch.tanh(x + h),)


def _relu(x: Tensor, h: Tensor, state: State) -> State:
    return (torch.relu(x + h),)


CELLS: dict[str, Cell] = {"LSTM": _lstm, "GRU": _gru, "RNN_TANH": _tanh, "RNN_RELU": _relu}


def recurrent(module: nn.Module, tape: Tape) -> Callable[..., Any]:
    assert isinstance(module, nn.RNNBase)

    def forward(x: Tensor, hx: Any = None) -> Any:
        _refuse(x)
        x = x if module.batch_first else x.transpose(0, 1)
        before = _first(module, x, hx)
        ends: list[State] = []
        for layer in range(module.num_layers):
            outputs = []
            for suffix in ("", "_reverse")[: 2 if module.bidirectional else 1]:
                place = len(ends)
                y, end = _run(module, tape, f"_l{layer}{suffix}", x, tuple(s[place] for s in before))
                outputs.append(y)
                ends.append(end)
            x = torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0]
            if module.dropout and layer < module.num_layers - 1:
                x = F.dropout(x, module.dropout, module.training)
        last = tuple(torch.stack(parts) for parts in zip(*ends))
        return (x if module.batch_first else x.transpose(0, 1)), last if module.mode == "LSTM" else last[0]

    return forward


def _run(module: nn.RNNBase, tape: Tape, suffix: str, x: Tensor, state: State) -> tuple[Tensor, State]:
    """One direction of one layer over all positions."""
    ih, hh = (getattr(module, f"{name}{suffix}") for name in ("weight_ih", "weight_hh"))
    bias_ih, bias_hh, hr = (getattr(module, f"{name}{suffix}", None) for name in ("bias_ih", "bias_hh", "weight_hr"))
    inputs = linear.use(tape, x, ih, bias_ih)
    beside = (
        tape.records[-1] if module.mode != "GRU" and (ih.requires_grad or getattr(bias_ih, "requires_grad", False)) else None
    )
    hidden = _steps(tape, hh, bias_hh, inputs, beside)
    short = None if hr is None else _steps(tape, hr, None, inputs)
    order = range(x.shape[1])[:: -1 if suffix.endswith("reverse") else 1]
    each, cell = inputs.unbind(1), CELLS[module.mode]
    states: dict[int, Tensor] = {}
    for t in order:
        state = cell(each[t], hidden(state[0], t), state)
        if short is not None:
            state = (short(state[0], t), state[1])
        states[t] = state[0]
    return torch.stack([states[t] for t in range(x.shape[1])], 1), state


def _steps(tape: Tape, weight: Tensor, bias: Tensor | None, like: Tensor, beside: Record | None = None) -> Steps:
    record = Steps(tape, weight, bias, like, beside)
    if record.parameters:
        tape.add(record)
    return record


def _first(module: nn.RNNBase, x: Tensor, given: Any) -> State:
    """The states before the first position, each [layers x directions, examples, width]."""
    if given is not None:
        return tuple(given) if module.mode == "LSTM" else (given,)
    count = module.num_layers * (2 if module.bidirectional else 1)
    widths = [getattr(module, "proj_size", 0) or module.hidden_size, module.hidden_size]
    return tuple(x.new_zeros(count, x.shape[0], width) for width in widths[: 2 if module.mode == "LSTM" else 1])


def _refuse(x: Any) -> None:
    if isinstance(x, PackedSequence):
        raise InvalidValue(
            "A PackedSequence puts the positions of different examples side by side, so no example can be told from another. "
            "Give the padded tensor, and leave the padded positions out of the loss."
        )
    if x.ndim != 3:
        raise InvalidValue(
            f"A recurrent layer was given one sequence of shape {tuple(x.shape)} without an axis for examples. "
            "Give it [examples, positions, width] (batch_first=True) or [positions, examples, width]."
        )


# ---- one position at a time ------------------------------------------------------------------------------------------


def one_position(module: nn.Module, tape: Tape) -> Callable[..., Any]:
    """nn.LSTMCell, nn.GRUCell, nn.RNNCell: two linear layers and what is between them."""
    assert isinstance(module, nn.RNNCellBase)
    cell: Cell = _lstm if isinstance(module, nn.LSTMCell) else _gru
    if isinstance(module, nn.RNNCell):
        cell = CELLS[f"RNN_{module.nonlinearity.upper()}"]

    def forward(x: Tensor, hx: Any = None) -> Any:
        if x.ndim != 2:
            raise InvalidValue(f"A recurrent cell was given {tuple(x.shape)}; give it [examples, width].")
        if hx is None:
            hx = x.new_zeros(x.shape[0], module.hidden_size)
            hx = (hx, hx) if cell is _lstm else hx
        state = tuple(hx) if cell is _lstm else (hx,)
        inputs = linear.use(tape, x, module.weight_ih, module.bias_ih)
        after = cell(inputs, linear.use(tape, state[0], module.weight_hh, module.bias_hh), state)
        return after if cell is _lstm else after[0]

    return forward


LAYERS: dict[Any, Forward] = {
    nn.LSTM.forward: recurrent, nn.GRU.forward: recurrent, nn.RNN.forward: recurrent,
    nn.LSTMCell.forward: one_position, nn.GRUCell.forward: one_position, nn.RNNCell.forward: one_position,
}  # fmt: skip
