"""What people bring to a membership attack: models that name their classes, give probabilities, lack a class, or cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from discreet.attack import Recipe, membership
from discreet.attack.membership import high_loss_screen, splits, train_shadows, validation
from discreet.attack.membership.whitebox import from_shadows, gradient_norms
from discreet.errors import InvalidValue
from discreet.heuristic.defences import l2
from discreet.models import Trainer, predict
from discreet.models.predict import as_logits, logarithms

DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(120, 5)).astype(np.float32), DRAW.integers(0, 3, 120)
INSIDE, OUTSIDE = (X[:60], Y[:60]), (X[60:], Y[60:])


def tree(seed: int = 0, **more: Any) -> Any:
    return pytest.importorskip("sklearn.tree").DecisionTreeClassifier(random_state=seed, **more)


def flat(rows: Any) -> np.ndarray:
    return np.zeros((len(rows), 3))


@pytest.mark.parametrize("names", [np.array([1, 2, 3]), np.array([-1, 5, 40]), np.array(["cat", "dog", "eel"])])
def test_a_classifier_numbers_its_own_classes(names: np.ndarray) -> None:
    """A model of classes 1 to 3 was once asked about the column after the label's, without a word."""
    known = Y < 2  # with the last class the shift would have been refused, as out of range
    inside, outside = ((rows[known[part]], labels[known[part]]) for (rows, labels), part in
                       ((INSIDE, slice(0, 60)), (OUTSIDE, slice(60, 120))))  # fmt: skip
    plain = membership(tree().fit(*INSIDE), None, inside, outside, attacks=["loss", "label"])
    named = tree().fit(X[:60], names[Y[:60]])
    found = membership(named, None, (inside[0], names[inside[1]]), (outside[0], names[outside[1]]), attacks=["loss", "label"])
    for name in plain:
        assert np.array_equal(found[name].score, plain[name].score)
    assert found["label"].auc() > 0.7  # a full tree knows its rows


def test_labels_that_a_classifier_does_not_know() -> None:
    model = tree().fit(*INSIDE)
    with pytest.raises(InvalidValue, match=r"1 of 60 labels of the nonmembers are none of the model's 3 classes"):
        membership(model, None, INSIDE, (X[60:], np.where(np.arange(60) == 3, 7, Y[60:])), attacks=["loss"])
    with pytest.raises(InvalidValue, match="None of the labels of the members"):
        membership(model, None, (X[:60], X[:60, 0]), OUTSIDE, attacks=["loss"])


