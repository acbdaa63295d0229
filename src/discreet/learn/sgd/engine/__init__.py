"""Clipped sums of per-unit gradients in one forward and one backward.

tape.py      what one step keeps: a record per use of a layer, and what may be asked of it
engine.py    arms a model's layers, runs the backward, clips, and adds into one flat buffer
layers/      a file per family: its forward, its records, their norms and sums
fallback.py  any other module, through torch.func
probe.py     refuses models whose examples influence each other
"""

from discreet.learn.sgd.engine.engine import Engine

__all__ = ["Engine"]
