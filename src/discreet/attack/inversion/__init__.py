"""Attacks that run a model backwards."""

from discreet.attack.inversion.attribute import AttributeInference, Inference, infer

__all__ = ["AttributeInference", "Inference", "infer"]