def test_shadows_that_lack_a_class_keep_their_columns_in_place() -> None:
    """A half without class 1 gives two columns of scikit-learn, and the second of them is class 2."""
    labels = np.where(np.arange(120) == 0, 1, 2 * (Y > 0))
    inside = np.stack([np.arange(120) >= 60, np.arange(120) < 60])
    scores = train_shadows(Recipe(tree()), X, labels, inside).scores
    assert scores.shape == (2, 120, 3)
    for said, marks in zip(scores, inside):
        assert (said.argmax(1)[marks] == labels[marks]).all()  # a full tree is right about its own rows
    assert (scores[0, :, 1] < scores[0].min(1) + 1e-6).all()  # what it never saw is least likely

    def fit(rows: np.ndarray, marks: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        return tree().fit(rows, marks).predict_proba

    with pytest.raises(InvalidValue, match=r"got shape \(120, 2\). A class that is not among the rows"):
        train_shadows(Recipe(fit, kind="fit"), X, labels, inside)


def test_probabilities_are_taken_by_their_logarithm() -> None:
    def fit(take: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Any]:
        return lambda rows, labels: lambda asked: take(tree(max_depth=3).fit(rows, labels).predict_proba(asked))

    given = {"shadows": 4, "attacks": ["bayes_lira", "lira", "loss", "rmia"]}
    said, logs = (membership(fit(take)(*INSIDE), Recipe(fit(take), kind="fit"), INSIDE, OUTSIDE, **given)
                  for take in (lambda law: law, logarithms))  # fmt: skip
    for name in said:
        assert np.allclose(said[name].score, logs[name].score)
    logits = np.array([[2.0, -1.0], [0.5, 0.5]])
    assert as_logits(logits) is logits  # one row that sums to 1 is no law
    assert predict.logits(lambda rows: np.full((len(rows), 2), 0.5), X).max() == np.log(0.5)


def test_nothing_is_half_of_the_least_that_was_said() -> None:
    """At 1e-12 a forest's zeros lay so far out that Gaussians told much less of it."""
    assert np.exp(logarithms(np.array([[0.0, 1.0], [0.2, 0.8]]))).round(9).tolist() == [[0.1, 1.0], [0.2, 0.8]]
    assert logarithms(np.array([[0.0, 1.0], [1e-30, 1.0]])).min() == np.log(1e-12)


@pytest.mark.parametrize(("ours", "theirs"), [
    (X, X.astype(np.float64)), (X.astype(np.float64), X), (np.zeros((120, 2)), -np.zeros((120, 2))),
    (np.ones((120, 2), np.int64), np.ones((120, 2), np.float32)),
    (np.array([[str(v)] for v in X[:, 0]], object), np.array([[str(v)] for v in X[:, 0]], object)),
])  # fmt: skip
def test_rows_on_both_sides_are_found_in_any_type(ours: np.ndarray, theirs: np.ndarray) -> None:
    labels = np.zeros(120, int)
    with pytest.raises(InvalidValue, match=r"10 of 20 nonmembers are members too \(the first is nonmember 0\)|20 of 20"):
        membership(flat, None, (ours[:60], labels[:60]), (theirs[50:70], labels[50:70]), attacks=["loss"])


def test_rows_of_a_population_that_are_in_question_count_as_seen() -> None:
    Z = np.concatenate([X[:3], X[:1], 9.0 + X[:2]])
    marks = np.array([[1, 0, 0, 0, 1, 1], [0, 1, 0, 1, 0, 0]], bool)
    saw = validation.trained_on(Z, X[:4].astype(np.float64), marks)
    assert saw.tolist() == [[True, False, False, False], [True, True, False, False]]


class Words(nn.Module):
    """Looks its inputs up; `whole` says whether it makes them whole numbers first."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.table, self.last, self.whole = nn.Embedding(9, 4), nn.Linear(4, 3), whole

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.table(x.long() if self.whole else x).mean(1))


ONE = nn.Linear(5, 3)
WRONG = [
    (lambda: ONE, "the same weights each time"),
    (lambda: nn.Linear(5, 2), "a logit for each of 3 classes"),
    (lambda: nn.Linear(5, 1), r"it gave \(2, 1\). One output for two classes is a second column"),
    (lambda: nn.Linear(4, 3), r"cannot be asked about rows of shape \(5,\)"),
    (lambda: nn.LazyLinear(3), "lazy layers"),
    (lambda: Words(whole=False), r"say x.long\(\) in its forward"),
    (lambda: 3, "it made a int"),
    (lambda rows, labels: nn.Linear(5, 3), "kind='fit'"),
    (lambda: nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)), "60 rows in batches of 59 leave a last batch of one row"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "told"), WRONG)
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_recipes_that_cannot_be_trained_say_why(build: Any, told: str) -> None:
    recipe = Recipe(build, epochs=1, batch_size=59)
    with pytest.raises(InvalidValue, match=told):
        train_shadows(recipe, X, Y, splits(120, 2, seed=0))
    with pytest.raises(InvalidValue, match=told):
        Trainer(recipe).one(*INSIDE)


def test_a_module_is_no_recipe() -> None:
    with pytest.raises(InvalidValue, match=r"every model needs a fresh one: Recipe\(lambda: Linear"):
        Recipe(nn.Linear(5, 3))
    with pytest.raises(InvalidValue, match=r"got Defended; of a defence give its .recipe"):
        membership(flat, l2(Recipe(lambda: nn.Linear(5, 3)), 0.1), INSIDE, OUTSIDE)  # type: ignore[arg-type]


def test_a_recipe_that_ends_in_a_softmax_is_told() -> None:
    recipe = Recipe(lambda: nn.Sequential(nn.Linear(5, 3), nn.Softmax(1)), epochs=1)
    with pytest.warns(UserWarning, match="Leave its last softmax out"):
        scores = train_shadows(recipe, X, Y, splits(120, 2, seed=0)).scores
    assert np.allclose(np.exp(scores).sum(2), 1.0, atol=1e-5)


def test_targets_that_cannot_be_asked_say_why() -> None:
    with pytest.raises(InvalidValue, match=r"say x.long\(\) in its forward"):
        membership(Words(whole=False), None, INSIDE, OUTSIDE, attacks=["loss"])
    for single in (lambda rows: np.zeros(len(rows)), lambda rows: np.zeros((len(rows), 1))):
        with pytest.raises(InvalidValue, match=r"One score z for two classes: give \[0, z\]. Labels alone"):
            membership(single, None, INSIDE, OUTSIDE, attacks=["loss"])
    with pytest.raises(InvalidValue, match="what a regression predicts is no class"):
        membership(flat, None, (X[:60], X[:60, 0]), OUTSIDE, attacks=["loss"])
    with pytest.raises(InvalidValue, match=r"shadows must be at least 2, .* got 1. Without any: attacks=loss"):
        membership(flat, Recipe(lambda: nn.Linear(5, 3)), INSIDE, OUTSIDE, shadows=1)


def test_shadows_that_diverge_are_told() -> None:
    recipe = Recipe(
        lambda: nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 3)), epochs=40, optimizer="sgd", learning_rate=1e30
    )
    with pytest.raises(InvalidValue, match="4 of 4 shadows give NaN or infinite scores: the recipe's training diverged"):
        membership(flat, recipe, INSIDE, OUTSIDE, shadows=4)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reads, self.last = nn.LSTM(1, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.reads(x[:, :, None])[0][:, -1])


def test_recurrent_networks_are_trained_one_after_another() -> None:
    marks = splits(120, 2, seed=0)
    scores = train_shadows(Recipe(Recurrent, epochs=30, learning_rate=3e-2), X, np.where(X[:, 4] > 0, 2, 0), marks).scores
    assert (scores.argmax(2) == np.where(X[:, 4] > 0, 2, 0)).mean() > 0.8


def test_dropout_draws_the_same_again() -> None:
    recipe = Recipe(lambda: nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)), epochs=3)
    first, second = (train_shadows(recipe, X, Y, splits(120, 4, seed=0), seed=7).scores for _ in range(2))
    assert np.array_equal(first, second)


def test_gradients_of_a_network_with_layers_that_do_not_learn() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    model[0].requires_grad_(False)
    norms, _ = gradient_norms(model, X[:3], Y[:3])
    for row, label, found in zip(torch.from_numpy(X[:3]), torch.from_numpy(Y[:3]), norms):
        loss = nn.functional.cross_entropy(model(row[None]), label[None])
        wanted = [float(g.norm()) for g in torch.autograd.grad(loss, list(model[2].parameters()))]
        assert np.allclose(found, wanted, rtol=1e-4)


def test_inputs_that_are_looked_up_are_not_disturbed() -> None:
    words = DRAW.integers(0, 9, (120, 5))
    sides = (words[:60], Y[:60]), (words[60:], Y[60:])
    target = Words(whole=True)
    assert {"noise", "boundary"}.isdisjoint(membership(target, None, *sides, attacks="all"))
    with pytest.raises(InvalidValue, match="noise disturbs inputs by noise; this target looks its inputs up"):
        membership(target, None, *sides, attacks=["noise"])


def test_inputs_that_are_text_are_neither_disturbed_nor_learned_from() -> None:
    words = np.array([[f"{a:.1f}", f"{b:.2f}"] for a, b in X[:, :2]], object)
    sides = (words[:60], Y[:60]), (words[60:], Y[60:])
    assert set(membership(flat, None, *sides, attacks="all")) == {"loss", "confidence", "entropy", "label"}
    with pytest.raises(InvalidValue, match="quantile needs inputs that are numbers"):
        membership(flat, None, *sides, attacks=["quantile"])


@pytest.mark.parametrize("labels", [Y - 1, Y + 0.5, np.array(["a", "b", "c"])[Y], np.eye(3)[Y]])
def test_shadows_are_trained_on_classes_alone(labels: np.ndarray) -> None:
    """A label of -1 once went to where it pointed."""
    for recipe in (Recipe(lambda: nn.Linear(5, 3), epochs=1), Recipe(lambda rows, marks: flat, kind="fit")):
        with pytest.raises(InvalidValue, match="labels must be whole numbers from 0"):
            train_shadows(recipe, X, labels, splits(120, 2, seed=0))


def test_what_the_users_own_training_stops_with_is_told_as_theirs() -> None:
    def fit(rows: np.ndarray, labels: np.ndarray) -> Any:
        raise ValueError("needs two classes")

    with pytest.raises(InvalidValue, match="The training of the recipe stopped on 60 rows with ValueError: needs two classes"):
        train_shadows(Recipe(fit, kind="fit"), X, Y, splits(120, 2, seed=0))


def test_smallest_cases() -> None:
    recipe = Recipe(lambda: nn.Linear(5, 3), epochs=1)
    with pytest.raises(InvalidValue, match="give at least two of each"):
        membership(flat, recipe, (X[:1], Y[:1]), (X[1:2], Y[1:2]), attacks=["loss"], controls=True)
    with pytest.raises(InvalidValue, match=r"give target.float\(\)"):
        membership(nn.Linear(5, 3).double(), None, INSIDE, OUTSIDE, attacks=["loss"])
    assert membership(nn.Flatten(), None, (X[:60, :3], Y[:60]), (X[60:, :3], Y[60:]), attacks=["loss"])["loss"].auc() > 0
    with pytest.raises(InvalidValue, match="of kind 'fit' and builds none"):
        from_shadows(nn.Linear(5, 3), Recipe(lambda rows, labels: flat, kind="fit"), X, Y)
    named = tree().fit(X[:60], Y[:60] + 1)
    plain = tree().fit(*INSIDE)
    assert high_loss_screen(named, (X[:60], Y[:60] + 1), (X[60:], Y[60:] + 1), level=0.2) == high_loss_screen(
        plain, INSIDE, OUTSIDE, level=0.2
    )
