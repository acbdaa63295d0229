"""Clipped sums of per-unit gradients in one forward and one backward.

tape.py       what one step keeps: a record per use of a layer, and what may be asked of it
engine.py     arms a model's layers, runs the backward, clips, and adds into one flat buffer
layers/       a file per family: its forward, its records, their norms and sums
tied.py       records that share a parameter are added up before the norm is taken
fallback.py   any other module: its parameters spread over the examples, or through torch.func
compiled.py   which forward runs: the code and not torch.compile's graph, the recorded operations, autocast's type
tune.py       the fastest of several ways to the same numbers, by measurement
graphed.py    on a GPU, a step recorded once and replayed
probe.py      refuses models whose examples influence each other, in eval and in training mode
gradient_check.py  refuses models whose clipped sum is not that of their units one by one
allocator.py  memory that a step frees is kept for the next one
"""

from discreet.learn.sgd.engine.engine import Engine

__all__ = ["Engine"]
