"""Many models at once, each on its own random half of the data."""

from discreet.attack.membership.shadow.train import Shadows, halves, train_shadows

__all__ = ["Shadows", "halves", "train_shadows"]
