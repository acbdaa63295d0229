"""ReLU networks by cryptanalytic extraction (Carlini, Jagielski and Mironov 2020).

search.py    bends along lines, and the hyperplanes through them
layers.py    units, signs and weights, layer by layer
network.py   the network that is stolen
run.py       steal_relu
"""

from discreet.attack.stealing.relu.network import StolenRelu
from discreet.attack.stealing.relu.run import steal_relu

__all__ = ["StolenRelu", "steal_relu"]
