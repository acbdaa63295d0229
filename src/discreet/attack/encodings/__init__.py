"""Breaks of encodings that hide pictures by mixing. numpy and scipy suffice."""

from discreet.attack.encodings.run import Compared, Decoded, EncodingsAttack

__all__ = ["Compared", "Decoded", "EncodingsAttack"]
