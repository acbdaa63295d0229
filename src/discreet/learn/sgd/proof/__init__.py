"""Proof that the examples of a batch do not influence each other, for one model, loss and shape of rows.

values.py    what is known of a tensor: public, rows of examples, a sum over them
call.py      one operation with its arguments, and the table of rules
shapes.py    rules for operations that move entries
indices.py   rules for indexing, gathering and scattering
numbers.py   rules for arithmetic, reductions and products
nets.py      rules for network layers that are one operation in torch
recurrent.py rules for whole layers that torch would decompose
watcher.py   runs every operation of a trace and applies its rule
trace.py     forward and backward on tensors without values, with a symbol for the batch size
recorder.py  the calls of torch's functions in a trace
program.py   the recorded calls, which run instead of the code
intact.py    checks that torch and discreet are as installed, and which functions are torch's own
python.py    the Python state of model and loss: comparing and restoring it
look.py      walks all objects reachable from model and loss; objects.py, contents.py: the parts of an object
code.py      static analysis of bytecode
operations.py operations with kernels in Python, and functions that unwrap vmap's tensors
process.py   process-wide state beside the model: modules, modes, hooks; settings and generators, which are restored
"""

from discreet.learn.sgd.proof.trace import traced
from discreet.learn.sgd.proof.values import NotProven

__all__ = ["NotProven", "traced"]
