from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.learn.sgd import chacha, normal
from discreet.learn.sgd.normal import RARE, TILE
from discreet.learn.sgd.stream import Stream

KEY = bytes(range(32))


def words(block: torch.Tensor) -> bytes:
    return struct.pack("<16i", *block.tolist())


@pytest.mark.parametrize(
    ("key", "counter", "nonce", "wanted"),
    [
        (  # RFC 8439, 2.3.2
            bytes(range(32)), 1, "000000090000004a00000000",
            "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
            "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
        ),
        (  # RFC 8439, A.1, test vector 1
            bytes(32), 0, "000000000000000000000000",
            "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
            "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
        ),
        (  # RFC 8439, A.1, test vector 4
            bytes([0, 0xFF, *bytes(30)]), 2, "000000000000000000000000",
            "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
            "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
        ),
    ],
)  # fmt: skip
def test_twenty_rounds_are_chacha20(key: bytes, counter: int, nonce: str, wanted: str) -> None:
    first, second, third = struct.unpack("<3I", bytes.fromhex(nonce))
    made = chacha.blocks(key, torch.tensor([counter | first << 32]), second | third << 32, 20)
    assert words(made[:, 0]) == bytes.fromhex(wanted)


@given(st.binary(min_size=32, max_size=32), st.integers(0, 2**48), st.integers(0, 2**64 - 1))
def test_twenty_rounds_agree_with_openssl(key: bytes, number: int, nonce: int) -> None:
    number &= 2**48 - 2 if number % 2**32 == 2**32 - 1 else -1  # OpenSSL counts on through 32 bits alone
    made = chacha.blocks(key, torch.tensor([number, number + 1]), nonce, 20)
    start = struct.pack("<QQ", number, nonce)
    theirs = Cipher(algorithms.ChaCha20(key, start), mode=None).encryptor().update(bytes(128))
    assert words(made[:, 0]) + words(made[:, 1]) == theirs


@pytest.mark.parametrize(
    ("rounds", "wanted"), [(8, "3e00ef2f895f40d67f5bb8e81f09a5a1"), (12, "9bf49a6a0755f953811fce125f2683d5")]
)
def test_fewer_rounds_are_chacha8_and_chacha12(rounds: int, wanted: str) -> None:
    """Test vectors TC1 with a 256-bit key of draft-strombergson-chacha-test-vectors."""
    made = chacha.blocks(bytes(32), torch.tensor([0]), 0, rounds)
    assert words(made[:, 0]).hex().startswith(wanted)


def drawn(count: int, *, step: int = 0, offset: int = 0, scale: float = 1.0) -> torch.Tensor:
    out = torch.empty(count)
    chacha.fill(KEY, step, offset, scale, out)
    return out


@settings(max_examples=15)
@given(st.lists(st.integers(0, 3 * TILE + 77), max_size=4), st.integers(0, 2**47))
def test_any_split_gives_the_same_bits(cuts: list[int], step: int) -> None:
    edges = [0, *sorted(cuts), 3 * TILE + 77]
    parts = [drawn(b - a, step=step, offset=a) for a, b in pairwise(edges)]
    assert torch.equal(torch.cat(parts), drawn(edges[-1], step=step))


def test_the_transform_is_that_of_the_cpu() -> None:
    tile, step = 3, 1 << 40
    number = torch.arange(tile * chacha.LANES, (tile + 1) * chacha.LANES)
    made = chacha.blocks(KEY, number, step, chacha.ROUNDS).numpy().view(np.uint32).reshape(1, 2, -1)
    out = np.empty(made.shape, np.float32)
    assert not normal.Transform(TILE // 2)(made, 0.7, out)
    assert np.array_equal(drawn(TILE, step=step, offset=tile * TILE, scale=0.7).numpy(), out.reshape(-1))


RARE_TILE = 20  # of step 0 under this key


def test_rare_pairs_take_their_further_bits() -> None:
    number = torch.arange(RARE_TILE * chacha.LANES, (RARE_TILE + 1) * chacha.LANES)
    made = chacha.blocks(KEY, number, 0, chacha.ROUNDS).numpy().view(np.uint32)
    more = chacha.blocks(KEY, number, 1 << 48, chacha.ROUNDS).numpy().view(np.uint32).astype(float)
    word, lane = np.nonzero(made[:8] >> 1 < RARE)
    assert word.size
    u = ((made[word, lane] >> 2) + more[word, lane] / 2.0**32 + more[word + 8, lane] / 2.0**64) / 2.0**30
    found = drawn(TILE, offset=RARE_TILE * TILE).double().reshape(16, -1)
    radius = torch.hypot(found[word, lane], found[word + 8, lane]).numpy()
    assert np.allclose(radius, np.sqrt(-2 * np.log(u)), rtol=1e-6)


def test_a_stream_for_a_gpu_draws_the_same_on_a_cpu() -> None:
    out = Stream(KEY, "cuda").fill(torch.empty(10_000), step=2, offset=9, scale=0.5)
    assert torch.equal(Stream(KEY, "cuda").fill(torch.empty(100), step=2, offset=109, scale=0.5), out[100:200])
    assert not torch.equal(Stream(KEY, "cpu").fill(torch.empty(100), step=2, offset=109, scale=0.5), out[100:200])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize(
    ("offset", "count"), [(0, 30_000), (5, 100), (8190 + TILE * (1 << 30), 20_000), (RARE_TILE * TILE, TILE)]
)
def test_the_kernel_agrees_bit_for_bit(offset: int, count: int) -> None:
    from discreet.learn.sgd import chacha_triton

    out = torch.empty(count, device="cuda")
    chacha_triton.fill(KEY, 0, offset, 0.7, out)
    assert torch.equal(out.cpu(), drawn(count, offset=offset, scale=0.7))
