from __future__ import annotations

import hmac
from itertools import pairwise

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.errors import InvalidValue
from discreet.learn.sgd import native, normal
from discreet.learn.sgd.keystream import Keystream
from discreet.learn.sgd.stream import TILE, Stream

KEY = bytes(range(32))


def drawn(count: int, *, step: int = 0, offset: int = 0, scale: float = 1.0, key: bytes = KEY) -> torch.Tensor:
    return Stream(key).fill(torch.empty(count), step=step, offset=offset, scale=scale)


def key_of(step: int) -> bytes:
    return hmac.digest(hmac.digest(KEY, b"discreet noise: aes-256-ctr", "sha256"), step.to_bytes(8, "big"), "sha256")


HOWS = ["compiled", "transform compiled", "numpy"]


def use(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the three ways in which the same numbers are made."""
    compiled = native.kernel()
    if how == "numpy":
        monkeypatch.setattr(native, "kernel", lambda: None)
        return
    if compiled is None or (how == "compiled" and compiled.fill is None):
        pytest.skip("no C compiler here, or no AES instructions")
    if how == "transform compiled":
        monkeypatch.setattr(native, "kernel", lambda: native.Native(compiled.tiles, None))


@pytest.mark.parametrize("how", HOWS)
def test_any_split_gives_the_same_bits(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(how, monkeypatch)

    @settings(max_examples=30)
    @given(st.lists(st.integers(0, 11 * TILE + 77), max_size=6), st.integers(0, 2**40))
    def check(cuts: list[int], step: int) -> None:
        count = 11 * TILE + 77
        whole = drawn(count, step=step)
        edges = [0, *sorted(cuts), count]
        parts = [drawn(b - a, step=step, offset=a) for a, b in pairwise(edges)]
        assert torch.equal(torch.cat(parts), whole)

    check()


@pytest.mark.parametrize("offset", [0, 123, 5 * TILE - 1])
@pytest.mark.parametrize("count", [1, 1000, TILE, 700_000])  # a few rare pairs among the last
def test_compiled_or_not_the_same_bits(offset: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for how in HOWS:
        with monkeypatch.context() as patch:
            use(how, patch)
            found.append(drawn(count, offset=offset))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_neither_seed_nor_threads_reach_it() -> None:
    before, threads = drawn(1000), torch.get_num_threads()
    state = torch.random.get_rng_state()
    try:
        torch.manual_seed(7)
        torch.set_num_threads(1)
        assert torch.equal(drawn(1000), before)
        assert torch.equal(torch.random.get_rng_state(), torch.manual_seed(7).get_state())
    finally:
        torch.set_num_threads(threads)
        torch.random.set_rng_state(state)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_several_threads_make_the_same_numbers(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    before = drawn(12 * TILE + 5, offset=77)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr("discreet.learn.sgd.stream.WORTH_A_THREAD", 2 * TILE)
    assert torch.equal(drawn(12 * TILE + 5, offset=77), before)


def test_key_step_and_position_each_matter() -> None:
    base = drawn(1000)
    for other in (drawn(1000, step=1), drawn(1000, offset=1), drawn(1000, key=bytes(32))):
        assert (base == other).float().mean() < 0.01


def test_far_positions_and_late_steps() -> None:
    far = drawn(100, step=(1 << 48) - 1, offset=(1 << 53) - 101)
    assert torch.isfinite(far).all()
    assert torch.equal(drawn(90, step=(1 << 48) - 1, offset=(1 << 53) - 91), far[10:])


def test_scale_multiplies() -> None:
    assert torch.allclose(drawn(1000, scale=0.37), drawn(1000) * 0.37, rtol=1e-6)
    assert torch.equal(drawn(1000, scale=0.5), drawn(1000) * 0.5)
    assert not drawn(10, scale=0.0).any()
    assert drawn(0).numel() == 0


def test_numbers_are_as_the_module_says() -> None:
    step, tile = 5, 3
    own = key_of(step)
    counter = step.to_bytes(8, "big") + (tile * TILE // 4).to_bytes(8, "big")
    words = np.frombuffer(Cipher(algorithms.AES256(own), modes.CTR(counter)).encryptor().update(bytes(4 * TILE)), "<u4")
    out = np.empty((1, 2, TILE // 2), np.float32)
    normal.Transform(TILE // 2)(words.reshape(1, 2, -1), 1.0, out)
    assert np.array_equal(drawn(TILE, step=step, offset=tile * TILE).numpy(), out.reshape(-1))


def test_the_cipher_is_aes_256_in_counter_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """NIST SP 800-38A, F.5.5: plain text and cipher text of CTR-AES256."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
    wanted = bytes.fromhex("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5")
    keystream = bytes(p ^ c for p, c in zip(plain, wanted))
    domain, step, number = 0xF0F1, 0xF2F3F4F5F6F7, 0xF8F9FAFBFCFDFEFF
    monkeypatch.setattr("discreet.learn.sgd.keystream.MORE", domain)
    blocks = Keystream(key, step).more([number, number + 1])
    assert blocks == [int.from_bytes(keystream[:8], "little"), int.from_bytes(keystream[16:24], "little")]
    words = np.empty((1, 2, TILE // 2), np.uint32)
    monkeypatch.setattr("discreet.learn.sgd.keystream.WORDS", 7)
    Keystream(key, step).words(11, words)
    counter = Keystream(key, step).block(7, 11 * TILE // 4)
    assert words.tobytes() == Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor().update(bytes(4 * TILE))


@pytest.mark.parametrize("how", HOWS)
def test_rare_pairs_take_their_further_bits(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(how, monkeypatch)
    count, half = 1 << 20, TILE // 2
    before = drawn(count, step=9).numpy().reshape(-1, 2, half)
    own = key_of(9)
    stream, words = Keystream(own, 9), np.empty((count // TILE, 2, half), np.uint32)
    stream.words(0, words)
    tile, at = np.nonzero(words[:, 0] < 2 * normal.RARE)
    assert tile.size  # with this key there are some
    more = stream.more((tile * half + at).tolist())
    u = ((words[tile, 0, at] >> 2) + np.array(more) / 2.0**64) / 2.0**30
    found = np.hypot(before[tile, 0, at].astype(float), before[tile, 1, at])
    assert np.allclose(found, np.sqrt(-2 * np.log(u)), rtol=1e-6)


@pytest.mark.parametrize("key", [b"short", bytes(33), "x" * 32, None])
def test_keys_of_another_kind_are_refused(key: object) -> None:
    with pytest.raises(InvalidValue, match="32 bytes"):
        Stream(key)  # type: ignore[arg-type]


@pytest.mark.parametrize("out", [torch.empty(4, dtype=torch.float64), torch.empty(2, 2), torch.empty(8)[::2]])
def test_tensors_of_another_kind_are_refused(out: torch.Tensor) -> None:
    with pytest.raises(InvalidValue, match="flat contiguous float32"):
        Stream(KEY).fill(out, step=0)


@pytest.mark.parametrize("arguments", [{"step": -1}, {"step": 1 << 48}, {"step": 0, "offset": -1}, {"step": 0, "scale": -1.0}])
def test_numbers_out_of_range_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(InvalidValue):
        Stream(KEY).fill(torch.empty(4), **arguments)  # type: ignore[arg-type]
