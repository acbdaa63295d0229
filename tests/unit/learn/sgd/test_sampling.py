"""Who takes part in a step: the law of the draw, what it depends on, and the event that it names."""

from __future__ import annotations

import hmac
import random
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from discreet.core import event as events
from discreet.errors import InvalidValue
from discreet.learn.sgd.sampling import BallsInBins, Poisson, stripe
from discreet.noise import sampling
from discreet.noise.sampling import placed

KEY = bytes(range(32))
NOISE = events.Gaussian(1.0)


def stream(key: bytes, purpose: bytes, step: int, count: int) -> bytes:
    """The keystream, written out again: what the draws must be made of."""
    own = hmac.digest(key, b"discreet sampling: " + purpose, "sha256")
    return Cipher(algorithms.AES(own), modes.CTR(step.to_bytes(8, "big") + bytes(8))).encryptor().update(bytes(count))


def one_by_one(rate: float, key: bytes, step: int, units: int) -> list[int]:
    """The slow, obvious draw: one 64-bit number per unit against the rate, in whole numbers."""
    most, taken, asked = int(Fraction(rate) * 2**64), [], 0
    first, more = stream(key, b"poisson", step, 2 * units), stream(key, b"poisson more", step, 8 * units)
    for unit in range(units):
        number = int.from_bytes(first[2 * unit : 2 * unit + 2], "little")
        if number == most >> 48:
            rest = int.from_bytes(more[8 * asked : 8 * asked + 8], "little") >> 16
            asked += 1
        else:
            rest = 0
        if number << 48 | rest < most:
            taken.append(unit)
    return taken


@pytest.mark.parametrize("rate", [1e-3, 0.25, 0.3, 0.999, 5 / 65536 + 2**-20, 1.0])
def test_every_unit_has_a_number_of_its_own(rate):
    for step in (0, 1, 2**40):
        drawn = Poisson(rate).draw(KEY, step, 3000)
        assert drawn.dtype == np.int64
        assert drawn.tolist() == one_by_one(rate, KEY, step, 3000)


def test_units_undecided_by_their_first_digits_ask_for_more(monkeypatch):
    """At rate 2^-17 the first 16 bits never take a unit: all are taken, or not, by the second keystream."""
    monkeypatch.setattr(sampling, "BLOCK", 1000)  # blocks change nothing either
    assert Poisson(2.0**-17).draw(KEY, 3, 200_000).tolist() == one_by_one(2.0**-17, KEY, 3, 200_000)


def test_blocks_change_nothing(monkeypatch):
    whole = Poisson(0.01).draw(KEY, 7, 100_000)
    monkeypatch.setattr(sampling, "BLOCK", 777)
    assert np.array_equal(Poisson(0.01).draw(KEY, 7, 100_000), whole)


def test_a_draw_depends_on_key_step_and_nothing_else():
    first = Poisson(0.1).draw(KEY, 5, 5000)
    np.random.seed(0)
    random.seed(0)
    assert np.array_equal(Poisson(0.1).draw(KEY, 5, 5000), first)
    assert not np.array_equal(Poisson(0.1).draw(KEY, 6, 5000), first)
    assert not np.array_equal(Poisson(0.1).draw(bytes(32), 5, 5000), first)


def test_one_more_unit_leaves_the_others_as_they_were():
    drawn = Poisson(0.1).draw(KEY, 5, 5001)
    assert np.array_equal(drawn[drawn < 5000], Poisson(0.1).draw(KEY, 5, 5000))


def test_steps_and_purposes_share_no_keystream():
    """One key may serve noise, sampler and bins: no block of 16 bytes of one is a block of another."""
    pieces = [stream(KEY, purpose, step, 16 * 200) for purpose in (b"poisson", b"poisson more", b"bins") for step in range(5)]
    raw = Cipher(algorithms.AES(KEY), modes.CTR(bytes(16))).encryptor().update(bytes(16 * 200))  # the key used bare
    blocks = [piece[i : i + 16] for piece in [*pieces, raw] for i in range(0, len(piece), 16)]
    assert len(set(blocks)) == len(blocks)


def test_empty_batches_are_real():
    sizes = [Poisson(0.01).draw(KEY, step, 20).size for step in range(500)]
    assert sizes.count(0) > 300  # 0.99^20 = 0.82 of them; fewer than 300 with probability below 1e-20
    assert Poisson(0.5).draw(KEY, 0, 0).size == 0
    assert Poisson(1e-300).draw(KEY, 0, 1000).size == 0


