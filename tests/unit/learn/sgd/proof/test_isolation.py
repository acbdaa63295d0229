"""Which path a run takes and what it says of it; that both come to the same sums, and that nothing else is released changed."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from torch import nn

import discreet
from discreet.errors import InvalidValue
from discreet.learn import Augment, Checkpoint, Performance, PerLayer
from discreet.learn.sgd.canary import watch
from discreet.learn.sgd.clipping import CLIPPINGS, Flat
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.isolated import Isolated
from discreet.learn.sgd.path import Path
from discreet.learn.sgd.proof import NotProven, traced
from discreet.learn.sgd.proof.python import Watch, put_back
from discreet.noise.source import seeded_for_tests
from unit.learn.tools import start, updates

torch.set_num_threads(1)
EACH = nn.CrossEntropyLoss(reduction="none")
X, Y = torch.randn(11, 6, generator=torch.Generator().manual_seed(0)), torch.arange(11) % 3


def net(**more):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


class Choosing(nn.Module):
    """Chooses by value, so that it can be neither proven nor vectorised."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x):
        return self.net(x) if bool(x.sum() < 1e6) else self.net(-x)


class Shouting(nn.Module):
    """Cannot be proven, since it keeps its last output, but vmap can follow it."""

    def __init__(self):
        super().__init__()
        self.net, self.last = net(), None

    def forward(self, x):
        self.last = self.net(x)
        return self.last


def begun(model, loss=EACH, **how):
    return start((X, Y), model=model, loss=loss, **how)


# Which path


def test_the_path_is_told_and_why():
    fast, apart, asked = begun(net()), begun(Choosing()), begun(net(), performance=Performance(path="isolated"))
    assert (fast.path, apart.path, asked.path) == ("fast", "isolated", "isolated")
    assert "operations keep every example's numbers apart" in fast.why
    assert "x.sum() < 1e6" in apart.why
    assert asked.why == "isolated was asked for"


def test_the_user_is_told_what_to_change(caplog):
    begun(Choosing())
    assert "every unit is computed by itself" in caplog.text
    assert "choose nothing by value" in caplog.text


def test_a_fast_path_without_a_proof_is_refused():
    with pytest.raises(InvalidValue, match=r"path='fast' was asked for.*x\.sum\(\) < 1e6"):
        begun(Choosing(), performance=Performance(path="fast"))
    with pytest.raises(InvalidValue, match="path must be one of fast, isolated"):
        begun(net(), performance=Performance(path="quick"))
    assert begun(net(), performance=Performance(path="fast")).path == "fast"


def test_the_proof_is_in_the_release(tmp_path):
    for model, path in ((net(), "fast"), (Choosing(), "isolated")):
        run = begun(model)
        list(run)
        told = run.release(tmp_path / path).facts["isolation"]
        assert told["path"] == path
        assert told["torch"] == torch.__version__
        document = json.loads((tmp_path / path / "release.json").read_text())
        if path == "fast":
            assert len(told["graphs"][0]) == 64
            assert told["operations"][0] > 20
        else:
            assert told["way"] == "one by one"
            assert "x.sum() < 1e6" in told["not_proven"][0]
        words = " ".join(document["claims"][0]["assumptions"])
        assert "keeps nothing outside the model" in words
        assert ("were checked for every operation" in words) == (path == "fast")


def test_a_proof_is_remembered_by_code_and_shapes(monkeypatch):
    begun(net())
    calls = []
    monkeypatch.setattr("discreet.learn.sgd.path.traced", lambda *given: calls.append(given) or traced(*given))
    begun(net())
    assert not calls
    begun(nn.Sequential(*net(), nn.ReLU()))
    begun(net(), loss=lambda out, y: EACH(out, y))
    assert len(calls) == 4  # of each its code, and what was recorded of it


