"""Features for private learning: maps fixed before any data is seen, which cost nothing, and a mean that costs little."""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    from discreet.errors import MissingExtra

    raise MissingExtra("torch", "torch", "Features of images") from None

from discreet.learn.features.mean import Centre, private_mean
from discreet.learn.features.prior import learn_prior
from discreet.learn.features.processes import random_images
from discreet.learn.features.scatter import Scattering, normalise, scatter

__all__ = ["Centre", "Scattering", "learn_prior", "normalise", "private_mean", "random_images", "scatter"]
