"""The computing machine's side of encrypted training: gradient steps on ciphertexts.

Two features share each slot as a complex number a + ib, conjugated in odd slots, so that all slots belong to roots of unity
that are 1 modulo 4, and the ring of numbers a + ib sits in the coefficients 0 and N/2. Forward, all products are added
before one relinearisation; backward, no slot is summed by rotations: the sum over slots is the trace down to that
subring, and one tree of automorphisms computes the traces of all features at once and leaves them in one ciphertext. The
lowest levels of the tree, where most of its automorphisms are, act on the errors instead, of which there are few: the
key holder has encrypted the features so that this gives the same sums (`packing.shared`).
"""

from __future__ import annotations

import threading
from typing import Any

from discreet.crypto.keys import PublicContext
from discreet.crypto.messages import TrainingMessage
from discreet.crypto.packing import monomial, positions
from discreet.crypto.plan import ERROR_SCALE, SLOTS, WEIGHT_SCALE
from discreet.errors import InvalidValue

__all__ = ["Trainer"]


class Trainer:
    """Steps of one run. It holds public keys and ciphertexts, and answers each `weights` message once."""

    def __init__(self, public: PublicContext, rows: TrainingMessage) -> None:
        if public.purpose != "training" or public.features != rows.plan.features:
            raise InvalidValue(f"Training needs keys for training with {rows.plan.features} features; these are {public!r}.")
        rows.check("rows", public.id, rows.plan)
        self.public, self.plan, self.cipher, self.done = public, rows.plan, public.cipher, 0
        plan, cipher, count = rows.plan, public.cipher, rows.plan.ciphertexts * rows.plan.groups
        images = plan.groups * plan.blocks << plan.shared
        forms = [(0, plan.forward_scale(cipher.moduli))] * count + [(2, plan.backward_scale)] * images
        found = rows.ciphertexts(cipher, forms + [(2, ERROR_SCALE)] * plan.groups)
        self._forward, self._labels = _grouped(found[:count], plan.ciphertexts), found[count + images :]
        self._backward = _grouped([self._shrunk(item) for item in found[count : count + images]], 1 << plan.shared)
        halves = [(SLOTS >> level) for level in range(plan.shared + 1, plan.depth + 1)]
        self._shifts = {half: cipher.encode(monomial(cipher.parameters.degree, half), 2, 1.0) for half in halves}
        self._before: list[Any] | None = None
        self._lock = threading.Lock()

    def _shrunk(self, ciphertext: Any) -> Any:
        """Times the inverse modulo the last prime of the number by which the tree and the trace multiply: exactly."""
        inverse = -((self.cipher.moduli[0] - 1) // (SLOTS >> self.plan.shared))  # the prime is 1 modulo 2N
        result = self.cipher.multiply_plain(ciphertext, self.cipher.encode(float(inverse), 2, 1.0))
        result.scale = ciphertext.scale
        return result

    def step(self, weights: TrainingMessage) -> TrainingMessage:
        """One step from fresh weights; the answer is one ciphertext with the new weights, without a level left."""
        with self._lock:
            return self._step(weights)

    def _step(self, weights: TrainingMessage) -> TrainingMessage:
        weights.check("weights", self.public.id, self.plan)
        if weights.step != self.done or self.done >= self.plan.iterations:
            raise InvalidValue(
                f"{self.done} of {self.plan.iterations} steps are done; these weights are for step {weights.step}. "
                "Each message is answered once, in order: it may be a replay."
            )
        plan, parts = self.plan, self.plan.weight_parts
        forms = [(0, WEIGHT_SCALE / parts)] * plan.ciphertexts + [(2, plan.packed_scale / parts)]
        total = self.advance(weights.ciphertexts(self.cipher, forms))
        return TrainingMessage("step", self.public.id, plan, self.done, (self.cipher.to_bytes(total),), weights.message)

    def advance(self, fresh: list[Any]) -> Any:
        """The arithmetic of a step: the packed new weights from the fresh ones."""
        plan, (*weights, packed) = self.plan, fresh
        now = [*(self._argument(group, weights) for group in self._forward), packed]
        *arguments, packed = now if plan.weight_parts == 1 else self._extrapolated(now, plan.momentum[self.done])
        errors = [self._error(argument, labels) for argument, labels in zip(arguments, self._labels, strict=True)]
        images = [self._images(error) for error in errors]
        total = self._packed([self._backpropagated(block, images) for block in range(plan.blocks)])
        total.scale = packed.scale = plan.packed_scale
        self.cipher.add_to(total, packed)
        self.done, self._before = self.done + 1, now
        return total

    def _argument(self, features: list[Any], weights: list[Any]) -> Any:
        """Twice the products of rows and weights, for the rows of a group."""
        total = self.cipher.relinearize(self.cipher.inner(zip(features, weights, strict=True)), self.public.relin)
        conjugate = self.cipher.automorphism(total, 2 * self.cipher.parameters.degree - 1, self.public.galois)
        return self.cipher.add_to(conjugate, total)

    def _extrapolated(self, now: list[Any], momentum: float) -> list[Any]:
        """At Nesterov's point w + m (w - w'), in units of 1 / 1024: what is linear in the weights, from its last two values."""
        cipher, parts, ahead, found = self.cipher, self.plan.weight_parts, round(momentum * self.plan.weight_parts), []
        for item, before in zip(now, self._before or now, strict=True):
            level = cipher.level(item)
            moved = cipher.multiply_plain(item, cipher.encode(float(parts + ahead), level, 1.0))
            if ahead:
                cipher.add_to(moved, cipher.multiply_plain(before, cipher.encode(float(-ahead), level, 1.0)))
            found.append(moved)
        return found

    def _error(self, argument: Any, labels: Any) -> Any:
        """y minus the polynomial of the argument, for the rows of a group: u (u^2 - k) with u twice the argument."""
        cipher, relin = self.cipher, self.public.relin
        u = cipher.rescale(argument)
        u.scale = self.plan.argument_scale(cipher.moduli)
        square = cipher.relinearize(cipher.multiply(u, u), relin)
        _, slope, _, cubic = self.plan.polynomial.coefficients
        square = cipher.add_plain(square, 4 * slope / cubic)
        value = cipher.rescale(cipher.relinearize(cipher.multiply(u, square), relin))
        value.scale = ERROR_SCALE
        return cipher.add_to(value, labels)

    def _images(self, error: Any) -> list[Any]:
        """The errors under each automorphism of the lowest levels, in the order of `packing.automorphisms`."""
        found = [error]
        for level in range(1, self.plan.shared + 1):
            found += [self._conjugate(item, level) for item in found]
        return found

    def _backpropagated(self, block: int, images: list[list[Any]]) -> Any:
        """The traces of a block's features times errors, over the lowest levels: one relinearisation for all of them."""
        pairs = (
            pair
            for group, errors in enumerate(images)
            for pair in zip(self._backward[group * self.plan.blocks + block], errors, strict=True)
        )
        return self.cipher.relinearize(self.cipher.inner(pairs), self.public.relin)

    def _packed(self, products: list[Any]) -> Any:
        """The traces of all blocks, each at its place among the coefficients."""
        plan = self.plan
        leaves: list[Any] = [None] * (1 << plan.depth - plan.shared)
        bits = positions(len(leaves))
        for block, product in enumerate(products):
            leaves[bits[block]] = product
        total = self._merged(leaves, plan.depth)
        for level in range(plan.depth + 1, SLOTS.bit_length()):
            self.cipher.add_to(total, self._conjugate(total, level))
        return total

    def _conjugate(self, ciphertext: Any, level: int) -> Any:
        return self.cipher.automorphism(ciphertext, 2 ** (level + 1) + 1, self.public.galois)

    def _merged(self, leaves: list[Any], level: int) -> Any:
        """(A + sB) + automorphism(A - sB) keeps twice the trace of A, and of B behind the monomial s."""
        if level == self.plan.shared:
            return leaves[0]
        even, odd = self._merged(leaves[0::2], level - 1), self._merged(leaves[1::2], level - 1)
        if even is None:
            return None
        cipher = self.cipher
        if odd is None:
            return cipher.add_to(self._conjugate(even, level), even)
        scale = even.scale
        shifted = cipher.multiply_plain(odd, self._shifts[SLOTS >> level])
        shifted.scale = scale
        moved = self._conjugate(cipher.subtract(even, shifted), level)
        return cipher.add_to(cipher.add_to(shifted, even), moved)


def _grouped(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
