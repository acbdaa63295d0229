"""What is asked of a library of homomorphic encryption, and the one that answers: SEAL, through TenSEAL's low-level binding.

`Cipher` is the whole interface between layouts and library: sums, products, rescaling, rotations of packed ciphertexts. The
layouts (`scoring`, `training`, `sums`) use nothing else, so that another library needs one class.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.crypto.frames import has_form, unpacked, unpacked_size
from discreet.crypto.parameters import RingParameters
from discreet.errors import InvalidDocument, InvalidValue, MissingExtra


class Cipher(Protocol):
    """Operations on ciphertexts of one ring, all that layouts use. None of them needs a secret key."""

    parameters: RingParameters
    moduli: list[int]

    def level(self, ciphertext: Any) -> int: ...
    def encode(self, values: Any, level: int, scale: float) -> Any: ...
    def add(self, one: Any, other: Any) -> Any: ...
    def add_to(self, total: Any, other: Any) -> Any: ...
    def subtract(self, one: Any, other: Any) -> Any: ...
    def add_plain(self, one: Any, value: Any) -> Any: ...
    def multiply(self, one: Any, other: Any) -> Any: ...
    def multiply_plain(self, one: Any, plain: Any) -> Any: ...
    def inner(self, pairs: Iterable[tuple[Any, Any]]) -> Any: ...
    def inner_plain(self, pairs: Iterable[tuple[Any, Any]]) -> Any: ...
    def relinearize(self, product: Any, keys: Any) -> Any: ...
    def rescale(self, product: Any) -> Any: ...
    def lower(self, ciphertext: Any, level: int) -> Any: ...
    def automorphism(self, ciphertext: Any, element: int, keys: Any) -> Any: ...
    def to_bytes(self, item: Any) -> bytes: ...
    def from_bytes(self, kind: str, data: bytes, *, keys: int = 1) -> Any: ...


def _library() -> Any:
    try:
        import tenseal.sealapi as library
    except ImportError:
        raise MissingExtra("tenseal", "fhe", "Computing on packed ciphertexts") from None
    return library


ENGINES = ("tenseal", "seal-python")


def importable() -> str:
    """The first engine that can be imported; tenseal, with the command that installs it, where none can."""
    for name, module in zip(ENGINES, ("tenseal.sealapi", "seal"), strict=True):
        try:
            import_module(module)
        except ImportError:
            continue
        return name
    return ENGINES[0]


@lru_cache(maxsize=8)
def open_cipher(parameters: RingParameters, engine: str) -> Seal:
    """The ring of these parameters in this engine; made once."""
    if engine == "seal-python":
        from discreet.crypto.second import SealPython

        return SealPython(parameters)
    return Seal(parameters)


class Seal:
    """SEAL's ring: encoding, arithmetic and serialisation. Methods return new ciphertexts unless they say otherwise."""

    name = "tenseal"

    def __init__(self, parameters: RingParameters) -> None:
        self.parameters = parameters
        self._open(parameters)
        self.ids, self.moduli = _chain(self.context)
        self.mode = saved(self.library.Plaintext())[5]  # how it compresses what it writes

    def _open(self, parameters: RingParameters) -> None:
        self.library = _library()
        self.module = str(import_module(self.library.Ciphertext.__module__).__file__)  # which brings the decoder
        kinds = self.library.SCHEME_TYPE
        asked = self.library.EncryptionParameters(kinds.CKKS if parameters.scheme == "ckks" else kinds.BFV)
        asked.set_poly_modulus_degree(parameters.degree)
        asked.set_coeff_modulus(self.library.CoeffModulus.Create(parameters.degree, list(parameters.primes)))
        if parameters.scheme == "bfv":
            self.plain = self.library.PlainModulus.Batching(parameters.degree, parameters.scale_bits)
            asked.set_plain_modulus(self.plain)
        self.context = self.library.SEALContext(asked, True, self.library.SEC_LEVEL_TYPE.TC128)
        if not self.context.parameters_set():  # SEAL checks the same table again
            raise InvalidValue(f"SEAL refuses the parameters {parameters}: {self.context.parameters_error_message()}.")
        self.evaluator = self.library.Evaluator(self.context)
        coder = self.library.CKKSEncoder if parameters.scheme == "ckks" else self.library.BatchEncoder
        self.coder = coder(self.context)

    def empty(self) -> Any:
        """A ciphertext for a result."""
        return self.library.Ciphertext()

    def level(self, ciphertext: Any) -> int:
        """How many times it was rescaled."""
        return self.ids.index(list(ciphertext.parms_id()))

    def encode(self, values: Any, level: int, scale: float) -> Any:
        """Approximate numbers as a plaintext: one for all slots, or an array of at most `slots`, real or complex."""
        plain = self.library.Plaintext()
        if isinstance(values, np.ndarray):
            values = values.tolist()
        self.coder.encode(values, self.ids[level], float(scale), plain)
        return plain

    def encode_whole(self, numbers: NDArray[np.int64]) -> Any:
        """Whole numbers as a plaintext, at most `slots` of them (BFV)."""
        plain = self.library.Plaintext()
        self.coder.encode(numbers.tolist(), plain)
        return plain

    def decode(self, plain: Any) -> NDArray[np.complex128]:
        return np.asarray(self.coder.decode_complex(plain))

    def decode_whole(self, plain: Any) -> NDArray[np.int64]:
        return np.asarray(self.coder.decode_int64(plain), np.int64)

    def make_keys(self, relin: bool, elements: Sequence[int]) -> tuple[Any, Any, Any, Any]:
        """A new secret key, its public key, and keys to relinearise and for these automorphisms, or None."""
        maker, public, switch, galois = self.library.KeyGenerator(self.context), self.library.PublicKey(), None, None
        maker.create_public_key(public)
        if relin:
            switch = self.library.RelinKeys()
            maker.create_relin_keys(switch)
        if elements:
            galois = self.library.GaloisKeys()
            maker.create_galois_keys(list(elements), galois)
        return maker.secret_key(), public, switch, galois

    def encrypt(self, public: Any, plain: Any) -> Any:
        result = self.empty()
        self.library.Encryptor(self.context, public).encrypt(plain, result)
        return result

    def encryptor(self, public: Any, secret: Any) -> Any:
        """What encrypts by the secret key."""
        return self.library.Encryptor(self.context, secret)

    def decryptor(self, secret: Any) -> Any:
        return self.library.Decryptor(self.context, secret)

    def encrypt_symmetric(self, encryptor: Any, plain: Any) -> Any:
        result = self.empty()
        encryptor.encrypt_symmetric(plain, result)
        return result

    def seeded(self, encryptor: Any, plain: Any) -> bytes:
        """The same as bytes to send, with a seed in place of the uniform half where the binding can do that."""
        return saved(encryptor.encrypt_symmetric(plain))

    def decrypt(self, decryptor: Any, ciphertext: Any) -> Any:
        result = self.library.Plaintext()
        decryptor.decrypt(ciphertext, result)
        return result

    def noise_budget(self, decryptor: Any, ciphertext: Any) -> int:
        return int(decryptor.invariant_noise_budget(ciphertext))

    def add(self, one: Any, other: Any) -> Any:
        result = self.empty()
        self._checked(self.evaluator.add, one, other, result)
        return result

    def add_to(self, total: Any, other: Any) -> Any:
        """In place."""
        self._checked(self.evaluator.add_inplace, total, other)
        return total

    def inner(self, pairs: Iterable[tuple[Any, Any]]) -> Any:
        """The sum of products of ciphertexts, in three parts; None where there are no pairs."""
        return self._summed(self.evaluator.multiply, pairs)

    def inner_plain(self, pairs: Iterable[tuple[Any, Any]]) -> Any:
        """The sum of ciphertexts times plaintexts; None where there are no pairs."""
        return self._summed(self.evaluator.multiply_plain, pairs)

    def _summed(self, multiply: Any, pairs: Iterable[tuple[Any, Any]]) -> Any:
        total, product = None, self.empty()
        for one, other in pairs:
            if total is None:
                total = self.empty()
                self._checked(multiply, one, other, total)
                continue
            self._checked(multiply, one, other, product)
            self._checked(self.evaluator.add_inplace, total, product)
        return total

    def subtract(self, one: Any, other: Any) -> Any:
        result = self.empty()
        self._checked(self.evaluator.sub, one, other, result)
        return result

    def add_plain(self, one: Any, value: Any) -> Any:
        """`value` is encoded to the ciphertext's own level and scale."""
        result = self.empty()
        self._checked(self.evaluator.add_plain, one, self.encode(value, self.level(one), one.scale), result)
        return result

    def multiply(self, one: Any, other: Any) -> Any:
        """The product of two, in three parts until it is relinearised."""
        result = self.empty()
        self._checked(self.evaluator.multiply, one, other, result)
        return result

    def multiply_plain(self, one: Any, plain: Any) -> Any:
        result = self.empty()
        self._checked(self.evaluator.multiply_plain, one, plain, result)
        return result

    def relinearize(self, product: Any, keys: Any) -> Any:
        """In place: three parts become two."""
        self._checked(self.evaluator.relinearize_inplace, product, keys)
        return product

    def rescale(self, product: Any) -> Any:
        """In place: the scale and the modulus lose the last prime."""
        if self.level(product) >= self.parameters.levels:
            raise self._exhausted()
        self._checked(self.evaluator.rescale_to_next_inplace, product)
        return product

    def _exhausted(self) -> InvalidValue:
        return InvalidValue(
            f"The ciphertext has no level left: these parameters allow {self.parameters.levels} multiplications in a row. "
            "Refresh it through the key holder, or choose parameters with more primes."
        )

    def lower(self, ciphertext: Any, level: int) -> Any:
        """The same numbers at a later level."""
        if self.level(ciphertext) == level:
            return ciphertext
        result = self.empty()
        self._checked(self.evaluator.mod_switch_to, ciphertext, self.ids[level], result)
        return result

    def automorphism(self, ciphertext: Any, element: int, keys: Any) -> Any:
        result = self.empty()
        self._checked(self.evaluator.apply_galois, ciphertext, element, keys, result)
        return result

    def rotate(self, ciphertext: Any, steps: int, keys: Any) -> Any:
        """Slot i + steps goes to slot i."""
        return self.automorphism(ciphertext, self.rotation(steps), keys)

    def rotation(self, steps: int) -> int:
        """The automorphism that rotates by so many steps."""
        return pow(3, steps % (self.parameters.degree // 2), 2 * self.parameters.degree)

    def _checked(self, operation: Any, *arguments: Any) -> None:
        try:
            operation(*arguments)
        except (ValueError, RuntimeError, IndexError) as problem:  # SEAL names levels, scales and keys that do not fit
            if "scale out of bounds" in str(problem):
                raise self._exhausted() from problem
            raise InvalidValue(
                f"These ciphertexts cannot be combined: {problem}. Levels, scales and keys must be those of one computation."
            ) from problem

    def to_bytes(self, item: Any) -> bytes:
        """A key or a ciphertext as SEAL writes it."""
        return saved(item)

    def from_bytes(self, kind: str, data: bytes, *, keys: int = 1) -> Any:
        """A key or a ciphertext that SEAL finds valid for this ring; `keys` is how many rotation keys there may be.

        SEAL compresses, unpacks whatever it is given, and believes the sizes inside: those are looked at beforehand (`frames`).
        """
        whole, name = self._whole(kind, data, keys), _NAMES.get(kind, kind)
        if whole is None:
            raise InvalidDocument(f"A {name} is damaged, or larger than these parameters allow. Send it again.")
        handle, path = _scratch()
        try:
            with open(path, "wb") as file:
                file.write(whole)
            if whole[5] != self.mode and whole[5]:
                raise ValueError("compressed, which this engine does not write")
            item = self.empty() if kind == "Ciphertext" else getattr(self.library, kind)()
            item.load(self.context, path)
            return item
        except Exception as problem:  # damaged data makes the library raise whatever its binding turns it into
            raise InvalidDocument(
                f"A {name} does not belong to these parameters, or is damaged. Use files of one keygen."
            ) from problem
        finally:
            _drop(handle, path)

    def _whole(self, kind: str, data: bytes, keys: int) -> bytes | bytearray | None:
        """The data without compression, if its sizes are those of these parameters; as it is where it cannot be unpacked."""
        most = {"GaloisKeys": keys, "RelinKeys": 1}.get(kind, 0) * self.parameters.key_bytes
        most += 3 * len(self.parameters.primes) * self.parameters.degree * 8 + (1 << 16)
        size = unpacked_size(data)
        whole = unpacked(data, size, self.module) if size is not None and size <= most else None
        if whole is None or whole[5]:
            return whole
        form = (self.parameters.degree, len(self.parameters.primes), keys, self.parameters.scheme == "ckks")
        return whole if has_form(whole, kind, *form) else None


_NAMES = {
    "Ciphertext": "ciphertext", "SecretKey": "secret key", "PublicKey": "public key",
    "RelinKeys": "key for relinearisation", "GaloisKeys": "set of rotation keys",
}  # fmt: skip


def _chain(context: Any) -> tuple[list[list[int]], list[int]]:
    """The ids of the levels, first to last, and the primes of the first."""
    ids, data = [], context.first_context_data()
    moduli = [prime.value() for prime in data.parms().coeff_modulus()]
    while data is not None:
        ids.append(list(data.parms_id()))
        data = data.next_context_data()
    return ids, moduli


def saved(item: Any) -> bytes:
    """A key or a ciphertext as its library writes it, without touching a disk where the system allows that."""
    handle, path = _scratch()
    try:
        item.save(path)
        with open(path, "rb") as file:
            return file.read()
    finally:
        _drop(handle, path)


def _scratch() -> tuple[int, str]:
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("discreet")
        return handle, f"/proc/self/fd/{handle}"
    return tempfile.mkstemp()  # pragma: no cover - other systems


def _drop(handle: int, path: str) -> None:
    os.close(handle)
    if not path.startswith("/proc/"):  # pragma: no cover - other systems
        os.unlink(path)


def numbers(name: str, values: Any, dimensions: Sequence[int]) -> NDArray[np.float64]:
    """An array of finite numbers with one of these dimensions; its values never stand in the message."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise InvalidValue(f"{name} must be numbers; found something else. Encode categories as numbers first.") from None
    if array.ndim not in dimensions or array.size == 0:
        wanted = " or ".join(map(str, dimensions))
        raise InvalidValue(f"{name} must be a filled array of {wanted} dimensions; found shape {array.shape}.")
    if not np.isfinite(array).all():
        raise InvalidValue(f"{name} must be finite; found NaN or infinity. Nothing was encrypted.")
    return array
