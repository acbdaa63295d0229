"""Proof that the examples of a batch do not influence each other, for one model, loss and shape of rows.

values.py    what is known of a tensor: public, rows of examples, a sum over them
call.py      one operation with its arguments, and the table of rules
shapes.py    rules for what moves entries about
indices.py   rules for entries that are picked or written by an index
numbers.py   rules for what computes with entries
nets.py      rules for the layers that torch computes in one operation
recurrent.py rules for whole layers that torch would take apart
watcher.py   runs every operation of a trace and holds it against its rule
trace.py     forward and backward on tensors without values, with a symbol for the batch size
recorder.py  the calls of torch's functions in a trace
program.py   the recorded calls, which run in the place of the code
intact.py    whether torch and discreet are as they were installed, and which functions are torch's own
python.py    what the code of model and loss keeps in Python: comparing it, putting it back
look.py      looking around from model and loss; objects.py, contents.py: what an object consists of
code.py      what can be read off code without running it
operations.py operations with kernels in Python, and what looks behind vmap
process.py   what is beside the model in its process: modules, modes, hooks; settings and generators, which are put back
"""

from discreet.learn.sgd.proof.trace import traced
from discreet.learn.sgd.proof.values import NotProven

__all__ = ["NotProven", "traced"]
