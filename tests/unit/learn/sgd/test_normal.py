from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet import native as package
from discreet.learn.sgd import native, normal
from discreet.learn.sgd.normal import RARE, Transform, tails
from mutants import compiled

PAIRS = 1 << 15


def pairs(seed: int) -> np.ndarray:
    """Random words, and among them every exponent, both ends and the turning points of the angle."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**32, (1, 2, PAIRS), dtype=np.uint32)
    a, b = words[0]
    a[: PAIRS // 2] >>= (np.arange(PAIRS // 2) % 18).astype(np.uint32)
    a[:512] = 2**32 - 1 - np.arange(512)
    a[512:1024] = np.arange(512)
    b[:1024:2] = np.resize(np.array([0, 1, 2**30, 2**31 - 1, 2**31, 2**31 + 1, 3 << 30, 2**32 - 1], np.uint32), 512)
    return words


def transformed(words: np.ndarray, scale: float = 1.0) -> np.ndarray:
    out = np.empty(words.shape, np.float32)
    Transform(words.shape[0] * words.shape[2])(words, scale, out)
    return out


def truth(words: np.ndarray) -> np.ndarray:
    a, b = words[:, 0], words[:, 1]
    radius = np.sqrt(-2 * np.log((a >> 1 | 1) / 2.0**31))
    angle = np.pi * b.view(np.int32).astype(float) / 2.0**31
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def test_near_the_real_transform() -> None:
    words = pairs(1)
    words[:, 0][words[:, 0] < 2 * RARE] = 2 * RARE
    error = np.abs(transformed(words) - truth(words))
    assert error.max() < 3e-6  # the largest radius here is 5
    typical = truth(words)
    assert np.sqrt((error**2).mean()) < 5e-7
    near = np.hypot(typical[:, 0], typical[:, 1]) < 0.01  # small radii keep their digits
    assert (np.hypot(error[:, 0], error[:, 1])[near] < 4e-7 * 0.01 + 1e-9).all()


def test_no_radius_is_zero() -> None:
    words = np.zeros((1, 2, 256), np.uint32)
    words[0, 0] = 2**32 - 1 - np.arange(256)
    radius = np.hypot(*transformed(words)[0].astype(float))
    assert radius.min() > 3e-5
    assert (np.diff(radius) >= 0).all()


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6))
def test_compiled_and_numpy_agree_bit_for_bit(seed: int, scale: float) -> None:
    kernel = native.kernel()
    if kernel is None:
        pytest.skip("no C compiler here")
    words = pairs(seed)
    out = np.empty(words.shape, np.float32)
    kernel.tiles(words, scale, out)
    assert out.tobytes() == transformed(words, scale).tobytes()


def test_a_kernel_that_differs_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.kernel() is None:
        pytest.skip("nothing was built here")
    right = normal.LOG_STEP
    same, other = np.nextafter(right, 0).hex(), float(np.nextafter(np.float32(right), 0)).hex()
    assert right.hex() in (package.HERE / "normal.h").read_text()
    monkeypatch.setattr(package, "library", lambda name: compiled(name, {right.hex(): same}))
    assert native.kernel.__wrapped__() is not None  # a float64 step further is the same float32
    monkeypatch.setattr(package, "library", lambda name: compiled(name, {right.hex(): other}))
    assert native.kernel.__wrapped__() is None


def test_the_constants_of_c_are_those_of_python() -> None:
    whole = {"RARE": normal.RARE, "MIDDLE": normal.MIDDLE, "EXPONENT": normal.EXPONENT, "TILE": normal.TILE}
    floats = {"LOG_STEP": normal.LOG_STEP}
    for name, values in (("LOG", normal.LOG), ("SIN", normal.SIN), ("COS", normal.COS)):
        floats |= {f"{name}{i}": value for i, value in enumerate(values)}
    wanted = [f"#define {name} ({value})" for name, value in whole.items()]
    wanted += [f"#define {name} ({value.hex()}f)" for name, value in floats.items()]
    lines = (package.HERE / "normal.h").read_text().splitlines()
    assert [line for line in lines if line.startswith("#define")] == wanted


@pytest.mark.parametrize("absent", ["not built", "switched off", "another system's"])
def test_without_a_library_there_is_no_kernel(absent: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if absent == "switched off":
        monkeypatch.setenv("DISCREET_NATIVE", "0")
    else:
        monkeypatch.setattr(package, "HERE", tmp_path)
    if absent == "another system's":
        for level in package.LEVELS:
            (tmp_path / f"_normal_{level}.so").write_bytes(b"not a library")
    assert native.kernel.__wrapped__() is None


@pytest.mark.parametrize("level", package.LEVELS)
def test_every_level_of_processor_gives_the_same_bits(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = package.built("normal", level)
    if path is None or not package.LEVELS[level] <= package.features():
        pytest.skip(f"nothing was built here for {level}, or this processor is below it")
    monkeypatch.setattr(package, "features", lambda: package.LEVELS[level])
    assert native.kernel.__wrapped__() is not None


def test_tails_go_on_where_30_bits_end() -> None:
    a = np.array([2 * RARE, 2 * RARE - 4, 4, 0, 0], np.uint32)
    b = np.zeros(5, np.uint32)
    middle, most = 1 << 63, (1 << 64) - 1
    x, y = tails(a, b, [0, most, middle, middle, 0], 2.0)
    u = np.array([RARE // 2, RARE // 2, 1.5, 0.5, 2.0**-65]) / 2.0**30
    assert np.allclose(x, 2 * np.sqrt(-2 * np.log(u)), rtol=3e-7)
    assert (y == 0).all()
    assert x[0] == pytest.approx(2 * transformed(np.array([[[2 * RARE], [0]]], np.uint32))[0, 0, 0], abs=3e-5)
    assert x[-1] > 2 * 11.4
