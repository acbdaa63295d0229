"""Any model is queried the same way: modules, Hugging Face outputs, classifiers, functions, servers, finished runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from discreet.attack import membership
from discreet.errors import InvalidValue
from discreet.models import Http, Recipe, Trainer, adapt, predict, splits

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(30, 4)).astype(np.float32)
Y = DRAW.integers(0, 3, 30)
WEIGHT = DRAW.normal(size=(4, 3)).astype(np.float32)


def linear() -> nn.Linear:
    model = nn.Linear(4, 3, bias=False)
    model.weight.data = torch.as_tensor(WEIGHT.T.copy())
    return model


class HuggingFace(nn.Module):
    """Answers with an object that has logits, as transformers' classifiers do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.kept = linear(), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> Any:
        return SimpleNamespace(logits=self.inner(self.kept(x)))


class Handler(BaseHTTPRequestHandler):
    answer: Any = None

    def do_POST(self) -> None:
        rows = np.asarray(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["instances"])
        body = json.dumps({"predictions": (rows @ WEIGHT).tolist()} if self.answer is None else self.answer).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/models/triage:predict"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("model", [linear(), HuggingFace(), lambda rows: rows @ WEIGHT, SimpleNamespace(model=linear())])
def test_every_kind_of_model_gives_the_same_scores(model: Any) -> None:
    if isinstance(model, nn.Module):
        model.train()
    assert np.allclose(predict.scores(model, X), X @ WEIGHT, atol=1e-5)
    assert np.array_equal(predict.labels(model, X), (X @ WEIGHT).argmax(1))
    assert not isinstance(model, nn.Module) or model.training  # as it was before


def test_a_server_is_asked_in_batches(url: str) -> None:
    model = Http(url, batch=7)
    assert np.allclose(predict.scores(model, X), X @ WEIGHT, atol=1e-5)
    found = membership(model, None, (X[:15], Y[:15]), (X[15:], Y[15:]), attacks=["loss"])
    same = membership(lambda rows: rows @ WEIGHT, None, (X[:15], Y[:15]), (X[15:], Y[15:]), attacks=["loss"])
    assert np.allclose(found["loss"].score, same["loss"].score, atol=1e-5)


def test_a_server_that_answers_otherwise_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidValue, match="must begin with http"):
        Http("file:///etc/passwd")
    with pytest.raises(InvalidValue, match="did not answer"):
        Http("http://127.0.0.1:1/", timeout=1.0).scores(X)
    for answer, reason in (({"scores": []}, "must answer"), ({"predictions": [[1.0]]}, "for 30 rows")):
        monkeypatch.setattr(Handler, "answer", answer)
        with pytest.raises(InvalidValue, match=reason):
            Http(url).scores(X)


def test_gradients_of_a_module_are_those_of_torch() -> None:
    model = linear()
    norms = adapt(model).gradient_norms(X[:5], Y[:5])
    for row, label, norm in zip(torch.as_tensor(X[:5]), torch.as_tensor(Y[:5]), norms):
        model.zero_grad()
        nn.functional.cross_entropy(model(row[None]), label[None]).backward()
        assert norm[0] == pytest.approx(float(model.weight.grad.norm()), rel=1e-5)


class Plan:
    """A training plan, private or not: `fit(data)` gives a finished run that holds its model."""

    def fit(self, data: tuple[np.ndarray, np.ndarray]) -> Any:
        inputs, labels = data
        model = linear()
        model.weight.data += torch.as_tensor(np.stack([inputs[labels == c].sum(0) for c in range(3)]))
        return SimpleNamespace(model=model)


def test_a_training_plan_is_a_recipe() -> None:
    recipe = Recipe(Plan())
    assert recipe.kind == "trainer"
    inside = splits(30, 4, 0)
    scores = Trainer(recipe).many(X, Y, inside).scores
    for own, chosen in zip(scores, inside):
        assert np.allclose(own, predict.scores(Plan().fit((X[chosen], Y[chosen])).model, X), atol=1e-4)
    assert np.allclose(Trainer(recipe).one(X, Y)(X), predict.scores(Plan().fit((X, Y)), X), atol=1e-4)
    by_function = Recipe(lambda inputs, labels: Plan().fit((inputs, labels)), kind="fit")
    assert np.allclose(Trainer(by_function).many(X, Y, inside).scores, scores)
    with pytest.raises(InvalidValue, match="fit must give a function from rows to scores, or a model; it gave a int"):
        Trainer(Recipe(lambda inputs, labels: 3, kind="fit")).one(X, Y)


@pytest.mark.parametrize("build", [
    lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)),
    lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2), nn.Flatten(), nn.Linear(4, 3)),
])  # fmt: skip
def test_one_model_is_that_of_many_with_its_seed(build: Any) -> None:
    recipe = Recipe(build, epochs=3, batch_size=8)
    inside = splits(30, 3, 1)
    scores = Trainer(recipe).many(X, Y, inside, seed=5).scores
    for k in range(3):
        alone = Trainer(recipe).one(X[inside[k]], Y[inside[k]], seed=5 + k, classes=3)
        assert np.allclose(predict.scores(alone, X), scores[k], atol=1e-5)


def test_a_loss_and_an_end_of_ones_own() -> None:
    recipe = Recipe(lambda: nn.Linear(4, 3), epochs=9, batch_size=10)
    sizes, ended = [], []

    def loss(forward: Any, rows: Any, labels: Any, epoch: int) -> Any:
        sizes.append(len(rows))
        return 0.0 * forward(rows).sum()

    model = Trainer(recipe).one(X[:21], Y[:21], loss=loss, after_epoch=lambda _, epoch: ended.append(epoch) or epoch == 1)
    assert ended == [0, 1]
    assert sorted(sizes) == [10, 10, 11, 11]  # never a batch of one row
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert torch.equal(model.weight, nn.Linear(4, 3).weight)  # a loss without a slope teaches nothing
