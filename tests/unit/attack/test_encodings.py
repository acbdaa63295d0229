"""InstaHide and mixup, and the attack that reads private pictures out of them."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from discreet.attack.encodings import Decoded, EncodingsAttack
from discreet.attack.pictures import ssim
from discreet.errors import InvalidValue
from discreet.heuristic import InstaHide

SIDE, OWN = 24, 40


def blobs(count, rng):
    """Smooth pictures with values within -1 and 1."""
    rough = gaussian_filter(rng.normal(size=(count, SIDE, SIDE, 3)), (0, 2.5, 2.5, 0.8))
    return np.tanh(1.5 * rough / rough.std()).astype(np.float32)


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(7)
    return blobs(OWN, rng), np.arange(OWN) % 4, blobs(400, rng), blobs(400, rng)


def attacked(world, *, labels=True, repeats=50, seed=0, **recipe):
    own, classes, public, known = world
    sent = InstaHide(**recipe).encode(own, public, repeats=repeats, rng=np.random.default_rng(seed), labels=classes)
    attack = EncodingsAttack(OWN, restarts=4, mirror=recipe.get("mirror", False))
    found = attack.decode(sent.pictures, known, labels=sent.labels if labels else None)
    return found, found.compared(own, known)


def test_encodings_with_labels_give_every_picture_away(world):
    found, beside = attacked(world)
    assert found.signs
    assert beside.found == OWN
    assert beside.ssim.mean() > 0.8 > 0.6 > beside.baseline.mean()
    assert sorted(found.labels.tolist()) == sorted(world[1].tolist())


def test_mixtures_without_labels_are_grouped_and_read(world):
    """With signs flipped too, made-up pictures are too much alike; bench/instahide.py reads photographs."""
    _, beside = attacked(world, labels=False, signs=False)
    assert beside.found >= OWN - 4
    assert beside.ssim.mean() > 0.85


def test_plain_mixup_is_recognised_and_solved(world):
    found, beside = attacked(world, signs=False)
    assert not found.signs
    assert beside.found == OWN
    assert beside.ssim.mean() > 0.9


def test_a_whole_one_time_pad_gives_nothing_away(world):
    """The twin that holds: values drawn anew for every pixel, with the labels of real encodings."""
    own, classes, public, known = world
    rng = np.random.default_rng(3)
    sent = InstaHide().encode(own, public, repeats=50, rng=rng, labels=classes)
    padded = rng.uniform(-1, 1, sent.pictures.shape)
    beside = EncodingsAttack(OWN, restarts=2).decode(padded, known, labels=sent.labels).compared(own, known)
    assert beside.ssim.mean() < beside.baseline.mean()
    assert beside.found <= 2


def test_pictures_of_noise_are_not_found(world):
    """Half of them are nearest to the original that they are given to, since they are given to it for that."""
    own, _, _, known = world
    noise = np.random.default_rng(0).uniform(-1, 1, own.shape).astype(np.float32)
    for guess in (noise, known[:OWN]):
        assert Decoded(guess, None, None, True, 0.0).compared(own, known).found <= 1
        assert Decoded(guess, None, None, True, 0.0, mirror=True).compared(own, known).found <= 1
    turned = Decoded(own[:, :, ::-1], None, None, True, 0.0, mirror=True).compared(own, known)
    assert turned.found == OWN
    assert turned.ssim.min() > 0.999
    assert Decoded(own[:, :, ::-1], None, None, True, 0.0).compared(own, known).found < OWN


def test_pictures_that_were_mirrored_by_coins_are_read(world):
    found, beside = attacked(world, mirror=True)
    assert beside.found == OWN
    assert beside.ssim.mean() > 0.75
    assert len(found.pictures) == OWN
    assert sorted(found.labels.tolist()) == sorted(world[1].tolist())


def test_the_encoding_is_as_published(world):
    own, classes, public, _ = world
    sent = InstaHide(largest=0.5).encode(own, public, repeats=20, rng=np.random.default_rng(1), labels=classes)
    assert sent.key.shares.max() <= 0.5
    assert (sent.key.rows[:, 0] != sent.key.rows[:, 1]).all()
    assert (np.bincount(sent.key.rows[:, 0]) == 20).all()
    np.testing.assert_allclose(sent.labels.sum(axis=1), sent.key.shares.sum(axis=1), rtol=1e-6)
    # Fair coins: the share of positive pixels is within 6 standard deviations of a half.
    assert abs((sent.pictures > 0).mean() - 0.5) < 3 / np.sqrt(sent.pictures.size)


def test_mirrored_pictures_are_mirrored_in_half_of_their_encodings(world):
    own, _, public, _ = world
    sent = InstaHide(public=0, private=2, largest=0.9, signs=False, mirror=True).encode(
        own, public, repeats=2, rng=np.random.default_rng(1)
    )
    one = sent.key.rows[0], sent.key.shares[0], sent.key.mirrored[0]
    parts = [share * (own[row][:, ::-1] if turned else own[row]) for row, share, turned in zip(*one)]
    np.testing.assert_allclose(sent.pictures[0], sum(parts), atol=1e-6)


def test_pictures_are_moved_by_no_more_than_was_said(world):
    own, _, public, _ = world
    recipe = InstaHide(public=0, private=2, largest=0.9, signs=False, crop=2)
    sent = recipe.encode(own, public, repeats=20, rng=np.random.default_rng(1))
    assert set(np.unique(sent.key.moved).tolist()) == {-2, -1, 0, 1, 2}
    padded = np.pad(own, ((0, 0), (2, 2), (2, 2), (0, 0)))
    for place in range(50):
        parts = [
            share * padded[row, 2 - down : 2 - down + SIDE, 2 - across : 2 - across + SIDE]
            for row, share, (down, across) in zip(sent.key.rows[place], sent.key.shares[place], sent.key.moved[place])
        ]
        np.testing.assert_allclose(sent.pictures[place], sum(parts), atol=1e-6)


@pytest.mark.parametrize(
    ("encodings", "labels", "says"),
    [
        (np.full((30, SIDE, SIDE, 3), np.nan), None, "finite pictures"),
        (np.full((30, SIDE, SIDE, 3), 7.0), None, "within -1 and 1"),
        (np.zeros((30, SIDE, SIDE)), None, "finite pictures"),
        (np.zeros((30, 20, SIDE, 3)), None, "must agree"),
        (np.zeros((20, SIDE, SIDE, 3)), None, "at least 80"),
        (np.zeros((90, SIDE, SIDE, 3)), np.ones((29, 4)), "labels must be shares"),
        (np.zeros((90, SIDE, SIDE, 3)), np.eye(4)[np.arange(90) % 4], "name two classes"),
    ],
)  # fmt: skip
def test_what_cannot_be_attacked_is_said(world, encodings, labels, says):
    with pytest.raises(InvalidValue, match=says):
        EncodingsAttack(OWN).decode(encodings, world[3], labels=labels)


@pytest.mark.parametrize("change", [{"largest": 0.2}, {"private": 0}, {"public": -1}, {"crop": -1}])
def test_recipes_that_cannot_be_are_refused(change):
    with pytest.raises(InvalidValue):
        InstaHide(**change)


def test_ssim_by_the_formula():
    """One window, computed plainly."""
    rng = np.random.default_rng(2)
    one, two = rng.random((1, 11, 11, 1)), rng.random((1, 11, 11, 1))
    line = np.exp(-(np.arange(-5, 6) ** 2) / 4.5)
    window = np.outer(line, line) / np.outer(line, line).sum()
    a, b = one[0, :, :, 0], two[0, :, :, 0]
    ma, mb = (window * a).sum(), (window * b).sum()
    va, vb, ab = (window * a * a).sum() - ma**2, (window * b * b).sum() - mb**2, (window * a * b).sum() - ma * mb
    wanted = (2 * ma * mb + 1e-4) * (2 * ab + 9e-4) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))
    assert ssim(one, two)[0] == pytest.approx(wanted, rel=1e-9)
