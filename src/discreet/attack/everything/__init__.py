"""Every attack beside membership that fits a finished model and what an attacker has of it.

case.py    what is attacked, what the attacker has, what a kind of attack is
parts.py   pictures of classes, hidden columns, shares of the training rows, stealing
run.py     those that fit, one after another: why a part does not fit is said, and one that gives up does not stop the others
text.py    the same for a language model in a folder
"""

from discreet.attack.everything.case import ACCESS, Case, Found, Part
from discreet.attack.everything.parts import PARTS
from discreet.attack.everything.run import Everything, everything

__all__ = ["ACCESS", "PARTS", "Case", "Everything", "Found", "Part", "everything"]
