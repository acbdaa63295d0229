"""Proof that the examples of a batch do not influence each other, for one model, loss and shape of rows.

values.py    what is known of a tensor: public, rows of examples, a sum over them
call.py      one operation with its arguments, and the table of rules
shapes.py    rules for what moves entries about
numbers.py   rules for what computes with entries
nets.py      rules for the layers that torch computes in one operation
trace.py     forward and backward on tensors without values, every operation held against its rule
"""

from discreet.learn.sgd.proof.trace import NotProven, traced

__all__ = ["NotProven", "traced"]
