"""Recurrent layers: an input projection over all positions at once, and a recurrent one over the hidden states.

`scan` computes the hidden states position by position; inputs and gradients of the weights are recorded for all positions
together, so that a layer is two linear records and not two for every position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from discreet.errors import InvalidValue
from discreet.learn.sgd.engine.compiled import casted
from discreet.learn.sgd.engine.layers import linear
from discreet.learn.sgd.engine.layers.scan import scan
from discreet.learn.sgd.engine.tape import Forward, Tape

State = tuple[Tensor, ...]  # the hidden state, and the cell of an LSTM
Cell = Callable[[Tensor, Tensor, State], State]  # projections of input and of hidden state, state before: state after


class _Watched(torch.autograd.Function):
    """A weight's output at one position, whose gradient is also recorded."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, weight: Tensor, record: Projected, position: int) -> Tensor:
        ctx.record, ctx.position = record, position
        return y.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        ctx.record.gradients[ctx.position] = gradient
        return (gradient if ctx.needs_input_grad[0] else None), None, None, None


class Projected(linear.LinearRecord):
    """A weight used once for every position, of an LSTM whose hidden state is projected."""

    def __init__(self, tape: Tape, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(tape, *(p if p is not None and p.requires_grad else None for p in (weight, bias)))
        self._weight, self._bias = weight.detach(), None if bias is None else bias.detach()
        self._met: dict[int, Tensor] = {}
        self.gradients: dict[int, Tensor] = {}
        if self.parameters:
            tape.add(self)

    def __call__(self, x: Tensor, position: int) -> Tensor:
        self._met[position] = casted(x)[0].detach()
        y = F.linear(x, self._weight, self._bias)
        return _Watched.apply(y, self.parameters[0], self, position) if self.parameters else y

    def reached(self) -> bool:
        if self.gradients:
            nothing = torch.zeros_like(next(iter(self.gradients.values())))
            positions = range(len(self._met))
            self.x = torch.stack([self._met[t] for t in positions], 1)
            self.gradient = torch.stack([self.gradients.get(t, nothing) for t in positions], 1)
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
        suffixes = ("", "_reverse")[: 2 if module.bidirectional else 1]
        run = _projected if getattr(module, "proj_size", 0) else _scanned
        for layer in range(module.num_layers):
            names = [f"_l{layer}{suffix}" for suffix in suffixes]
            states = [tuple(state[len(ends) + place] for state in before) for place in range(len(names))]
            outputs, last = run(module, tape, names, x, states)
            ends += last
            x = torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0]
            if module.dropout and layer < module.num_layers - 1:
                x = F.dropout(x, module.dropout, module.training)
        final = tuple(torch.stack(parts) for parts in zip(*ends))
        return (x if module.batch_first else x.transpose(0, 1)), final if module.mode == "LSTM" else final[0]

    return forward


Layer = tuple[list[Tensor], list[State]]  # of each direction: its outputs [examples, positions, width], its last state


def _scanned(module: nn.RNNBase, tape: Tape, names: Sequence[str], x: Tensor, states: Sequence[State]) -> Layer:
    """Both directions of one layer over all positions."""
    inputs, records = [], []
    for name in names:
        inputs.append(linear.use(tape, x, *_parameters(module, name, "ih")))
        trained = [p if p is not None and p.requires_grad else None for p in _parameters(module, name, "hh")]
        record = linear.LinearRecord(tape, *trained)
        records.append(record)
        if record.parameters:
            tape.add(record)
    weights, biases = zip(*(_parameters(module, name, "hh") for name in names))
    backwards = [name.endswith("reverse") for name in names]
    return scan(module.mode, inputs, states, weights, biases, backwards, records)


def _parameters(module: nn.RNNBase, name: str, which: str) -> tuple[Tensor, Tensor | None]:
    return getattr(module, f"weight_{which}{name}"), getattr(module, f"bias_{which}{name}", None)


def _projected(module: nn.RNNBase, tape: Tape, names: Sequence[str], x: Tensor, states: Sequence[State]) -> Layer:
    """The same for an LSTM with proj_size, position by position through autograd."""
    outputs, ends = [], []
    for name, state in zip(names, states):
        inputs = linear.use(tape, x, *_parameters(module, name, "ih"))
        hidden = Projected(tape, *_parameters(module, name, "hh"))
        short = Projected(tape, getattr(module, f"weight_hr{name}"), None)
        steps, hiddens = inputs.unbind(1), dict[int, Tensor]()
        for t in range(x.shape[1])[:: -1 if name.endswith("reverse") else 1]:
            state = _lstm(steps[t], hidden(state[0], t), state)
            state = (short(state[0], t), state[1])
            hiddens[t] = state[0]
        outputs.append(torch.stack([hiddens[t] for t in range(x.shape[1])], 1))
        ends.append(state)
    return outputs, ends


def _first(module: nn.RNNBase, x: Tensor, initial: Any) -> State:
    """The states before the first position, each [layers x directions, examples, width]."""
    if initial is not None:
        return tuple(initial) if module.mode == "LSTM" else (initial,)
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
