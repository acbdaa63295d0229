"""Computing on what nobody can read: the one-time pad, learning with errors, packed ciphertexts, private set intersection.

Encryption protects what a machine *sees*; it says nothing about what the decrypted answer reveals. Names are loaded
when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.crypto import circuits, lwe, shares, sums
    from discreet.crypto.accuracy import error_bound
    from discreet.crypto.conversion import convert
    from discreet.crypto.disclosure import disclose
    from discreet.crypto.intersection import IntersectionSize, LookupServer, Party, Question, intersect
    from discreet.crypto.keys import PublicContext, SecretContext, key_memory, keygen
    from discreet.crypto.model import Model
    from discreet.crypto.packed import Encrypted, decrypt, encrypt
    from discreet.crypto.pad import OneTimePad, possible_messages, secrecy, tamper, xor
    from discreet.crypto.parameters import RingParameters
    from discreet.crypto.reuse import LetterModel, drag, separate
    from discreet.crypto.scoring import Scorer
    from discreet.crypto.security import security_bits
    from discreet.crypto.training import fit_logistic

_HOME = {name: module for module, names in {
    "accuracy": "error_bound",
    "conversion": "convert",
    "disclosure": "disclose",
    "intersection": "IntersectionSize LookupServer Party Question intersect",
    "keys": "PublicContext SecretContext key_memory keygen",
    "model": "Model",
    "packed": "Encrypted decrypt encrypt",
    "pad": "OneTimePad possible_messages secrecy tamper xor",
    "parameters": "RingParameters",
    "reuse": "LetterModel drag separate",
    "scoring": "Scorer",
    "security": "security_bits",
    "training": "fit_logistic",
}.items() for name in names.split()}  # fmt: skip

__all__ = [
    "Encrypted", "IntersectionSize", "LetterModel", "LookupServer", "Model", "OneTimePad", "Party", "PublicContext",
    "Question", "RingParameters", "Scorer", "SecretContext", "circuits", "convert", "decrypt", "disclose", "drag", "encrypt",
    "error_bound", "fit_logistic", "intersect", "key_memory", "keygen", "lwe", "possible_messages", "secrecy", "security_bits",
    "separate", "shares", "sums", "tamper", "xor",
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