def test_the_event_is_that_of_the_draw():
    assert Poisson(0.01).event(NOISE, 100) == events.Repeat(events.Poisson(0.01, NOISE), 100)


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 1000])
def test_every_unit_is_in_one_step_of_every_pass(bins):
    sampler = BallsInBins(bins)
    for number in (0, 3):
        drawn = [sampler.draw(KEY, number * bins + place, 2000) for place in range(bins)]
        assert all(np.all(np.diff(part) > 0) for part in drawn)
        assert sorted(np.concatenate(drawn).tolist()) == list(range(2000))
        assert drawn[0].dtype == np.int64


def test_steps_of_balls_in_bins_may_be_asked_for_in_any_order():
    kept = BallsInBins(5)
    in_order = {step: kept.draw(KEY, step, 300).tolist() for step in range(20)}
    for step in (17, 2, 18, 3):
        assert kept.draw(KEY, step, 300).tolist() == in_order[step]
        assert BallsInBins(5).draw(KEY, step, 300).tolist() == in_order[step]
    assert kept.draw(KEY, 3, 301).tolist()[: len(in_order[3])] == in_order[3]  # one more unit changes no other
    assert kept.draw(bytes(32), 3, 300).tolist() != in_order[3]


def test_passes_differ_and_empty_steps_are_real():
    sampler = BallsInBins(50)
    sizes = [sampler.draw(KEY, step, 20).size for step in range(100)]
    assert sizes.count(0) > 30
    assert sampler.draw(KEY, 0, 5000).tolist() != sampler.draw(KEY, 50, 5000).tolist()


def test_a_place_is_a_word_scaled_down_and_uneven_words_are_drawn_again():
    """With 3 x 2^30 places a quarter of all words are uneven; the law of what is left is uniform by counting words."""
    places = 3 << 30
    words = np.frombuffer(stream(KEY, b"p", 0, 4 * 1000), "<u4").astype(object)
    low = [word * places % 2**32 for word in words]
    found = placed(KEY, b"p", 0, 1000, places)
    kept = [i for i in range(1000) if low[i] >= 2**32 % places]
    assert 650 < len(kept) < 850
    assert all(found[i] == words[i] * places >> 32 for i in kept)
    assert found.min() >= 0
    assert found.max() < places


@pytest.mark.parametrize("places", [3, 6, 12])
def test_kept_words_are_even(places):
    """For 8-bit words in place of 32-bit ones: every place has as many words as any other."""
    counts = np.bincount([word * places >> 8 for word in range(256) if word * places % 256 >= 256 % places], minlength=places)
    assert set(counts.tolist()) == {256 // places}


def test_a_pass_that_is_broken_off_counts_as_a_whole_one():
    assert BallsInBins(10).event(NOISE, 20) == events.Repeat(events.RandomAllocation(NOISE, 10), 2)
    assert BallsInBins(10).event(NOISE, 21) == events.Repeat(events.RandomAllocation(NOISE, 10), 3)
    assert BallsInBins(10).rate == 0.1


def test_stripes_share_a_batch_out():
    drawn = Poisson(0.1).draw(KEY, 1, 1000)
    stripes = [stripe(drawn, rank, 3) for rank in range(3)]
    assert sorted(np.concatenate(stripes).tolist()) == drawn.tolist()
    assert max(map(len, stripes)) - min(map(len, stripes)) <= 1
    assert stripe(drawn[:1], 2, 3).size == 0


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda: Poisson(0.0), "rate must be above 0"),
        (lambda: Poisson(1.5), "rate must be between 0 and 1"),
        (lambda: Poisson(0.1).draw(b"short", 0, 10), "key must be 32 bytes"),
        (lambda: Poisson(1.0).draw("key", 0, 10), "got str"),
        (lambda: Poisson(0.1).draw(KEY, -1, 10), "step must be at least 0"),
        (lambda: Poisson(0.1).draw(KEY, 0, -1), "units must be at least 0"),
        (lambda: Poisson(0.1).event(NOISE, 0), "steps must be at least 1"),
        (lambda: BallsInBins(0), "bins must be at least 1"),
        (lambda: BallsInBins(3).draw(b"short", 0, 10), "key must be 32 bytes"),
        (lambda: BallsInBins(3).draw(KEY, -1, 10), "step must be at least 0"),
        (lambda: stripe(np.arange(3), 3, 3), "rank must be at most 2"),
    ],
)
def test_what_makes_no_sense_is_refused(act, says):
    with pytest.raises(InvalidValue, match=says):
        act()
