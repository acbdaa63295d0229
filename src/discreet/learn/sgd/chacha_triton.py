"""`chacha.py` as one kernel: a program makes one tile in registers and writes it once.

Bits agree with `chacha.py` because every floating-point operation is rounded once: fused multiply-add is switched off,
division and square root are those of IEEE 754.
"""

# mypy: ignore-errors
# (what @triton.jit holds is a language of its own, and Triton is not among what is installed for checking)

from __future__ import annotations

import struct
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from discreet.learn.sgd import chacha, normal

PART, WARPS = 256, 8  # lanes of a tile that one program makes, and the warps that share them

_LANES, _TILE, _ROUNDS = tl.constexpr(chacha.LANES), tl.constexpr(normal.TILE), tl.constexpr(chacha.ROUNDS)
_RARE, _MIDDLE, _EXPONENT = tl.constexpr(normal.RARE), tl.constexpr(normal.MIDDLE), tl.constexpr(normal.EXPONENT)
_LOG_STEP = tl.constexpr(normal.LOG_STEP)
_LOG0, _LOG1, _LOG2 = map(tl.constexpr, normal.LOG)
_SIN0, _SIN1, _SIN2, _SIN3, _SIN4 = map(tl.constexpr, normal.SIN)
_COS0, _COS1, _COS2, _COS3, _COS4 = map(tl.constexpr, normal.COS)
_C0, _C1, _C2, _C3 = map(tl.constexpr, chacha.CONSTANTS)


