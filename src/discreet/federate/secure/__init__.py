"""A secure sum: the server learns the sum of its clients' numbers and no client's own (Bonawitz et al. 2017, Bell et al. 2020).

    plan.py      what all parties agree on beforehand: SecureSum, its fixed point and its thresholds
    graph.py     who masks with whom, and how likely such a graph fails or gives a client away, computed
    shamir.py    shares of 256-bit secrets
    masks.py     keys that two clients share, and the masks that follow from them
    messages.py  signed messages of one round, as bytes
    client.py    the four messages of a client
    server.py    the four stages of the server

A secure sum hides who contributed what. It does not hide the sum, and gives no claim by itself: the sum of a round with the
client and without it differ by what the client sent.
"""

from discreet.federate.secure.client import SumClient
from discreet.federate.secure.graph import GraphBounds, graph_bounds, sparse_graph
from discreet.federate.secure.messages import Identity
from discreet.federate.secure.plan import SecureSum
from discreet.federate.secure.server import SumServer

__all__ = ["GraphBounds", "Identity", "SecureSum", "SumClient", "SumServer", "graph_bounds", "sparse_graph"]