def test_what_changes_between_steps_is_proven_again():
    class Warm(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.mix = net(), False

        def forward(self, x):
            return self.net(x - x.mean(0) if self.mix else x)

    model = Warm()
    run = begun(model, steps=4)
    steps = iter(run)
    next(steps)
    assert run.path == "fast"
    model.mix = True
    next(steps)
    assert run.path == "isolated"
    model.mix = False
    next(steps)
    assert run.path == "fast"
    type(model).forward = lambda self, x: self.net(x.cumsum(0))
    next(steps)
    assert run.path == "isolated"


def test_autocast_that_begins_later_is_proven_too():
    run = begun(net(), steps=2)
    steps = iter(run)
    next(steps)
    with torch.autocast("cpu", torch.bfloat16):
        next(steps)
    assert run.path == "fast"
    assert len(run._sum.paths.verdicts) == 2


def test_a_batch_of_one_is_not_computed_alone():
    """What is proven holds of two examples and more: a model must not be able to tell that there is one."""
    seen = []

    class Looking(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x):
            return self.net(x)

    model = Looking()
    run = start((X[:1], Y[:1]), model=model, loss=EACH)
    model.net.register_forward_hook(lambda module, given, out: None)
    run._sum.paths.fast, run._performance = lambda batch: True, Performance(check_rows=False)
    plain, run._sum.proven_losses = run._sum.proven_losses, lambda batch: seen.append(batch[0].shape[0]) or plain(batch)
    list(run)
    assert seen == [2]


def test_every_benchmark_layer_is_proven():
    """The kinds of layers of the benchmark's networks, and dropout, recurrent layers and attention."""
    torch.manual_seed(0)

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.read = nn.Embedding(9, 8), nn.LSTM(8, 4, batch_first=True, bidirectional=True)
            self.mix = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.read(self.mix(self.table(x)))[0].mean(1))

    images = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1),
                           nn.Conv2d(4, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))  # fmt: skip
    for model, rows in ((images, torch.randn(2, 1, 8, 8)), (Words(), torch.randint(9, (2, 7)))):
        seen = traced(model, lambda batch, model=model: EACH(model(batch[0]), batch[1]), (rows, Y[:2]))
        assert seen.count > 30


# Both paths come to the same


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("kind", [Choosing, Shouting])
def test_the_isolated_sum_is_that_of_the_units_one_by_one(kind, clipping):
    model = kind()
    engine, found, wanted = Engine(model), torch.zeros(53), torch.zeros(53)
    clip = CLIPPINGS[clipping](0.3)
    apart = Isolated(engine, lambda batch: EACH(model(batch[0]), batch[1]), [])
    apart.add((X, Y), None, clip, found, 0.5)
    assert apart.way == ("one by one" if kind is Choosing else "vmap"), apart.why
    for x, y in zip(X, Y):
        gradients = torch.autograd.grad(EACH(model(x[None]), y[None]).sum(), engine.parameters)
        layers = [torch.cat([gradients[i].flatten(), gradients[i + 1].flatten()]) for i in (0, 2)]
        groups = layers if clipping == "per_layer" else [torch.cat(layers)]
        squares = torch.stack([g.square().sum()[None] for g in groups])
        wanted += 0.5 * torch.cat([g * factor for g, factor in zip(groups, clip.factors(squares))])
    assert torch.allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize(
    "how", [{}, {"microbatch": 3}, {"clip_norm": None, "clipping": PerLayer(1.0)}, {"unit": discreet.user("who", rows=2)}]
)
def test_both_paths_release_the_same(how):
    if "unit" in how:
        how["owners"] = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    microbatch, seen = how.pop("microbatch", None), []
    for path in ("fast", "isolated"):
        with seeded_for_tests(b"both"):
            run = begun(net(), performance=Performance(path=path, microbatch=microbatch), **how)
            seen.append(torch.from_numpy(updates(run)))
    assert torch.allclose(*seen, atol=1e-5)


def test_a_loop_of_ones_own_is_given_one_unit_at_a_time():
    run, sizes = begun(Choosing()), []
    for x, y in run.batches():
        sizes.append(len(x))
        run.step(EACH(run.model(x), y))
    assert sizes == [1] * 11