def fill(key: bytes, step: int, offset: int, scale: float, out: Tensor) -> None:
    """`Stream.fill` under the stream's own key, on the GPU where `out` lives."""
    first, skip = divmod(offset, normal.TILE)
    most = out.numel()
    programs = -(-(skip + most) // normal.TILE) * (chacha.LANES // PART)
    if not programs:
        return
    arguments = (out, *struct.unpack("<8i", key), *_halves(step), *_halves(first), skip, most, scale, PART)
    kind = (out.device, out.data_ptr() % 16, most >> 31)  # all that the compiler is told about what it is given
    with torch.cuda.device(out.device):
        if compiled := _compiled.get(kind):  # asking the kernel itself takes longer than a million numbers
            compiled[programs, 1, 1](*arguments)
        else:
            _compiled[kind] = _fill[(programs,)](*arguments, num_warps=WARPS, enable_fp_fusion=False)


_compiled: dict[tuple[torch.device, int, int], Any] = {}


def _halves(number: int) -> tuple[int, int]:
    """The low and the high 32 bits, as signed numbers."""
    low, high = struct.unpack("<2i", number.to_bytes(8, "little"))
    return low, high


@triton.jit
def _mix(a, b, c, d):
    a += b
    d ^= a
    d = (d << 16) | (d >> 16)
    c += d
    b ^= c
    b = (b << 12) | (b >> 20)
    a += b
    d ^= a
    d = (d << 8) | (d >> 24)
    c += d
    b ^= c
    b = (b << 7) | (b >> 25)
    return a, b, c, d


@triton.jit
def _block(k0, k1, k2, k3, k4, k5, k6, k7, n0, n1, n2, n3):
    zero = tl.zeros_like(n0)
    c0, c1, c2, c3 = zero + _C0, zero + _C1, zero + _C2, zero + _C3
    a0, a1, a2, a3 = c0, c1, c2, c3
    b0, b1, b2, b3 = zero + k0, zero + k1, zero + k2, zero + k3
    d0, d1, d2, d3 = zero + k4, zero + k5, zero + k6, zero + k7
    e0, e1, e2, e3 = n0, n1, n2, n3
    for _ in range(_ROUNDS // 2):  # unrolled it would take half a minute to compile
        a0, b0, d0, e0 = _mix(a0, b0, d0, e0)
        a1, b1, d1, e1 = _mix(a1, b1, d1, e1)
        a2, b2, d2, e2 = _mix(a2, b2, d2, e2)
        a3, b3, d3, e3 = _mix(a3, b3, d3, e3)
        a0, b1, d2, e3 = _mix(a0, b1, d2, e3)
        a1, b2, d3, e0 = _mix(a1, b2, d3, e0)
        a2, b3, d0, e1 = _mix(a2, b3, d0, e1)
        a3, b0, d1, e2 = _mix(a3, b0, d1, e2)
    return (
        a0 + c0, a1 + c1, a2 + c2, a3 + c3, b0 + k0, b1 + k1, b2 + k2, b3 + k3,
        d0 + k4, d1 + k5, d2 + k6, d3 + k7, e0 + n0, e1 + n1, e2 + n2, e3 + n3,
    )  # fmt: skip


@triton.jit
def _radius(value, low, scale):
    bits = value.to(tl.int32, bitcast=True)
    step = (bits - _MIDDLE) & _EXPONENT
    m = (bits - step).to(tl.float32, bitcast=True)
    z = tl.math.div_rn((m - 2147483648.0) + low, m + 2147483648.0)
    q = z * z
    e = ((q * _LOG0 + _LOG1) * q + _LOG2) * z + step.to(tl.float32) * _LOG_STEP
    return tl.math.sqrt_rn(e) * scale


@triton.jit
def _fine(a, high, low):
    whole, fraction = high.to(tl.float64), low.to(tl.float64)
    lead = (a >> 2).to(tl.float64) * 4294967296.0
    return (((lead + whole) + (fraction + 0.5) * 2.3283064365386963e-10) * 4.656612873077393e-10).to(tl.float32)


@triton.jit
def _turn(b, radius):
    t = b.to(tl.int32, bitcast=True).to(tl.float32) * 4.656612873077393e-10
    h = t * t
    s = ((((h * _SIN0 + _SIN1) * h + _SIN2) * h + _SIN3) * h + _SIN4) * t
    c = (((h * _COS0 + _COS1) * h + _COS2) * h + _COS3) * h + _COS4
    return (1.0 - s * s) * radius, (s * c) * radius


@triton.jit
def _pair(out, at, first, last, whole, scale, a, b):
    """One pair in every lane; x goes to `at` within the tile, y half a tile on, where they lie in [first, last).

    Rare ones are left for `_rare_pair`: no number is written twice.
    """
    k = ((a >> 1) | 1).to(tl.int32, bitcast=True)
    usual = k >= _RARE
    x, y = _turn(b, _radius(k.to(tl.float32), ((k << 25) >> 25).to(tl.float32), scale))
    if whole:
        tl.store(out + at, x, mask=usual)
        tl.store(out + at + _TILE // 2, y, mask=usual)
    else:
        tl.store(out + at, x, mask=usual & (at >= first) & (at < last))
        tl.store(out + at + _TILE // 2, y, mask=usual & (at + _TILE // 2 >= first) & (at + _TILE // 2 < last))


@triton.jit
def _rare_pair(out, at, first, last, scale, a, b, high, low):
    rare = ((a >> 1) | 1) < _RARE
    value = _fine(a, high, low)
    x, y = _turn(b, _radius(value, tl.zeros_like(value), scale))
    tl.store(out + at, x, mask=rare & (at >= first) & (at < last))
    tl.store(out + at + _TILE // 2, y, mask=rare & (at + _TILE // 2 >= first) & (at + _TILE // 2 < last))


_NUMBERS = ["step_low", "step_high", "tile_low", "tile_high", "skip", "most", *(f"key{word}" for word in range(8))]


@triton.jit(do_not_specialize=_NUMBERS)
def _fill(
    out, key0, key1, key2, key3, key4, key5, key6, key7, step_low, step_high, tile_low, tile_high, skip, most, scale,
    part: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0) // (_LANES // part)
    lane = tl.program_id(0) % (_LANES // part) * part + tl.arange(0, part)
    tile = (tile_high.to(tl.int64) << 32) | (tile_low.to(tl.int64) & 0xFFFFFFFF)
    number = (tile + index) * _LANES + lane
    n0, n1 = number.to(tl.uint32), (number >> 32).to(tl.uint32)
    n2, n3 = tl.zeros_like(n0) + step_low.to(tl.uint32), tl.zeros_like(n0) + step_high.to(tl.uint32)
    k0, k1, k2, k3 = key0.to(tl.uint32), key1.to(tl.uint32), key2.to(tl.uint32), key3.to(tl.uint32)
    k4, k5, k6, k7 = key4.to(tl.uint32), key5.to(tl.uint32), key6.to(tl.uint32), key7.to(tl.uint32)
    w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, wa, wb, wc, wd, we, wf = _block(
        k0, k1, k2, k3, k4, k5, k6, k7, n0, n1, n2, n3
    )  # fmt: skip
    start = index.to(tl.int64) * _TILE - skip  # where this tile begins in `out`, perhaps before it
    first, last = tl.maximum(-start, 0).to(tl.int32), tl.minimum(most - start, _TILE).to(tl.int32)
    whole = (first == 0) & (last == _TILE)
    out += start
    _pair(out, lane, first, last, whole, scale, w0, w8)
    _pair(out, lane + _LANES, first, last, whole, scale, w1, w9)
    _pair(out, lane + 2 * _LANES, first, last, whole, scale, w2, wa)
    _pair(out, lane + 3 * _LANES, first, last, whole, scale, w3, wb)
    _pair(out, lane + 4 * _LANES, first, last, whole, scale, w4, wc)
    _pair(out, lane + 5 * _LANES, first, last, whole, scale, w5, wd)
    _pair(out, lane + 6 * _LANES, first, last, whole, scale, w6, we)
    _pair(out, lane + 7 * _LANES, first, last, whole, scale, w7, wf)
    least = tl.minimum(tl.minimum(tl.minimum(w0, w1), tl.minimum(w2, w3)), tl.minimum(tl.minimum(w4, w5), tl.minimum(w6, w7)))
    if tl.min((least >> 1).to(tl.int32), axis=0) < _RARE:  # seldom
        r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, ra, rb, rc, rd, re, rf = _block(
            k0, k1, k2, k3, k4, k5, k6, k7, n0, n1, n2, n3 | 65536
        )  # fmt: skip
        _rare_pair(out, lane, first, last, scale, w0, w8, r0, r8)
        _rare_pair(out, lane + _LANES, first, last, scale, w1, w9, r1, r9)
        _rare_pair(out, lane + 2 * _LANES, first, last, scale, w2, wa, r2, ra)
        _rare_pair(out, lane + 3 * _LANES, first, last, scale, w3, wb, r3, rb)
        _rare_pair(out, lane + 4 * _LANES, first, last, scale, w4, wc, r4, rc)
        _rare_pair(out, lane + 5 * _LANES, first, last, scale, w5, wd, r5, rd)
        _rare_pair(out, lane + 6 * _LANES, first, last, scale, w6, we, r6, re)
        _rare_pair(out, lane + 7 * _LANES, first, last, scale, w7, wf, r7, rf)
