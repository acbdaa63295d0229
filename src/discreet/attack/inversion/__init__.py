"""Attacks that run a model backwards."""

from discreet.attack.inversion.attribute import AttributeInference, Inference, infer
from discreet.attack.inversion.classes import ClassInversion, PicturePrior, Recreated

__all__ = ["AttributeInference", "ClassInversion", "Inference", "PicturePrior", "Recreated", "infer"]
