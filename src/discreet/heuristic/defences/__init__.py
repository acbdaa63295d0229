"""Defences of a model against membership inference that prove nothing: each changes a recipe, and claims `NonPrivate`.

defended.py      a recipe with its claim
settings.py      weight decay, label smoothing
stopping.py      early stopping
adversarial.py   adversarial regularisation
relax.py         RelaxLoss
selena.py        SELENA: rows labelled by models that never saw them
masking.py       outputs masked as MemGuard does
"""

from discreet.heuristic.defences.adversarial import adversarial_regularisation
from discreet.heuristic.defences.defended import Defended
from discreet.heuristic.defences.masking import Mask, masked_outputs
from discreet.heuristic.defences.relax import relax_loss
from discreet.heuristic.defences.selena import selena
from discreet.heuristic.defences.settings import l2, label_smoothing
from discreet.heuristic.defences.stopping import early_stopping

__all__ = [
    "Defended",
    "Mask",
    "adversarial_regularisation",
    "early_stopping",
    "l2",
    "label_smoothing",
    "masked_outputs",
    "relax_loss",
    "selena",
]
