"""The source: fresh keys, safe after a fork and between threads, unbiased, and deaf to everyone's seeds."""

from __future__ import annotations

import os
import random
import threading
from fractions import Fraction

import numpy as np
import pytest

from discreet.errors import InvalidValue
from discreet.noise import bernoulli, discrete_laplace, refuse_seeded, uniform
from discreet.noise.source import Seeded, Source, open_source, replaced_for_tests, seeded_for_tests
from unit.noise.tools import walk


def in_child(source: Source) -> bytes:
    """What a forked child draws from the source it inherited."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, source.take(32))
        finally:
            os._exit(0)
    os.close(write)
    drawn = os.read(read, 64)
    os.close(read)
    os.waitpid(child, 0)
    return drawn


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_draws_other_noise():
    source = Source()
    source.take(8)
    drawn = [in_child(source), in_child(source), source.take(32)]
    assert all(len(item) == 32 for item in drawn)
    assert len(set(drawn)) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_that_the_fork_hook_missed_is_known_by_its_process_id(monkeypatch):
    source = Source()
    source.take(8)
    before = source._pool
    monkeypatch.setattr(os, "getpid", lambda: -1)
    source.take(8)
    assert source._pool != before


def test_every_call_has_a_key_of_its_own():
    assert len({open_source().take(32) for _ in range(100)}) == 100


def test_threads_draw_different_noise():
    drawn: list[bytes] = []
    threads = [threading.Thread(target=lambda: drawn.append(discrete_laplace(1e9, size=100).tobytes())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 16


def test_no_seed_reaches_the_noise():
    seen = set()
    for _ in range(3):
        random.seed(0)
        np.random.seed(0)
        seen.add((discrete_laplace(1e9), discrete_laplace(1e9, size=100).tobytes()))
    assert len(seen) == 3


def test_a_test_seed_repeats_and_is_refused_for_releases():
    drawn = []
    for _ in range(2):
        with seeded_for_tests(b"repeat"):
            drawn.append((discrete_laplace(1e9), discrete_laplace(1e9, size=100).tobytes(), uniform(10**30)))
            with pytest.raises(InvalidValue, match="seeded"):
                refuse_seeded()
    assert drawn[0] == drawn[1]
    refuse_seeded()


@pytest.mark.parametrize("seed", [None, 0, "text", b"", 1.5])
def test_a_test_seed_is_bytes(seed):
    with pytest.raises(InvalidValue, match="seed"):
        Seeded(seed)


def test_a_key_is_forgotten_once_used():
    source = Source()
    source.take(8)
    first = source._key
    source.take(1 << 20)
    assert source._key != first


def test_bytes_are_not_repeated_across_refills():
    source = Source()
    blocks = [source.take(48) for _ in range(20_000)]
    assert len(set(blocks)) == len(blocks)


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 6, 7, 255, 256, 257])
def test_below_is_uniform_by_enumeration(bound):
    # Every draw of the next power of two is equally likely and the ones that fit map to themselves, once each.
    class Fixed(Source):
        drawn = 0

        def bits(self, count):
            Fixed.width = count
            return self.drawn if self.drawn < bound else 0

    width = (bound - 1).bit_length()
    seen = []
    for value in range(bound):
        source = Fixed()
        source.drawn = value
        seen.append(source.below(bound))
    assert seen == list(range(bound))
    assert Fixed.width == width


@pytest.mark.parametrize("count", [1, 7, 8, 9, 64, 100])
def test_bits_fill_their_range(count):
    source = Seeded(b"bits")
    drawn = [source.bits(count) for _ in range(2000)]
    assert all(0 <= value < 1 << count for value in drawn)
    for place in range(count):  # each bit is fair: |ones - 1000| > 150 has probability below 1e-10
        assert abs(sum(value >> place & 1 for value in drawn) - 1000) < 150


@pytest.mark.parametrize("bound", [1, 2, 3, 200, 256, 257, 65_536, 10**6, 2**32, 2**32 + 1, 2**62 + 1, 2**63])
def test_many_below_stay_in_range_and_are_spread_evenly(bound):
    values = Seeded(b"many").many_below(bound, 20_000)
    assert values.dtype == np.int64
    assert values.min() >= 0
    assert int(values.max()) < bound
    if bound > 1:  # the share below half the range is off by more than 0.025 with probability below 1e-11
        assert abs((values < bound // 2).mean() - (bound // 2) / bound) < 0.025


@pytest.mark.parametrize("p", ["0", "1", "1/2", "2/7", "5/6"])
def test_bernoulli_by_enumeration(p):
    masses, left = walk(lambda: bernoulli(Fraction(p)))
    assert left == 0
    assert masses.get(True, 0.0) == pytest.approx(float(Fraction(p)), abs=1e-12)


def test_only_one_source_stands_in_at_a_time():
    with replaced_for_tests(Seeded(b"outer")) as outer:
        with replaced_for_tests(Seeded(b"inner")) as inner:
            assert open_source() is inner
        assert open_source() is outer
    assert open_source() is not outer
