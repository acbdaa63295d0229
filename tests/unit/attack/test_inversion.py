"""Pictures of classes, recreated from a classifier."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import nn

from discreet.attack.inversion import ClassInversion, DecoderPrior, PicturePrior, Recreated
from discreet.attack.stealing import Oracle
from discreet.errors import InvalidValue, ModelUnreachable

SHAPE, PEOPLE = (16, 12, 1), 8


def faces(count, each, rng):
    """A common face, a person's own, and what changes from picture to picture."""

    def smooth(number, width):
        rough = gaussian_filter(rng.normal(size=(number, *SHAPE)), (0, width, width, 0))
        return rough / rough.std()

    common = gaussian_filter(np.random.default_rng(0).normal(size=(1, *SHAPE)), (0, 3, 3, 0))
    own = np.repeat(smooth(count, 1.5), each, axis=0)
    return np.clip(0.5 + 0.1 * common / common.std() + 0.1 * own + 0.04 * smooth(count * each, 1.0), 0, 1)


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(5)
    public, private = faces(30, 4, rng), faces(PEOPLE, 8, rng)
    who = np.repeat(np.arange(PEOPLE), 8)
    train, held = np.arange(len(who)) % 8 < 5, np.arange(len(who)) % 8 >= 5
    torch.manual_seed(0)
    model = nn.Linear(int(np.prod(SHAPE)), PEOPLE)
    rows, labels = torch.tensor(private[train].reshape(train.sum(), -1), dtype=torch.float32), torch.tensor(who[train])
    search = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(200):
        loss = nn.functional.cross_entropy(model(rows), labels)
        search.zero_grad()
        loss.backward()
        search.step()
    means = np.stack([private[held & (who == person)].mean(axis=0) for person in range(PEOPLE)])

    def recognise(pictures):
        """Correlation with held-out pictures of each person, both minus the public mean."""
        flat = [np.asarray(part).reshape(len(part), -1) - public.mean(axis=0).ravel() for part in (pictures, means)]
        left, right = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in flat)
        return left @ right.T

    def confidences(pictures):
        with torch.no_grad():
            return model(torch.tensor(pictures.reshape(len(pictures), -1), dtype=torch.float32)).softmax(dim=1).numpy()

    return public, model, recognise, confidences


@pytest.mark.parametrize("method", ["white-box", "black-box", "label-only"])
def test_every_person_is_recognised(world, method):
    public, model, recognise, confidences = world
    attack = ClassInversion(PicturePrior.learned(public, 100), steps=120)
    if method == "white-box":
        before = [each.clone() for each in model.parameters()]
        found = attack.from_gradients(model, range(PEOPLE))
        assert all(torch.equal(*pair) for pair in zip(before, model.parameters()))
    elif method == "black-box":
        found = attack.from_scores(confidences, range(PEOPLE))
    else:
        found = attack.from_labels(lambda pictures: confidences(pictures).argmax(axis=1), range(PEOPLE))
    blind = np.repeat(public.mean(axis=0)[None] + 1e-3, PEOPLE, axis=0)
    risk, rank = found.compared(recognise, np.arange(PEOPLE), blind)
    assert found.method == method
    # A guess is right once in 8: six of eight are, by chance, four times in 100,000; draws are seeded.
    assert risk.members >= 6 / 8 > risk.control
    assert (rank == 0).mean() == risk.members
    assert found.pictures.shape == (PEOPLE, *SHAPE)


def test_a_model_that_learned_nothing_shows_nobody(world):
    """The twin: labels were shuffled away, so the pictures are of no one."""
    public, _, recognise, _ = world
    torch.manual_seed(1)
    found = ClassInversion(PicturePrior.learned(public, 100)).from_gradients(nn.Linear(192, PEOPLE), range(PEOPLE))
    risk, _ = found.compared(recognise, np.arange(PEOPLE), np.repeat(public.mean(axis=0)[None] + 1e-3, PEOPLE, axis=0))
    assert risk.members <= 0.5


def test_a_prior_without_public_pictures(world):
    _, model, recognise, _ = world
    prior = PicturePrior.plain(SHAPE, 100)
    found = ClassInversion(prior).from_gradients(model, range(PEOPLE))
    risk, _ = found.compared(recognise, np.arange(PEOPLE), np.full((PEOPLE, *SHAPE), 0.5))
    assert risk.members >= 0.5


def test_convolutions_are_given_pictures():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 14 * 10, 3))
    found = ClassInversion(PicturePrior.plain(SHAPE), steps=2).from_gradients(model, [0, 2])
    assert found.pictures.shape == (2, *SHAPE)
    assert model.training


