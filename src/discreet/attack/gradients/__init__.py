"""What a gradient gives away: the rows of a batch, read out of one update.

    run.py           which attack fits, and the result
    update.py        the update, checked against the model; network.py: gradients of rows, and how well they explain it
    labels.py        which labels the batch had
    closed.py        one row, in closed form
    sparse.py        whole batches of a ReLU network on tables, exactly
    convolutions.py  images of a ReLU convolutional network, exactly for one; last.py: what the last layer shows of each row
    matching.py      rows found by optimisation: second order, or cosine distance and total variation
    federated.py     rows of one client of federated averaging; text.py: token sequences of a transformer
    server.py        weights with which a malicious server singles rows out; estimate.py: how many rows there were
    tables.py        tables by an ensemble, with the doubt of each cell; layout.py: how columns lie in a row
    result.py        recovered rows, how sure, and evidence; page.py: beside the originals, for the owner of the data

`discreet.attack.gradients` is this package and also the function: `discreet.attack.gradients(model, update, batch=…)`.
"""

import sys
from types import ModuleType
from typing import Any

from discreet.attack.gradients.result import Inversion
from discreet.attack.gradients.run import gradients

__all__ = ["Inversion", "gradients"]


class _Callable(ModuleType):
    """So that `discreet.attack.gradients(…)` attacks."""

    __module__ = ModuleType.__module__  # what is looked up on a module: else it would say that it was made in itself

    def __call__(self, *args: Any, **named: Any) -> Inversion:
        return gradients(*args, **named)


sys.modules[__name__].__class__ = _Callable
