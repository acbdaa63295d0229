"""Attacks that run a model backwards."""

from discreet.attack.inversion.attribute import AttributeInference, Inference, infer
from discreet.attack.inversion.classes import ClassInversion, Recreated
from discreet.attack.inversion.decoder import DecoderPrior
from discreet.attack.inversion.prior import PicturePrior
from discreet.attack.inversion.share import PropertyInference, Share

__all__ = [
    "AttributeInference",
    "ClassInversion",
    "DecoderPrior",
    "Inference",
    "PicturePrior",
    "PropertyInference",
    "Recreated",
    "Share",
    "infer",
]