def test_what_cannot_be_asked_is_said(world):
    public, model, _, confidences = world
    attack = ClassInversion(PicturePrior.learned(public), steps=2)
    with pytest.raises(InvalidValue, match="from_labels"):
        attack.from_scores(lambda pictures: confidences(pictures).argmax(axis=1), [0])
    with pytest.raises(InvalidValue, match="class 9 among them"):
        attack.from_gradients(model, [9])
    with pytest.raises(InvalidValue, match="whole numbers"):
        attack.from_gradients(model, [])
    with pytest.raises(InvalidValue, match="two or more finite"):
        PicturePrior.learned(public[:1])
    with pytest.raises(InvalidValue, match="height, width, channels"):
        PicturePrior.plain((3, 4))


def test_answers_that_are_none_are_said(world):
    public, _, _, confidences = world
    attack = ClassInversion(PicturePrior.learned(public), steps=2)
    with pytest.raises(InvalidValue, match="NaN or infinity"):
        attack.from_scores(lambda pictures: np.full((len(pictures), PEOPLE), np.nan), [0])
    with pytest.raises(InvalidValue, match="one line of numbers"):
        attack.from_scores(lambda pictures: confidences(pictures)[:-1], [0])
    with pytest.raises(InvalidValue, match="use from_scores"):
        attack.from_labels(confidences, [0])
    with pytest.raises(InvalidValue, match="Number its labels"):
        attack.from_labels(lambda pictures: np.array(["ann"] * len(pictures)), [0])
    broken = nn.Linear(192, 3)
    with torch.no_grad():
        broken.bias.fill_(float("nan"))
    with pytest.raises(InvalidValue, match="NaN or infinity"):
        attack.from_gradients(broken, [0])


def test_an_interface_that_fails_is_waited_for_and_gone_on_with(world, tmp_path):
    """The same pictures, whatever failed on the way; what a journal holds is not asked for again."""
    public, _, _, confidences = world
    attack, asked, waits = ClassInversion(PicturePrior.learned(public, 50), steps=6, draws=4), [], []

    def flaky(rows):
        asked.append(len(rows))
        if len(asked) == 3:
            raise ModelUnreachable("too many", retry_after=2.0)
        return confidences(rows)

    whole = attack.from_scores(confidences, [0, 1])
    oracle = Oracle(flaky, sleep=waits.append, journal=tmp_path / "answers")
    np.testing.assert_array_equal(attack.from_scores(oracle, [0, 1]).pictures, whole.pictures)
    assert waits == [2.0]
    asked.clear()
    again = attack.from_scores(Oracle(flaky, journal=tmp_path / "answers"), [0, 1])
    assert not asked
    np.testing.assert_array_equal(again.pictures, whole.pictures)


def test_a_recogniser_that_cannot_decide_recognises_nobody():
    """Scores that are all alike counted as everybody recognised."""
    found = Recreated(np.zeros((3, 12, 12, 1)), np.arange(3), "white-box", 1)
    risk, rank = found.compared(lambda seen: np.zeros((len(seen), 5)), [0, 1, 2], found.pictures)
    assert (risk.members, risk.control, rank.tolist()) == (0.0, 0.0, [4, 4, 4])
    with pytest.raises(InvalidValue, match="NaN"):
        found.compared(lambda seen: np.full((len(seen), 5), np.nan), [0, 1, 2], found.pictures)


def test_a_decoder_of_public_pictures_is_a_prior(world):
    """People are recognised from what it draws more often than by chance, one in eight, and what it draws are pictures."""
    public, model, recognise, _ = world
    prior = DecoderPrior.learned(public, code=8, steps=400)
    points = np.random.default_rng(0).normal(size=(5, 3, prior.size))
    assert prior.pictures(points).shape == (5, 3, int(np.prod(SHAPE)))
    with torch.no_grad():
        np.testing.assert_allclose(prior.drawn(torch.tensor(points[0])).numpy(), prior.pictures(points[0]))
    far = prior.pictures(points * 1e6)
    assert abs(far - public.mean()).max() < 2  # what is drawn is bounded, however far the point
    found = ClassInversion(prior).from_gradients(model, range(PEOPLE))
    risk, _ = found.compared(recognise, np.arange(PEOPLE), np.repeat(public.mean(axis=0)[None] + 1e-3, PEOPLE, axis=0))
    assert risk.members >= 0.5
    again = DecoderPrior.learned(public, code=8, steps=400)
    np.testing.assert_array_equal(again.pictures(points), prior.pictures(points))
    with pytest.raises(InvalidValue, match="are left to learn from"):
        DecoderPrior.learned(public[:2], held_out=0.6)
