"""Clipped sums of per-unit gradients in one forward and one backward.

tape.py       what one step keeps: a record per use of a layer, and what may be asked of it
engine.py     arms a model's layers, runs the backward, clips, and adds into one flat buffer
layers/       a file per family: its forward, its records, their norms and sums
joins.py      records that share a parameter made one
fallback.py   any other module: its parameters spread over the examples, or through torch.func
compiled.py   compiled models run as they were written while a step is recorded
tune.py       the fastest of several ways to the same numbers, by measurement
graphed.py    on a GPU, a step recorded once and replayed
probe.py      refuses models whose examples influence each other
agreement.py  refuses those whose clipped sum is not that of their units one by one
training.py   and those that give a layer other examples in training mode
heap.py       memory that a step frees and the next one needs
"""

from discreet.learn.sgd.engine.engine import Engine

__all__ = ["Engine"]
