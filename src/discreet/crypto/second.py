"""The second engine: SEAL through seal-python, for the same layouts.

It binds SEAL 4.4, whose files neither read nor are read by the SEAL of TenSEAL: keys say which engine made them. Where the two
bindings differ: seal-python sends no seed in place of the uniform half of a ciphertext, so that requests take twice the
bytes; it encodes at the first level only; and it makes keys for rotations but not for every automorphism, which is why
`training`, whose tree needs X -> X^5, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.crypto.engine import Seal, saved
from discreet.crypto.parameters import RingParameters
from discreet.errors import InvalidValue, MissingExtra


def _library() -> Any:
    try:
        import seal as library
    except ImportError:
        raise MissingExtra("seal-python", "seal", "Computing with keys of the engine seal-python") from None
    return library


class Held:
    """A ciphertext with its scale as an attribute, as layouts read and set it."""

    __slots__ = ("raw",)

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    @property
    def scale(self) -> float:
        return float(self.raw.scale())

    @scale.setter
    def scale(self, value: float) -> None:
        self.raw.scale(float(value))

    def size(self) -> int:
        return int(self.raw.size())

    def parms_id(self) -> list[int]:
        return list(self.raw.parms_id())

    def save(self, path: str) -> None:
        self.raw.save(path)

    def load(self, context: Any, path: str) -> None:
        self.raw.load(context, path)


class _Evaluator:
    """SEAL's evaluator with a place for the result, as TenSEAL's has it."""

    def __init__(self, evaluator: Any) -> None:
        self._evaluator = evaluator

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._evaluator, name)

        def call(*arguments: Any) -> None:
            given = [item.raw if isinstance(item, Held) else item for item in arguments]
            if name.endswith("_inplace"):
                operation(*given)
            else:
                arguments[-1].raw = operation(*given[:-1])

        return call


class SealPython(Seal):
    """The ring, through seal-python."""

    name = "seal-python"

    def _open(self, parameters: RingParameters) -> None:
        self.library = library = _library()
        self.module = str(library.__file__)
        kind = library.scheme_type.ckks if parameters.scheme == "ckks" else library.scheme_type.bfv
        asked = library.EncryptionParameters(kind)
        asked.set_poly_modulus_degree(parameters.degree)
        asked.set_coeff_modulus(library.CoeffModulus.Create(parameters.degree, list(parameters.primes)))
        if parameters.scheme == "bfv":
            asked.set_plain_modulus(library.PlainModulus.Batching(parameters.degree, parameters.scale_bits))
        self.context = library.SEALContext(asked, True, library.sec_level_type.tc128)
        if not self.context.parameters_set():  # SEAL checks the same table again
            raise InvalidValue(f"SEAL refuses the parameters {parameters}: {self.context.parameter_error_message()}.")
        self.evaluator = _Evaluator(library.Evaluator(self.context))
        self._plain_evaluator = library.Evaluator(self.context)
        self.coder = (library.CKKSEncoder if parameters.scheme == "ckks" else library.BatchEncoder)(self.context)

    def empty(self) -> Any:
        return Held(self.library.Ciphertext())

    def encode(self, values: Any, level: int, scale: float) -> Any:
        coded = self.coder.encode_complex if np.iscomplexobj(values) else self.coder.encode
        given = np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values
        plain = coded(given if isinstance(given, np.ndarray) else float(np.real(given)), float(scale))
        return plain if not level else self._plain_evaluator.mod_switch_to(plain, self.ids[level])

    def encode_whole(self, numbers: NDArray[np.int64]) -> Any:
        return self.coder.encode(np.ascontiguousarray(numbers, np.int64))

    def decode_whole(self, plain: Any) -> NDArray[np.int64]:
        return np.asarray(self.coder.decode(plain), np.int64)

    def make_keys(self, relin: bool, elements: Sequence[int]) -> tuple[Any, Any, Any, Any]:
        steps = {pow(3, step, 2 * self.parameters.degree): step for step in range(1, self.parameters.degree // 2)}
        steps[2 * self.parameters.degree - 1] = 0  # as SEAL calls conjugation
        if any(element not in steps for element in elements):
            raise InvalidValue(
                "The engine seal-python makes no keys for the automorphisms that training needs. Use the engine tenseal."
            )
        maker, galois = self.library.KeyGenerator(self.context), None
        if elements:
            galois = self.library.GaloisKeys()
            maker.create_galois_keys([steps[element] for element in elements], galois)
        return maker.secret_key(), maker.create_public_key(), maker.create_relin_keys() if relin else None, galois

    def encrypt(self, public: Any, plain: Any) -> Any:
        return Held(self.library.Encryptor(self.context, public).encrypt(plain))

    def encrypt_symmetric(self, encryptor: Any, plain: Any) -> Any:
        return Held(encryptor.encrypt_symmetric(plain))

    def seeded(self, encryptor: Any, plain: Any) -> bytes:
        return saved(self.encrypt_symmetric(encryptor, plain))

    def decrypt(self, decryptor: Any, ciphertext: Any) -> Any:
        return decryptor.decrypt(ciphertext.raw)

    def noise_budget(self, decryptor: Any, ciphertext: Any) -> int:
        return int(decryptor.invariant_noise_budget(ciphertext.raw))