class Steep(nn.Module):
    """Its output has the length of its own gradient in it, of which the engine knows no unit's share."""

    def __init__(self):
        super().__init__()
        self.net = net()

    @torch.enable_grad()
    def forward(self, x):
        x = x.detach().requires_grad_()
        out = self.net(x)
        return out + torch.autograd.grad(out.sum(), x, create_graph=True)[0].norm(dim=1, keepdim=True)


def test_what_the_engine_cannot_compute_is_computed_unit_by_unit_where_that_is_asked_for():
    with pytest.raises(InvalidValue, match=r'create_graph=True.*path="isolated"'):
        begun(Steep())
    run = begun(Steep(), performance=Performance(path="isolated"))
    assert updates(run).shape == (1, 53)
    for x, y in (run := begun(Steep(), performance=Performance(path="isolated"))).batches():
        run.step(EACH(run.model(x), y))
    assert run.number == 1


@pytest.mark.parametrize("path", ["fast", "isolated"])
def test_a_loop_of_ones_own_comes_to_the_same_sums(path):
    seen = []
    for own in (True, False):
        with seeded_for_tests(b"own"):
            run = begun(net(), performance=Performance(path=path))
            watch(run, lambda number, update: seen.append(update.clone()))
            for batch in run.batches() if own else run:
                if own:
                    run.step(EACH(run.model(batch[0]), batch[1]))
    assert torch.allclose(*seen, atol=1e-5)


def test_dropout_and_draws_differ_between_units():
    """On the isolated path too: eleven equal rows through dropout do not all give the same gradient."""
    model = nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5), nn.Linear(64, 3))
    apart = Isolated(Engine(model), lambda batch: EACH(model(batch[0]), batch[1]), [])
    gradients = apart.gradients((X[:1].expand(11, 6), Y[:1].expand(11)), None)["0.weight"].flatten(1)
    assert apart.way == "vmap"
    assert len(gradients.unique(dim=0)) > 5


# What is left behind


def test_a_trial_leaves_the_model_as_it_was():
    class Busy(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.calls, self.seen = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.2)), 0, []
            self.register_buffer("scale", torch.ones(3))

        def forward(self, x):
            self.calls += 1
            self.seen.append(len(x))
            self.last = x
            return self.net(x) * self.scale

    model = Busy()
    model.net[0].weight.grad = torch.ones(3, 6)
    model.net[1].eval()
    before = {name: it.clone() for name, it in model.state_dict().items()}
    state = torch.get_rng_state()
    run = train_on(model)
    assert torch.equal(state, torch.get_rng_state())
    assert (model.calls, model.seen, hasattr(model, "last")) == (0, [], False)
    assert [module.training for module in model.modules()] == [True, True, True, False]
    assert bool((model.net[0].weight.grad == 1).all())
    assert all(torch.equal(it, before[name]) for name, it in model.state_dict().items())
    assert run.path == "isolated"
    list(run)
    assert (model.calls, model.seen, hasattr(model, "last")) == (0, [], False)


def train_on(model):
    """A run that does not draw by itself."""
    plan = {"unit": discreet.record(), "noise_multiplier": 1.0, "delta": 1e-5, "rate": 1.0, "steps": 2, "clip_norm": 1.0}
    return discreet.learn.train(model, torch.optim.SGD(model.parameters(), 0.1), (X, Y), EACH, divisor=11.0, **plan)


