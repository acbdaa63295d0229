"""What travels in encrypted training: rows once, then packed weights and fresh weights in turn."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from discreet.core.document import members
from discreet.crypto.container import is_name, pack, unpack
from discreet.crypto.engine import Seal
from discreet.crypto.plan import Plan
from discreet.errors import InvalidDocument, InvalidValue

__all__ = ["TrainingMessage"]

CONTENTS = {"rows": "encrypted training rows", "weights": "fresh weights", "step": "the weights after a step"}
_HEADER = ("what", "key", "plan", "step", "message", "answers")


@dataclass(frozen=True, slots=True, eq=False)
class TrainingMessage:
    """Ciphertexts of one kind, for one key and plan. `step` counts steps done; `answers` names the message answered."""

    what: str
    key: str
    plan: Plan
    step: int
    parts: tuple[bytes, ...] = field(repr=False)
    answers: str | None
    message: str = field(default_factory=lambda: secrets.token_hex(16))

    def to_bytes(self) -> bytes:
        header = {name: getattr(self, name) for name in _HEADER if name != "plan"}
        return pack("training", {**header, "plan": self.plan.to_json()}, self.parts)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "The message") -> TrainingMessage:
        header, parts = unpack(data, "training", name)
        found = members("training message", header, required=_HEADER)
        names = (found["key"], found["message"], found["message"] if found["answers"] is None else found["answers"])
        if not all(map(is_name, names)) or not isinstance(found["what"], str) or found["what"] not in CONTENTS:
            raise InvalidDocument("The header of the training message has values that discreet does not write.")
        if type(found["step"]) is not int:
            raise InvalidDocument("The header of the training message has values that discreet does not write.")
        message = cls(**{**found, "plan": Plan.from_json(found["plan"])}, parts=tuple(parts))
        if len(parts) != message.expected():
            raise InvalidDocument(f"{len(parts)} ciphertexts are not {CONTENTS[message.what]}: those are {message.expected()}.")
        return message

    def expected(self) -> int:
        """How many ciphertexts there must be."""
        plan = self.plan
        return {
            "rows": plan.groups * (plan.ciphertexts + (plan.blocks << plan.shared) + 1),
            "weights": plan.ciphertexts + 1, "step": 1,
        }[self.what]  # fmt: skip

    def check(self, what: str, key: str, plan: Plan) -> None:
        """Refuse another kind, another key's or another run's."""
        if self.what != what:
            raise InvalidValue(f"These are {CONTENTS[self.what]}; {CONTENTS[what]} are needed here.")
        if self.key != key:
            raise InvalidValue(
                f"These ciphertexts belong to key {self.key[:8]} and the key here is {key[:8]}. Use the keys of one keygen."
            )
        if self.plan != plan:
            raise InvalidValue("The message belongs to another plan. Both sides must hold the same Plan.")

    def ciphertexts(self, cipher: Seal, forms: list[tuple[int, float]]) -> list[Any]:
        """The ciphertexts, each of which must have this level and this scale, and two parts."""
        found = [cipher.from_bytes("Ciphertext", part) for part in self.parts]
        for ciphertext, (level, scale) in zip(found, forms, strict=True):
            fits = cipher.level(ciphertext) == level and abs(ciphertext.scale / scale - 1) < 1e-9
            if not fits or ciphertext.size() != 2:
                raise InvalidDocument(f"A ciphertext has another level or scale than {CONTENTS[self.what]}. Send it again.")
        return found
