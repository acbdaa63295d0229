"""Checks that the layers of a traced step receive their examples along the axis that the engine expects.

The engine attributes gradients by position: examples outermost, along the first axis of a layer's input, or along the second
where a layer works on the last axes alone. It learns which of the two applies, and which inputs all examples share, from the
shapes of made-up rows. Here the layouts come from the trace, which knows the owner of every entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from discreet.learn.sgd.engine.compiled import forward_of
from discreet.learn.sgd.engine.layers import find
from discreet.learn.sgd.proof.values import MIXED, PUBLIC, ROWS, NotProven, Value, known

ANY_ORDER = (nn.Linear.forward, nn.Embedding.forward, nn.LayerNorm.forward, nn.RMSNorm.forward)
ORDERED = (nn.RNNBase, nn.MultiheadAttention)  # told by batch_first where their examples lie
AXIS = "a layer is given its examples in another order than one after the other along its first axis"
BOTH = "a layer is given examples along different axes, or as well something all examples share"


class Armed:
    """The inputs of the layers in one trace."""

    def __init__(self, model: nn.Module, fail: Callable[[str], Any]) -> None:
        self._fail = fail
        self._seen: dict[Any, set[Any]] = {}
        self._names = {module: name for name, module in model.named_modules()}
        self._turned: set[str] = set()  # modules that are given examples, though not outermost along their first axis
        self._odd: set[str] = set()  # layers around which the engine may run a whole module example by example

    def module(self, module: nn.Module) -> Callable[..., Any] | None:
        """The module's forward with a check of its inputs; None if nothing in it is trained."""
        make, whole = find(module)
        if isinstance(module, torch.jit.ScriptModule) or not any(p.requires_grad for p in module.parameters()):
            return None
        plain = module.__dict__.get("forward")
        layer = whole or any(p is not None and p.requires_grad for p in module._parameters.values())
        if layer and make is None:
            self._odd.add(self._names[module])

        def forward(*args: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled():
                self._look(module, layer, make is not None, pytree.tree_leaves((args, kwargs)))
            return forward_of(module)(*args, **kwargs) if plain is None else plain(*args, **kwargs)

        forward.discreet = plain is None  # type: ignore[attr-defined]
        return forward

    def _look(self, module: nn.Module, layer: bool, ours: bool, leaves: list[Any]) -> None:
        try:
            values = [(leaf, known(leaf)) for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim]
        except NotProven as error:
            self._fail(str(error))
            return
        if any(argument.layout is not None and (argument.layout.dim or argument.layout.outer != 1) for _, argument in values):
            self._turned.add(self._names[module])
        if layer and any(argument.kind == PUBLIC for _, argument in values):
            self._odd.add(self._names[module])
        for leaf, value in values if layer else []:
            if why := _odd(module, leaf, value, ours, self._seen):
                self._fail(f"{why} ({type(module).__name__})")

    def close(self) -> None:
        """A module that the engine runs example by example, because of a layer inside it, must receive examples first."""
        for name in self._odd:
            if any(name.startswith(f"{outer}." if outer else "") and outer != name for outer in self._turned):
                self._fail(AXIS)


@contextmanager
def checked(model: nn.Module, fail: Callable[[str], Any]) -> Iterator[None]:
    """A context in which inputs of trained modules are checked; `fail` gets what the engine would misattribute."""
    armed = Armed(model, fail)
    before = {module: module.__dict__.get("forward") for module in model.modules()}
    for module in before:
        if (forward := armed.module(module)) is not None:
            module.__dict__["forward"] = forward
    try:
        yield
        armed.close()
    finally:
        for module, forward in before.items():
            if forward is None:
                module.__dict__.pop("forward", None)
            else:
                module.__dict__["forward"] = forward


def _odd(module: nn.Module, leaf: Tensor, value: Value, ours: bool, places: dict[Any, set[Any]]) -> str | None:
    """How the engine would misread one input tensor of a layer; None if it reads it correctly."""
    layout = value.layout
    if value.kind == MIXED:
        return None
    turns = ours and type(module).forward in ANY_ORDER
    if value.kind == ROWS and layout is not None:
        if layout.outer != 1 or layout.dim > 1 or (layout.dim and layout.inner != 1):
            return AXIS
        if layout.dim and not turns and not isinstance(module, ORDERED):
            return AXIS
    elif value.kind != PUBLIC:
        return AXIS
    where = None if layout is None else (layout.dim, 0 if turns else layout.inner)
    rest = str(tuple(leaf.shape[:1] if layout is not None and layout.dim else leaf.shape[1:]))
    for place in ((module, "shape", rest), *([(module, "axes", leaf.ndim)] if turns and where is not None else [])):
        places.setdefault(place, set()).add(where)
        if len(places[place]) > 1 and not isinstance(module, ORDERED):
            return BOTH
    return None
