"""What a model's answers give away of its parameters, and whether one model was made from another.

There are no neighbouring data sets here: a stolen model says nothing about epsilon, and no claim bounds it.

oracle.py        the model as it is asked: queries counted, failures waited for
linear.py        linear, logistic and softmax models by equations
trees.py         decision trees by path finding
relu/            ReLU networks by cryptanalytic extraction
approximate.py   copies that are learned from answers
defences.py      what an interface can hold back
theft.py         was this model fine-tuned from ours?
"""

from discreet.attack.stealing.approximate import Agreement, StolenCopy, steal_approximate
from discreet.attack.stealing.defences import Noisy, RateLimited, Rounded, TopK, TopOne
from discreet.attack.stealing.linear import StolenLinear, steal_linear
from discreet.attack.stealing.oracle import Oracle
from discreet.attack.stealing.relu import StolenRelu, steal_relu
from discreet.attack.stealing.theft import Descent, descended
from discreet.attack.stealing.trees import StolenTree, steal_tree

__all__ = [
    "Agreement",
    "Descent",
    "Noisy",
    "Oracle",
    "RateLimited",
    "Rounded",
    "StolenCopy",
    "StolenLinear",
    "StolenRelu",
    "StolenTree",
    "TopK",
    "TopOne",
    "descended",
    "steal_approximate",
    "steal_linear",
    "steal_relu",
    "steal_tree",
]
