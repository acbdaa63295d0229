"""Features that cost no privacy: maps fixed before any data is seen, each example by itself."""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    from discreet.errors import MissingExtra

    raise MissingExtra("torch", "torch", "Features of images") from None

from discreet.learn.features.scatter import Scattering, normalise, scatter

__all__ = ["Scattering", "normalise", "scatter"]
