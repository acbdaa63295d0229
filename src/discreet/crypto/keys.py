"""Keys of packed ciphertexts. The secret and the public side are two types, and only the public one can be sent.

`PublicContext` is what the computing machine gets: parameters, the public key, and the keys for relinearisation and
rotations. It decrypts nothing. `SecretContext` stays with the key holder: it is not pickled, its file can be read by its owner
alone, and nothing in discreet writes it anywhere else.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.core.document import members
from discreet.crypto.container import pack, read_file, unpack, write_file
from discreet.crypto.engine import ENGINES, Seal, importable, open_cipher
from discreet.crypto.packing import randomly_rounded
from discreet.crypto.parameters import PURPOSES, RingParameters
from discreet.crypto.private import Private
from discreet.errors import InvalidDocument, InvalidValue

__all__ = ["PublicContext", "SecretContext", "key_memory", "keygen"]

_HEADER = ("engine", "purpose", "features", "parameters", "key")
RELINEARISED = ("logistic", "network", "training")


def automorphisms(purpose: str, features: int, parameters: RingParameters) -> list[int]:
    """The automorphisms that a purpose needs: each is a rotation key."""
    if purpose == "training":
        count = (parameters.degree // 2).bit_length() - 1
        return [2 ** (place + 1) + 1 for place in range(1, count + 1)] + [2 * parameters.degree - 1]
    if purpose == "sum":
        return []
    whole = not parameters.levels  # a row in coefficients is summed over all automorphisms
    steps = (1 << place for place in range(((parameters.slots if whole else block(features)) - 1).bit_length()))
    return [pow(3, step, 2 * parameters.degree) for step in steps] + [2 * parameters.degree - 1] * whole


def block(features: int) -> int:
    """Slots that one row takes: the next power of two."""
    return 1 << max(0, features - 1).bit_length()


def key_memory(purpose: str, *, features: int) -> int:
    """Bytes that the public context will take, before any key is made: one key for each rotation, and one to relinearise.

    >>> key_memory("linear", features=784) < key_memory("logistic", features=784) < 100_000_000
    True
    """
    parameters = _purpose(purpose, features)
    count = len(automorphisms(purpose, features, parameters)) + (purpose in RELINEARISED)
    return count * parameters.key_bytes + 2 * len(parameters.primes) * parameters.degree * 8


def _purpose(purpose: str, features: int) -> RingParameters:
    parameters = PURPOSES[check.word("purpose", purpose, tuple(PURPOSES))]
    check.whole("features", features)
    if purpose != "sum" and features > parameters.slots:
        raise InvalidValue(
            f"A row of {features} features does not fit the {parameters.slots} slots of a ciphertext. Use fewer features."
        )
    return parameters


class PublicContext:
    """What the computing machine gets. It encrypts and computes, and decrypts nothing."""

    __slots__ = ("cipher", "features", "galois", "id", "parameters", "public", "purpose", "relin")

    def __init__(self, purpose: str, features: int, cipher: Seal, public: Any, relin: Any, galois: Any) -> None:
        self.purpose, self.features, self.cipher, self.parameters = purpose, features, cipher, cipher.parameters
        self.public, self.relin, self.galois = public, relin, galois
        self.id = hashlib.sha256(cipher.to_bytes(public)).hexdigest()[:32]

    def __reduce__(self) -> Any:
        raise InvalidValue("A public context is not pickled; send what to_bytes() returns.")

    def __repr__(self) -> str:
        return f"PublicContext({self.purpose}, {self.features} features, key {self.id[:8]})"

    def to_bytes(self) -> bytes:
        """What may be sent: no part of it helps to decrypt."""
        cipher = self.cipher
        parts = [cipher.to_bytes(self.public)]
        parts += [b"" if keys is None else cipher.to_bytes(keys) for keys in (self.relin, self.galois)]
        return pack("public-key", _header(self), parts)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "The public key") -> PublicContext:
        return cls._from(*unpack(data, "public-key", name))

    @classmethod
    def _from(cls, header: Any, parts: list[bytes]) -> PublicContext:
        found, cipher = _opened(header)
        if len(parts) != 3:
            raise InvalidDocument(f"A public key has three parts; found {len(parts)}.")
        public = cipher.from_bytes("PublicKey", parts[0])
        elements = automorphisms(found["purpose"], found["features"], cipher.parameters)
        relin, galois = (
            cipher.from_bytes(kind, data, keys=len(elements)) if data else None
            for kind, data in zip(_SWITCHES, parts[1:], strict=True)
        )
        lacks_relin = found["purpose"] in RELINEARISED and relin is None
        if lacks_relin or (elements and (galois is None or not all(map(galois.has_key, elements)))):
            raise InvalidDocument(f"The public key lacks keys that {found['purpose']} needs. Send the file that keygen made.")
        return _same_key(cls(found["purpose"], found["features"], cipher, public, relin, galois), found["key"])

    def save(self, path: str | os.PathLike[str]) -> Path:
        return write_file(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PublicContext:
        return cls._from(*read_file(path, "public-key"))

    def encrypt_plain(self, plain: Any) -> Any:
        """A ciphertext of an encoded plaintext, by the public key."""
        return self.cipher.encrypt(self.public, plain)


_SWITCHES = ("RelinKeys", "GaloisKeys")


class SecretContext(Private):
    """The key holder's side: encrypts and decrypts. `public` is the part to give away."""

    __slots__ = ("_decryptor", "_encryptor", "_secret", "public")

    def __init__(self, public: PublicContext, secret: Any) -> None:
        self.public, self._secret = public, secret
        self._encryptor, self._decryptor = public.cipher.encryptor(public.public, secret), public.cipher.decryptor(secret)

    @property
    def id(self) -> str:
        return self.public.id

    @property
    def parameters(self) -> RingParameters:
        return self.public.parameters

    def _instead(self) -> str:
        return "Give others secret.public."

    def __repr__(self) -> str:
        return f"SecretContext({self.public.purpose}, key {self.id[:8]})"

    def encrypt_plain(self, plain: Any) -> Any:
        """A ciphertext of an encoded plaintext, by the secret key: less noise than by the public one."""
        return self.public.cipher.encrypt_symmetric(self._encryptor, plain)

    def seeded(self, plain: Any) -> bytes:
        """The same, as bytes to send: the uniform half is sent as its seed."""
        return self.public.cipher.seeded(self._encryptor, plain)

    def hidden(self, values: NDArray[Any], level: int, scale: float) -> bytes:
        """Numbers in slots as bytes to send. They are rounded at random, so that no row can be made whose roundings add up."""
        cipher = self.public.cipher
        return self.seeded(cipher.encode(randomly_rounded(cipher.parameters.degree, values, scale), level, scale))

    def decrypt_plain(self, ciphertext: Any) -> Any:
        """The encoded plaintext. **Raw**: noise and all; see `discreet.crypto.leak` before handing it to anybody."""
        try:
            return self.public.cipher.decrypt(self._decryptor, ciphertext)
        except (ValueError, RuntimeError) as problem:  # where a form of the library's own could not be looked at beforehand
            raise InvalidDocument("A ciphertext has another form than the scheme's. Send it again.") from problem

    def slots(self, ciphertext: Any) -> NDArray[np.complex128]:
        """The decrypted slots. Raw, as above."""
        return self.public.cipher.decode(self.decrypt_plain(ciphertext))

    def whole(self, ciphertext: Any) -> NDArray[np.int64]:
        """The decrypted whole numbers (BFV), where the noise has left them exact."""
        if self.public.cipher.noise_budget(self._decryptor, ciphertext) < 1:
            raise InvalidDocument(
                "The ciphertext does not decrypt: it is of another key, damaged, or has been through more operations than fit."
            )
        return self.public.cipher.decode_whole(self.decrypt_plain(ciphertext))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """A file that its owner alone can read. It holds no keys for rotations: those are in the public file."""
        cipher = self.public.cipher
        parts = [cipher.to_bytes(self._secret), cipher.to_bytes(self.public.public)]
        return write_file(path, pack("secret-key", _header(self.public), parts), secret=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SecretContext:
        header, parts = read_file(path, "secret-key")
        found, cipher = _opened(header)
        if len(parts) != 2:
            raise InvalidDocument(f"A secret key has two parts; found {len(parts)}.")
        public = PublicContext(
            found["purpose"], found["features"], cipher, cipher.from_bytes("PublicKey", parts[1]), None, None
        )
        return cls(_same_key(public, found["key"]), cipher.from_bytes("SecretKey", parts[0]))


def _header(context: PublicContext) -> dict[str, Any]:
    return {
        "engine": context.cipher.name, "purpose": context.purpose, "features": context.features,
        "parameters": context.parameters.to_json(), "key": context.id,
    }  # fmt: skip


def _opened(header: Any) -> tuple[dict[str, Any], Seal]:
    found = members("key", header, required=_HEADER)
    try:
        known = _purpose(found["purpose"], found["features"])
    except InvalidValue as error:
        raise InvalidDocument(f"The key is not valid: {error}") from None
    if RingParameters.from_json(found["parameters"]) != known:
        raise InvalidDocument(
            f"The key has other parameters than this discreet uses for {found['purpose']}. Make new keys with keygen."
        )
    if found["engine"] not in ENGINES:
        raise InvalidDocument("The key is of an engine that this discreet does not know. Upgrade discreet.")
    return found, open_cipher(known, found["engine"])


def _same_key(context: PublicContext, named: Any) -> PublicContext:
    if context.id != named:
        raise InvalidDocument("The file names another key than it holds. Use the files of one keygen.")
    return context


def keygen(
    purpose: str, *, features: int, memory_limit: int | None = None, engine: str | None = None
) -> tuple[SecretContext, PublicContext]:
    """Keys for one purpose: linear, logistic, network (scoring), training, or sum; at 128 bits.

    `engine` is "tenseal" or "seal-python"; left out, the first of them that is installed. Keys say which it was, and
    whoever loads them needs the same. `key_memory` says beforehand what the public keys will take; above `memory_limit`
    bytes nothing is made.

    >>> secret, public = keygen("linear", features=3)
    >>> secret.public is public, public.parameters.modulus_bits
    (True, 120)
    """
    parameters = _purpose(purpose, features)
    needed = key_memory(purpose, features=features)
    if memory_limit is not None and needed > memory_limit:
        raise InvalidValue(
            f"The keys for {purpose} with {features} features take {needed:,} bytes; the limit is {memory_limit:,}. "
            "Raise it, or use fewer features."
        )
    cipher = open_cipher(parameters, importable() if engine is None else check.word("engine", engine, ENGINES))
    elements = automorphisms(purpose, features, parameters)
    secret, public, relin, galois = cipher.make_keys(purpose in RELINEARISED, elements)
    context = PublicContext(purpose, features, cipher, public, relin, galois)
    return SecretContext(context, secret), context
