"""Clipped sums of per-unit gradients in one forward and one backward.

tape.py       the records of one step, one per use of a layer
engine.py     arms a model's layers, runs the backward, clips, and adds into one flat buffer
layers/       a file per family: its forward, its records, their norms and sums
tied.py       records that share a parameter are summed before the norm is taken
fallback.py   any other module: its parameters spread over the examples, or through torch.func
compiled.py   which forward runs: eager code instead of torch.compile's graph, recorded operations, autocast's type
tune.py       the fastest of several ways to the same numbers, by measurement
graphed.py    on a GPU, a step recorded once and replayed
probe.py      refuses models whose examples influence one another, in eval and in training mode
gradient_check.py  refuses models whose clipped sum is not that of their units one by one
allocator.py  keeps memory that a step frees for the next one
"""

from discreet.learn.sgd.engine.engine import Engine

__all__ = ["Engine"]
