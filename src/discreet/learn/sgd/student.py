"""Noise of Student's t at a position: a normal number over the root of a mean of squares of others, all of one key."""

from __future__ import annotations

import hmac

import torch
from torch import Tensor

from discreet.core import check
from discreet.learn.sgd.stream import Stream


class StudentStream:
    """Numbers of Student's t addressed by (step, position) under one key, like those of a `Stream`.

    >>> stream = StudentStream(bytes(32), degrees=3)
    >>> whole, part = torch.empty(10), torch.empty(4)
    >>> bool((stream.fill(part, step=3, offset=5) == stream.fill(whole, step=3)[5:9]).all())
    True
    """

    def __init__(self, key: bytes, degrees: int, device: torch.device | str = "cpu") -> None:
        check.whole("degrees", degrees)
        keys = [
            hmac.digest(key, b"discreet: Student's t, normal number %d" % number, "sha256") for number in range(degrees + 1)
        ]
        self._normal, *self._others = (Stream(number_key, device) for number_key in keys)

    def fill(self, out: Tensor, *, step: int, offset: int = 0, scale: float = 1.0) -> Tensor:
        """`out[i] = scale * (number offset + i of this step)`, in place; returns `out`."""
        other, squares = torch.empty_like(out), torch.zeros_like(out)
        for stream in self._others:
            squares.addcmul_(stream.fill(other, step=step, offset=offset), other)
        self._normal.fill(out, step=step, offset=offset, scale=scale)
        return out.div_(squares.div_(len(self._others)).sqrt_())
