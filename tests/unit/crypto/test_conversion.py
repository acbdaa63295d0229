"""Converted models say what the models say, for everything that convert takes; what it cannot follow is refused.

Linear models are compared without encryption on rows far larger than those of training (to rounding), and some with it (within
the stated error, which each of fewer than 20,000 scores exceeds less than once in 1e10). False-alarm rate: 2e-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import discriminant_analysis, linear_model, neural_network, svm
from sklearn.cross_decomposition import PLSRegression
from sklearn.multiclass import OneVsRestClassifier

from discreet import crypto, learn, record
from discreet.crypto.links import applied, is_link, with_margin
from discreet.crypto.model import Layer, Model
from discreet.crypto.plan import Plan
from discreet.crypto.polynomial import ACTIVATIONS, fit
from discreet.errors import InvalidDocument, InvalidValue

rng = np.random.default_rng(5)
ROWS = rng.standard_normal((600, 4)).clip(-4, 4)
TWO = (ROWS[:, 0] - ROWS[:, 1] + 0.3 > 0).astype(int)
THREE = np.digitize(ROWS[:, 0] + ROWS[:, 2], [-0.7, 0.7])
REAL = ROWS @ [1.0, -2.0, 0.5, 0.0] + 0.3
FAR = np.concatenate([ROWS, 30 * ROWS[:50], np.zeros((1, 4))])
PRIVATE: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "unit": record(), "norm": 4.0}


def said(model: Any, rows: np.ndarray) -> np.ndarray:
    """What the model itself says."""
    for name in ("predict_proba", "decision_function", "predict"):
        if hasattr(model, name) and (name != "predict_proba" or hasattr(model, "classes_")):
            found = np.asarray(getattr(model, name)(rows), float)
            found = found[:, None] if found.ndim == 1 else found
            two = name == "predict_proba" and found.shape[1] == 2 and len(model.classes_) == 2
            return found[:, 1:] if two and np.allclose(found.sum(axis=1), 1) else found
    raise AssertionError(model)


def ours() -> list[Any]:
    found = [
        learn.LogisticRegression(**PRIVATE, classes=classes, margin=margin, fit_intercept=intercept, solver=solver).fit(ROWS, y)
        for classes, y in (([0, 1], TWO), ([0, 1, 2], THREE))
        for margin in (0.0, 0.25, 1.0, 3.0)
        for intercept, solver in ((True, "objective"), (False, "objective"), (True, "output"))
    ]
    for classes, y in (([0, 1], TWO), ([0, 1, 2], THREE)):
        found += [learn.LinearSVC(**PRIVATE, classes=classes, width=width).fit(ROWS, y) for width in (0.5, 1.0)]
    for intercept in (True, False):
        found.append(learn.LinearRegression(**PRIVATE, bounds=(-6, 10), fit_intercept=intercept).fit(ROWS, REAL))
        found.append(learn.Ridge(**PRIVATE, bounds=(-1, 2), alpha=2.0, fit_intercept=intercept).fit(ROWS, REAL))
    return found


def scikit_learns() -> list[Any]:
    found = [linear_model.LogisticRegression(fit_intercept=i).fit(ROWS, y) for i in (True, False) for y in (TWO, THREE)]
    found += [
        linear_model.SGDClassifier(loss=loss, random_state=0).fit(ROWS, y)
        for loss in ("log_loss", "hinge")
        for y in (TWO, THREE)
    ]
    found += [one.fit(ROWS, y) for y in (TWO, THREE) for one in (
        discriminant_analysis.LinearDiscriminantAnalysis(), linear_model.RidgeClassifier(), linear_model.Perceptron(),
        svm.LinearSVC(random_state=0),
    )]  # fmt: skip
    several = np.stack([REAL, -REAL + ROWS[:, 3]], axis=1)
    found += [linear_model.LinearRegression().fit(ROWS, several), linear_model.LinearRegression(positive=True).fit(ROWS, REAL)]
    found += [one.fit(ROWS, REAL) for one in (
        linear_model.Ridge(fit_intercept=False), linear_model.Lasso(0.01), linear_model.HuberRegressor(),
        linear_model.BayesianRidge(), linear_model.TweedieRegressor(power=0), svm.SVR(kernel="linear"),
    )]  # fmt: skip
    return [
        *found,
        svm.SVC(kernel="linear").fit(ROWS, TWO),
        linear_model.SGDClassifier(random_state=0).fit(ROWS, TWO).sparsify(),
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("models", [ours, scikit_learns])
def test_a_converted_model_says_what_the_model_says(models: Any) -> None:
    for model in models():
        converted = crypto.convert(model)
        wanted = said(model, FAR)
        found = applied(converted(FAR), converted.link)
        assert np.abs(found - wanted).max() < 1e-9 * (1 + np.abs(wanted).max()), model
        assert crypto.Model.from_json(converted.to_json()).link == converted.link


def test_decrypted_scores_are_within_the_stated_error_of_what_the_model_says() -> None:
    secret, public = crypto.keygen("linear", features=4)
    for model in ours():
        converted = crypto.convert(model)
        request = crypto.encrypt(secret, ROWS[:200])
        scores = crypto.decrypt(secret, crypto.Scorer(converted).score(public, request), request=request)
        assert np.abs(scores - said(model, ROWS[:200])).max() < crypto.error_bound(converted, public), model


@pytest.mark.filterwarnings("ignore")
def test_what_convert_cannot_follow_is_refused() -> None:
    class Clipped(linear_model.LinearRegression):
        def predict(self, X: Any) -> Any:
            return super().predict(X).clip(-100, 100)

    class Squared(learn.LogisticRegression):
        def predict_proba(self, X: Any) -> Any:
            shares = super().predict_proba(X) ** 2
            return shares / shares.sum(axis=1, keepdims=True)

    poisson = neural_network.MLPRegressor(hidden_layer_sizes=(3,), loss="poisson", max_iter=20, random_state=0)
    for model in (
        linear_model.PoissonRegressor().fit(ROWS, np.exp(REAL / 4)), linear_model.GammaRegressor().fit(ROWS, np.exp(REAL / 4)),
        linear_model.SGDClassifier(loss="modified_huber", random_state=0).fit(ROWS, TWO), Clipped().fit(ROWS, REAL),
        svm.SVC(kernel="linear").fit(ROWS, THREE), PLSRegression(1).fit(ROWS + 3, REAL),
        Squared(**PRIVATE, classes=[0, 1]).fit(ROWS, TWO), poisson.fit(ROWS, np.exp(REAL / 4)),
    ):  # fmt: skip
        with pytest.raises(InvalidValue, match="cannot be converted"):
            crypto.convert(model, radius=5.0)
    private = learn.LogisticRegression(**PRIVATE, classes=[0, 1]).fit(ROWS, TWO)
    with pytest.raises(InvalidValue, match="no margin"):
        crypto.convert(private, radius=5.0, encrypted_sigmoid=True)


@pytest.mark.filterwarnings("ignore")
def test_networks_are_within_the_error_of_their_polynomials() -> None:
    several = np.stack([TWO, ROWS[:, 2] > 0], axis=1)
    for activation in ("relu", "tanh", "logistic"):
        for y, kind in ((TWO, "MLPClassifier"), (THREE, "MLPClassifier"), (several, "MLPClassifier"), (REAL, "MLPRegressor")):
            fitted = getattr(neural_network, kind)(
                hidden_layer_sizes=(5,), activation=activation, max_iter=60, random_state=0
            ).fit(ROWS, y)
            first, last = fitted.coefs_
            inner = np.abs(ROWS @ first + fitted.intercepts_[0]).max()
            converted = crypto.convert(fitted, radius=float(inner))
            error = converted.layers[0].activation.error * np.abs(last).sum(axis=0).max()  # type: ignore[union-attr]
            assert np.abs(applied(converted(ROWS), converted.link) - said(fitted, ROWS)).max() <= error + 1e-9


def test_modules_of_torch_are_what_they_compute() -> None:
    nn = torch.nn
    torch.manual_seed(0)

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.act, self.two = nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(x + self.act(self.one(x)))

    linear = nn.Linear(4, 1)
    for module, link in (
        (linear, "identity"),  # a regression is no logistic model
        (nn.Linear(4, 3, bias=False), "identity"),
        (nn.Sequential(nn.Dropout(), linear), "identity"),
        (nn.Sequential(nn.Identity(), linear), "identity"),
        (nn.Sequential(linear, nn.Sigmoid()), "logistic"),
        (nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1)), "softmax"),
    ):
        found = crypto.convert(module)
        wanted = module.eval()(torch.tensor(ROWS, dtype=torch.float32)).detach().numpy()
        assert found.link == link
        assert np.abs(applied(found(ROWS), found.link) - wanted).max() < 1e-5
    encrypted = crypto.convert(nn.Sequential(linear, nn.Sigmoid()), radius=5.0, encrypted_sigmoid=True)
    assert (encrypted.link, encrypted.purpose) == ("probability", "logistic")
    with pytest.raises(InvalidValue, match="with a Sigmoid at the end"):
        crypto.convert(linear, radius=5.0, encrypted_sigmoid=True)
    hooked = nn.Linear(4, 1)
    hooked.register_forward_hook(lambda _module, _rows, scores: 2 * scores)
    for module in (
        Residual(),
        hooked,
        nn.Sequential(nn.Linear(4, 4), nn.GELU("tanh"), linear),
        nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=0)),
    ):
        with pytest.raises(InvalidValue, match="cannot be converted"):
            crypto.convert(module, radius=5.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_model_without_numbers_is_none(bad: float) -> None:
    for weights, bias in (([[1.0, bad]], [0.0]), ([[1.0, 2.0]], [bad])):
        with pytest.raises(InvalidValue, match="must be finite"):
            crypto.Model((Layer(np.array(weights), np.array(bias)),), "identity")


def test_links_do_not_stretch_an_error() -> None:
    scores = np.concatenate([rng.normal(0, scale, (300, 3)) for scale in (0.5, 5, 50, 1000)])
    moved = scores + rng.uniform(-1e-3, 1e-3, scores.shape)
    for link in (
        "logistic",
        "softmax",
        "one-vs-rest",
        *(with_margin(n, m) for n in ("logistic", "one-vs-rest") for m in (0.1, 1, 9)),
    ):
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            assert np.abs(applied(scores, link) - applied(moved, link)).max() <= 0.5e-3 + 1e-12


@pytest.mark.parametrize(
    "word", ["logistic:0", "logistic:-1.0", "logistic:1", "logistic:nan", "softmax:1.0", "logistic:", 1, None, []]
)
def test_words_that_are_no_link(word: object) -> None:
    assert not is_link(word)


LINEAR = Model((Layer(np.array([[1.0, 2.0, 3.0]]), np.array([0.0])),), "identity", ("a", "b", "c"))


def test_columns_are_compared_by_name() -> None:
    secret, public = crypto.keygen("linear", features=3)
    table = pd.DataFrame({"a": [1.0], "b": [0.5], "c": [-1.0]})
    score = crypto.Scorer(LINEAR).score
    asked = crypto.Encrypted.from_bytes(crypto.encrypt(secret, table).to_bytes())
    assert np.abs(crypto.decrypt(secret, score(public, asked)) + 1).max() < 1e-3
    with pytest.raises(InvalidValue, match="another order"):
        score(public, crypto.encrypt(secret, table[["b", "a", "c"]]))
    with pytest.raises(InvalidValue, match="lack 'c' and have 'd'"):
        score(public, crypto.encrypt(secret, table.rename(columns={"c": "d"})))
    with pytest.raises(InvalidValue, match="names must be different"):
        crypto.encrypt(secret, table, names=["a", "a", "b"])
    score(public, crypto.encrypt(secret, table.to_numpy()))  # numbers without names: nothing to compare


def test_names_are_kept_in_the_document_and_checked() -> None:
    frame = pd.DataFrame(ROWS, columns=list("wxyz"))
    found = crypto.convert(linear_model.LogisticRegression().fit(frame, TWO))
    assert crypto.Model.from_json(found.to_json()).names == ("w", "x", "y", "z")
    for names in (["w"], "wxyz", ["w", "w", "y", "z"], [1, 2, 3, 4], ["a" * 300, "b", "c", "d"]):
        with pytest.raises(InvalidDocument, match="names must be"):
            crypto.Model.from_json({**found.to_json(), "names": names})


@pytest.mark.parametrize("size", [1e-6, 1.0, 300.0, 1e4, 1e6])
@pytest.mark.parametrize("bias", [0.0, 1e4])
def test_links_are_told_apart_however_large_the_weights_are(size: float, bias: float) -> None:
    """Both saturate on rows of ordinary size; on rows where scores are a few units they differ by up to .1."""
    base = linear_model.SGDClassifier(loss="modified_huber", fit_intercept=True).fit(ROWS, TWO)
    base.coef_, base.intercept_ = size * np.array([[1.0, -0.5, 0.25, 0.0]]), np.array([bias])
    with pytest.raises(InvalidValue, match="another function"):
        crypto.convert(base)
    right = linear_model.LogisticRegression().fit(ROWS, TWO)
    right.coef_, right.intercept_ = base.coef_, base.intercept_
    assert crypto.convert(right).link == "logistic"
    linear = torch.nn.Linear(4, 1)
    with torch.no_grad():
        linear.weight[:], linear.bias[:] = torch.tensor(base.coef_), bias

    class Clamped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.sigmoid = linear, torch.nn.Sigmoid()

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return torch.clamp(self.linear(rows) + 0.5, 0, 1)

    with pytest.raises(InvalidValue, match="something else than its layers"):
        crypto.convert(Clamped())
    assert crypto.convert(torch.nn.Sequential(linear, torch.nn.Sigmoid())).link == "logistic"


def test_small_and_large_weights_of_several_classes() -> None:
    model = linear_model.LogisticRegression().fit(ROWS, THREE)
    for size in (1e-8, 1e8):
        model.coef_, model.intercept_ = size * model.coef_, size * model.intercept_
        assert crypto.convert(model).outputs == 3
        model = linear_model.LogisticRegression().fit(ROWS, THREE)
    both = OneVsRestClassifier(linear_model.LogisticRegression()).fit(ROWS, THREE)
    parts = np.concatenate([each.coef_ for each in both.estimators_])
    for size in (1.0, 1e6):
        model.coef_, model.intercept_ = size * parts, np.zeros(3)
        assert crypto.convert(model).link == "softmax"


@pytest.mark.parametrize("radius", [0.0, 1e-300, 1e-10, 9e-4, 64.1, float("nan"), True])
def test_a_radius_that_no_polynomial_can_have(radius: float) -> None:
    for name in ACTIVATIONS:
        with pytest.raises(InvalidValue, match=r"radius must be from 0\.001"):
            fit(name, radius)
    with pytest.raises(InvalidValue, match="radius"):
        Plan(2, 50, 1, 1.0, 1.0, radius=radius)
    with pytest.raises(InvalidValue, match="third power"):
        Plan(2, 50, 1, 1.0, 1.0, radius=0.001)


def test_the_smallest_radius_is_scored_within_the_stated_error() -> None:
    secret, public = crypto.keygen("network", features=2)
    rows = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    request = crypto.encrypt(secret, rows, bound=1.0)
    for name in ACTIVATIONS:
        hidden = Layer(np.array([[4e-4, -5e-4]]), np.array([1e-5]), fit(name, 1e-3))
        model = Model((hidden, Layer(np.array([[2.0]]), np.array([1.0]))), "identity")
        found = crypto.decrypt(secret, crypto.Scorer(model).score(public, request))
        assert np.abs(found - model(rows)).max() <= crypto.error_bound(model, public, bound=1.0), name