class Saved(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.frozen = net(), nn.Parameter(torch.zeros(2), requires_grad=False)
        self.register_buffer("kept", torch.zeros(2))
        self.register_buffer("unsaved", torch.zeros(2), persistent=False)

    def forward(self, x):
        return self.net(x)


class Extra(Saved):
    extra = torch.zeros(1)

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


@pytest.mark.parametrize("what", ["frozen", "kept", "unsaved", "_extra_state"])
def test_what_is_not_trained_is_released_as_it_was_or_not_at_all(what, tmp_path):
    model = Extra()
    run = begun(model, steps=2, checkpoint=Checkpoint(tmp_path / "run", every=100))
    next(steps := iter(run))
    with torch.no_grad():
        if what == "_extra_state":
            model.extra = torch.ones(1)
        else:
            getattr(model, what)[0] = -0.0  # equal to what it was, but not the same bits
    for write in (lambda: run.release(tmp_path / "model"), lambda: run.save(tmp_path / "other"), lambda: next(steps)):
        with pytest.raises(InvalidValue, match=f"{what}: changed since the run began"):
            write()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.steps"]


def test_what_is_not_trained_is_released_where_it_was_put_back(tmp_path):
    model = Saved()
    run = begun(model, steps=1)
    list(run)
    model.kept += 1.0
    with pytest.raises(InvalidValue, match="kept: changed"):
        run.release(tmp_path / "model")
    model.kept -= 1.0
    assert run.release(tmp_path / "model").facts["isolation"]["path"] == "fast"


# What is watched


COUNT = 0


@pytest.mark.parametrize("where", ["global", "closure", "default", "attribute", "class", "count", "function"])
def test_what_code_keeps_is_seen_and_put_back(where):
    kept, number = [0], itertools.count()

    class Keeping(nn.Module):
        total = 0

        def forward(self, x, box=[0]):  # noqa: B006
            global COUNT
            if where == "global":
                COUNT += 1
            elif where == "closure":
                kept[0] += 1
            elif where == "default":
                box[0] += 1
            elif where == "attribute":
                self.calls = 1
            elif where == "class":
                type(self).total += 1
            elif where == "count":
                next(number)
            else:
                helper.calls = 1
            return x

    def helper():
        return helper

    model = Keeping()
    watch = Watch(model, [helper])
    assert watch.changed() is None
    model(X)
    assert watch.changed() is not None
    watch.restore()
    assert watch.changed() is None or where == "count"


def test_gradients_and_attributes_are_put_back_after_an_error():
    model = net()
    model.note = "before"

    def spoil():
        with put_back(model, []):
            model.note = "after"
            model[0].weight.grad = torch.ones(5, 6)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        spoil()
    assert model.note == "before"
    assert model[0].weight.grad is None


def test_an_augmentation_that_looks_at_the_batch_is_called_unit_by_unit():
    def centred(x):
        return x - 0.0 * x.mean(0) if x.abs().amax() < 50 else x - x.mean(0)

    def shifted(x):
        return x + 0.1 * torch.randn_like(x)

    far = X.clone()
    far[-1] = 60.0
    for augment, proven in ((centred, False), (shifted, True)):
        run = start((far, Y), model=net(), loss=EACH, augment=Augment(augment, copies=2))
        batch, _ = run._parts.rows.take(torch.arange(11).numpy(), torch.device("cpu"))
        assert run._parts.rows.apart._path.verdicts[-1].proven == proven
        if not proven:
            assert torch.equal(batch[0][:2], far[:1].expand(2, 6))


def test_a_custom_rule_for_vmap_is_not_used():
    class Mixes(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return g

        @staticmethod
        def vmap(info, in_dims, x):
            return x - x.mean(0), 0

    model = net()
    apart = Isolated(Engine(model), lambda batch: EACH(model(Mixes.apply(batch[0])), batch[1]), [])
    one, both = apart.gradients((X[:1], Y[:1]), None), apart.gradients((X[:2], Y[:2]), None)
    assert apart.way == "one by one"
    assert all(torch.allclose(one[name][0], both[name][0]) for name in one)


def test_reasons_name_the_line():
    model = net()
    with pytest.raises(
        NotProven, match=r"a statistic is taken over the batch \(mean\), at test_isolation\.py:\d+: .*mean\(0\)"
    ):
        traced(model, lambda batch: EACH(model(batch[0] - batch[0].mean(0)), batch[1]), (X, Y))
    assert Path(model, lambda batch: EACH(model(batch[0]), batch[1]), [], None).fast((X, Y))
    assert Flat(1.0).norm == 1.0
