"""Computing on what nobody can read: the one-time pad, learning with errors, private set intersection.

Encryption protects what a machine *sees*; it says nothing about what the decrypted answer reveals. Names are loaded
when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.crypto import circuits, lwe
    from discreet.crypto.intersection import Party, intersect
    from discreet.crypto.pad import OneTimePad, possible_messages, secrecy, tamper, xor
    from discreet.crypto.reuse import LetterModel, drag, separate
    from discreet.crypto.security import security_bits

_HOME = {
    "LetterModel": "reuse", "OneTimePad": "pad", "Party": "intersection", "drag": "reuse", "intersect": "intersection",
    "possible_messages": "pad", "secrecy": "pad", "security_bits": "security", "separate": "reuse",
    "tamper": "pad", "xor": "pad",
}  # fmt: skip

__all__ = [
    "LetterModel", "OneTimePad", "Party", "circuits", "drag", "intersect", "lwe", "possible_messages", "secrecy",
    "security_bits", "separate", "tamper", "xor",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"discreet.crypto has no {name!r}; it has {', '.join(__all__)}.")
    if name not in _HOME:
        return import_module(f"discreet.crypto.{name}")
    return getattr(import_module(f"discreet.crypto.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
