"""Attacks are objects: each says what it needs, keeps to the protocol, and one from outside runs like those that are here."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from discreet.attack import membership, text
from discreet.attack.membership import ATTACKS, Comparison, MembershipAttack, Needs, Observation
from discreet.attack.membership.observation import compare
from discreet.attack.membership.run import Access
from discreet.attack.text import NGram, TextAttack, TextObservation, utf8
from discreet.attack.text.attacks import ReferencedObservation, TextNeeds
from discreet.core import Attack
from discreet.errors import InvalidValue
from discreet.models import Recipe, Shadows, Trainer

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(200, 5)).astype(np.float32)
Y = DRAW.integers(0, 2, 200)
INSIDE = np.arange(200) < 100
RECIPE = Recipe(lambda: nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 2)), epochs=30, learning_rate=1e-2)
MEMBERS, OTHERS = (X[INSIDE], Y[INSIDE]), (X[~INSIDE], Y[~INSIDE])
NAMES = [attack.name for attack in ATTACKS]


@pytest.fixture(scope="module")
def target() -> nn.Module:
    return Trainer(RECIPE).one(*MEMBERS)


@pytest.fixture(scope="module")
def seen(target: nn.Module) -> Comparison:
    marks = DRAW.random((4, 200)) < 0.5
    shadows = Shadows(DRAW.normal(size=(4, 200, 2)).astype(np.float32), marks)
    scores = target(np_to_torch(X)).detach().numpy().astype(np.float64)
    return compare(Observation(target, X, Y, scores, INSIDE), shadows)


def np_to_torch(rows: np.ndarray):
    import torch

    return torch.as_tensor(rows)


def test_there_are_sixteen_and_five_by_different_names() -> None:
    assert len(ATTACKS) == len(set(NAMES)) == 16
    assert [attack.name for attack in text.ATTACKS] == ["loss", "zlib", "min_k", "min_k_plus", "reference"]


@pytest.mark.parametrize("attack", ATTACKS, ids=NAMES)
def test_an_attack_scores_the_rows_it_is_asked_about(attack: MembershipAttack, seen: Comparison) -> None:
    assert isinstance(attack, Attack)
    assert isinstance(attack, MembershipAttack)
    every, some = attack.score(seen, range(200)), attack.score(seen, [7, 150, 3])
    assert every.shape == (200,)
    assert np.isfinite(every).all()
    assert np.array_equal(some, every[[7, 150, 3]])


@pytest.mark.parametrize("attack", [each for each in ATTACKS if not each.needs.shadows], ids=lambda each: each.name)
def test_an_attack_that_needs_no_shadows_looks_at_none(attack: MembershipAttack, seen: Comparison) -> None:
    plain = Observation(seen.model, seen.X, seen.y, seen.scores, seen.inside, seen.seed)
    assert np.array_equal(attack.score(plain, range(200)), attack.score(seen, range(200)))


@pytest.mark.parametrize("attack", [each for each in ATTACKS if not each.needs.known], ids=lambda each: each.name)
def test_an_attack_that_learns_from_no_known_row_reads_no_truth(attack: MembershipAttack, seen: Comparison) -> None:
    other = compare(Observation(seen.model, seen.X, seen.y, seen.scores, ~seen.inside, seen.seed), seen.shadows)
    assert np.array_equal(attack.score(other, range(200)), attack.score(seen, range(200)))


def test_what_is_lacking_is_named(target: nn.Module) -> None:
    rich = Access(target, recipe=True, population=False, rows=100, numeric=True, size=1000)
    assert [attack.name for attack in rich.choose("all")] == NAMES
    poor = Access(len, recipe=False, population=False, rows=10, numeric=False, size=1000)
    assert [attack.name for attack in poor.choose("all")] == ["loss", "confidence", "entropy", "label"]
    reasons = {attack.name: poor.lacks(attack.needs) for attack in ATTACKS}
    assert "recipe=Recipe" in reasons["lira"]
    assert "text or objects" in reasons["noise"]
    assert "as a torch module" in reasons["whitebox"]
    assert Access(target, True, True, 100, True, 1000).lacks(Needs(shadows=True, online=True)).endswith("leave population out.")


class Stranger:
    """An attack from outside the package: minus the number of the row, after a look at the shadows."""

    name, view, needs = "stranger", frozenset({"scores"}), Needs(shadows=True)

    def score(self, seen: Comparison, targets: range) -> np.ndarray:
        assert seen.shadows.scores.shape[1] == len(seen)
        return -np.asarray(targets, np.float64)


@pytest.mark.filterwarnings("ignore:The shadows are right")
def test_an_attack_from_outside_runs_like_the_others(target: nn.Module) -> None:
    result = membership(target, RECIPE, MEMBERS, OTHERS, attacks=[Stranger(), "loss"], shadows=2, controls=True)
    assert result["stranger"].auc() == 1.0  # members come first
    assert result["stranger"].attack == "stranger"
    assert set(result.controls.positive) == {"stranger", "loss"}
    assert len(result.shadows) == 2
    with pytest.raises(InvalidValue, match="stranger needs models like the target"):
        membership(target, None, MEMBERS, OTHERS, attacks=[Stranger()])
    with pytest.raises(InvalidValue, match="attacks must be"):
        membership(target, None, MEMBERS, OTHERS, attacks=["student"])


TEXTS = ["the cat sat on the mat", "a dog lay by the door", "birds fly", "fish swim in the sea"]


@pytest.mark.parametrize("attack", text.ATTACKS, ids=lambda each: each.name)
def test_a_text_attack_scores_the_texts_it_is_asked_about(attack: TextAttack) -> None:
    model, other = NGram([utf8(each) for each in TEXTS[:2]]), NGram([utf8("something else")])
    plain, beside = TextObservation(model, TEXTS), ReferencedObservation(target=model, texts=TEXTS, reference=other)
    assert isinstance(attack, Attack)
    assert isinstance(attack, TextAttack)
    every = attack.score(beside, range(4))
    assert np.array_equal(attack.score(beside, [2, 0]), every[[2, 0]])
    if not attack.needs.reference:
        assert np.array_equal(attack.score(plain, range(4)), every)
    told = text.text_membership(model, TEXTS[:2], TEXTS[2:], attacks=[attack], reference=other)
    assert np.array_equal(told[attack.name].score, every)


def test_a_text_attack_from_outside_runs_like_the_others() -> None:
    class Length:
        name, view, needs = "length", frozenset({"scores"}), TextNeeds()

        def signal(self, reading) -> float:
            return float(len(reading.tokens))

        def score(self, seen, targets) -> np.ndarray:
            return np.array([self.signal(seen.read(place)) for place in targets])

    found = text.text_membership(NGram([utf8("abc")]), TEXTS[:2], TEXTS[2:], attacks=[Length(), "loss"])
    assert found["length"].score.tolist() == [float(len(each)) for each in TEXTS]
