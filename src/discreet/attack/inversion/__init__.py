"""Attacks that run a model backwards."""

from discreet.attack.inversion.attribute import AttributeInference, Inference, infer
from discreet.attack.inversion.classes import ClassInversion, PicturePrior, Recreated
from discreet.attack.inversion.share import PropertyInference, Share

__all__ = [
    "AttributeInference",
    "ClassInversion",
    "Inference",
    "PicturePrior",
    "PropertyInference",
    "Recreated",
    "Share",
    "infer",
]
