"""The layers with a fast way of their own, by the forward they run."""

from __future__ import annotations

from typing import Any

from discreet.learn.sgd.engine.layers import conv, embedding, linear, norm
from discreet.learn.sgd.engine.tape import Forward

# By `type(module).forward`, not by class: a subclass with a forward of its own is another layer.
KNOWN: dict[Any, Forward] = {**linear.LAYERS, **embedding.LAYERS, **norm.LAYERS, **conv.LAYERS}
