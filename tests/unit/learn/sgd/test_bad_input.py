"""What cannot be trained is refused with a way out, before anything is charged."""

from __future__ import annotations

import re
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

import discreet
from discreet.errors import DiscreetError, InvalidValue
from discreet.learn import Augment, BallsInBins, Performance, read, train

torch.set_num_threads(1)

X, Y = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)), torch.arange(20) % 2
EACH = nn.CrossEntropyLoss(reduction="none")
NAN = float("nan")


def go(model=None, optimizer=None, data=(X, Y), loss=EACH, **options):
    """Ask for a run and take it to its end."""
    model = nn.Linear(3, 2) if model is None else model
    optimizer = optimizer(model) if callable(optimizer) else torch.optim.SGD(model.parameters(), 0.1)
    given = {"unit": discreet.record(), "delta": 1e-5, "rate": 0.5, "steps": 4, "clip_norm": 1.0, **options}
    if "epsilon" not in given:
        given.setdefault("noise_multiplier", 1.0)
    run = train(model, optimizer, data, loss, **given)
    for _ in run:
        pass
    return run


@pytest.fixture
def ledger(tmp_path):
    made = discreet.Ledger(tmp_path / "ledger.db")
    made.open("people", unit=discreet.record(), epsilon=1000.0, delta=1e-2)
    return made


class Rows(Dataset):
    """Rows of a function, as many as it says."""

    def __init__(self, row, count=20):
        self.row, self.count = row, count

    def __len__(self):
        return self.count() if callable(self.count) else self.count

    def __getitem__(self, i):
        return self.row(i)


class NoLength(Dataset):
    def __getitem__(self, i):
        return X[i], Y[i]


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(X[0], Y[0])])


def sgd_of(other):
    return lambda model: torch.optim.SGD(other, 0.1)


# Of each: what is asked, and words of the answer that say what to do
REFUSED = {
    "nothing to train": ({"model": nn.Linear(3, 2).requires_grad_(False)}, "no trainable parameter"),
    "no parameter at all": ({"model": nn.ReLU(), "optimizer": sgd_of(nn.Linear(1, 1).parameters())}, "no trainable parameter"),
    "a model of wide numbers": ({"model": nn.Linear(3, 2).double(), "data": (X.double(), Y)}, r"float64.*model\.float\(\)"),
    "not a model": ({"model": 3, "optimizer": sgd_of(nn.Linear(1, 1).parameters())}, "must be a torch module; got int"),
    "not an optimizer": ({"optimizer": lambda model: "sgd"}, "must be a torch optimizer"),
    "parameters of another model": ({"optimizer": sgd_of(nn.Linear(3, 2).parameters())}, "that are not the model's"),
    "a parameter left out": ({"optimizer": lambda model: torch.optim.SGD([model.weight], 0.1)}, "bias: trainable, but not in"),
    "an optimizer with a closure": ({"optimizer": lambda model: torch.optim.LBFGS(model.parameters())}, "Use SGD or Adam"),
    "a sparse optimizer": ({"optimizer": lambda model: torch.optim.SparseAdam(model.parameters())}, "Use Adam"),
    "a reduced loss": ({"loss": nn.CrossEntropyLoss()}, r"got a single number. Use reduction='none'"),
    "a loss per token": ({"loss": lambda out, y: out}, "got a tensor of 2 axes"),
    "not a loss": ({"loss": "mse"}, "must be a function"),
    "a loss that is no tensor": ({"loss": lambda out, y: 1.0}, "got float"),
    "a loss without gradient": ({"loss": lambda out, y: EACH(out, y).detach()}, "was detached"),
    "a loss that is NaN": ({"loss": lambda out, y: EACH(out, y) * NAN}, "NaN or infinite"),
    "epsilon 0": ({"epsilon": 0}, "epsilon must be above 0; got 0"),
    "epsilon below 0": ({"epsilon": -1.0}, "epsilon must be above 0"),
    "epsilon NaN": ({"epsilon": NAN}, "epsilon must be finite"),
    "epsilon infinite": ({"epsilon": float("inf")}, "epsilon must be finite"),
    "epsilon and noise": ({"epsilon": 1.0, "noise_multiplier": 1.0}, "either epsilon or noise_multiplier"),
    "neither": ({"noise_multiplier": None}, "either epsilon or noise_multiplier"),
    "noise 0": ({"noise_multiplier": 0}, "noise_multiplier must be above 0"),
    "delta 0": ({"delta": 0}, "delta must be above 0"),
    "delta 1": ({"delta": 1}, "below 1"),
    "clip norm below 0": ({"clip_norm": -1}, "clip_norm must be above 0; got -1"),
    "clip norm 0": ({"clip_norm": 0}, "clip_norm must be above 0"),
    "a clip norm whose square is 0": ({"clip_norm": 1e-25}, "clip_norm must be at least 1e-15"),
    "clip norm infinite": ({"clip_norm": float("inf")}, "clip_norm must be finite"),
    "clip norm of words": ({"clip_norm": "1"}, "clip_norm must be a number"),
    "rate 0": ({"rate": 0}, "rate must be above 0"),
    "a batch size for a rate": ({"rate": 256}, "rate must be between 0 and 1; got 256"),
    "rate NaN": ({"rate": NAN}, "rate must be finite"),
    "no step": ({"steps": 0}, "steps must be at least 1"),
    "half a step": ({"steps": 1.5}, "steps must be a whole number"),
    "steps without end": ({"steps": 10**9}, "which cannot be meant"),
    "steps that reach nobody": ({"rate": 1e-4, "steps": 3}, "which cannot be meant"),
    "divisor 0": ({"divisor": 0}, "divisor must be above 0"),
    "microbatch 0": (lambda: {"performance": Performance(microbatch=0)}, "microbatch must be at least 1"),
    "no such clipping": ({"clip_norm": None, "clipping": "none"}, "clipping must be a value such as"),
    "no such sampling": ({"rate": None, "sampling": "shuffle"}, "sampling must be a value such as"),
    "no bins": (lambda: {"rate": None, "sampling": BallsInBins(0)}, "bins must be at least 1"),
    "a ledger that is not there": ({"ledger": "ledger.db"}, "There is no ledger at ledger.db"),
    "a source without a name": ({"source": ""}, "source"),
    "a unit's name": ({"unit": "record"}, r"discreet\.record\(\)"),
    "no rows": ({"data": (X[:0], Y[:0])}, "no row"),
    "no rows in a dataset": ({"data": TensorDataset(X[:0], Y[:0])}, "no row"),
    "lengths that differ": ({"data": (X, Y[:5])}, "as many rows each"),
    "inputs alone": ({"data": (X,)}, "inputs, targets"),
    "rows without a target": ({"data": Rows(lambda i: X[i])}, r"\(input, target\)"),
    "rows of words": ({"data": Rows(lambda i: ("word", Y[i]))}, "numbers and tensors"),
    "a dictionary": ({"data": {"x": X}}, "got dict"),
    "a loader with a sampler": (
        {"data": DataLoader(TensorDataset(X, Y), batch_size=4, sampler=WeightedRandomSampler([1.0] * 20, 20))},
        "sampler of its own",
    ),
    "a loader with batches of its own": (
        {"data": DataLoader(TensorDataset(X, Y), batch_sampler=[[0, 1], [2, 3]])}, "sampler of its own",
    ),
    "a loader of a stream": ({"data": DataLoader(Stream())}, "is a stream"),
    "records with owners": ({"owners": [0] * 20}, "all but one would be left out"),
    "a stream": ({"data": Stream()}, "A stream of rows cannot be sampled"),
    "no length": ({"data": NoLength()}, "has no length"),
    "nobody's rows": ({"unit": discreet.user("who", rows=2)}, "owners does not say whose row"),
    "owners of other rows": ({"unit": discreet.user("who", rows=2), "owners": [1, 2]}, "along one axis; got fewer"),
    "owners in a table": ({"unit": discreet.user("who", rows=2), "owners": np.zeros((20, 2))}, "one key for each"),
    "rows without an owner": ({"unit": discreet.user("who", rows=2), "owners": [NAN] * 20}, "without a key"),
    "owners partly missing": ({"unit": discreet.user("who", rows=2), "owners": ["a", None] * 10}, "without a key"),
    "copies without a change": (lambda: {"augment": Augment(None, copies=2)}, "augment must be a function"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group")
@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_way_out_and_nothing_charged(case, ledger):
    options, words = REFUSED[case]
    with pytest.raises(InvalidValue, match=words):
        go(**{"ledger": ledger, "source": "people", **(options() if callable(options) else options)})
    assert [entry.kind for entry in ledger.history("people")] == ["open"]
    assert ledger.spent("people") == 0


def test_the_same_without_the_fault_is_charged(ledger):
    """So that what is refused above is refused for its fault."""
    go(ledger=ledger, source="people", epsilon=1.0)
    assert ledger.spent("people") > 0


# Models whose examples influence each other


class Centred(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.layer, self.change = nn.Linear(3, 2), change

    def forward(self, x):
        return self.layer(self.change(x))


class Gated(nn.Module):
    """Weights that are 0 at first hide what is behind them."""

    def __init__(self):
        super().__init__()
        self.inner, self.layer = nn.Linear(3, 3), nn.Linear(3, 2)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x):
        return self.layer(self.inner(x - x.mean(0)))


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen += x.detach().sum(0)
        return self.layer(x)


class Crowded(nn.Module):
    """Two ways through, each with room for half of the batch; who comes late goes without."""

    def __init__(self):
        super().__init__()
        self.choose, self.ways = nn.Linear(3, 2), nn.ModuleList([nn.Linear(3, 2), nn.Linear(3, 2)])

    def forward(self, x):
        chosen = self.choose(x).softmax(1)
        out = torch.zeros(len(x), 2)
        for way, layer in enumerate(self.ways):
            wants = chosen.argmax(1) == way
            fits = wants & (wants.cumsum(0) <= len(x) // 2)
            out = out + fits[:, None] * chosen[:, way : way + 1] * layer(x)
        return out


COUPLED = {
    "mean": lambda: Centred(lambda x: x - x.mean(0)),
    "maximum": lambda: Centred(lambda x: x / x.abs().max()),
    "neighbour": lambda: Centred(lambda x: x + 0.1 * x.roll(1, 0)),
    "those after it": lambda: Centred(lambda x: x.flip(0).cumsum(0).flip(0)),
    "attention over the batch": lambda: Centred(lambda x: torch.softmax(x @ x.T, 1) @ x),
    "logarithm": lambda: Centred(lambda x: x.log() - x.log().mean(0)),
    "which way all go, above": lambda: Centred(lambda x: x if x.mean() > 0 else 2 * x),
    "which way all go, below": lambda: Centred(lambda x: x if x.mean() < 0 else 2 * x),
    "behind zeros": Gated,
    "room for few": Crowded,
    "BatchNorm": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)),
    "statistics kept": Remembers,
}


@pytest.mark.parametrize("case", COUPLED)
def test_examples_that_influence_each_other_are_refused(case, ledger):
    torch.manual_seed(5)
    model = COUPLED[case]()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(InvalidValue, match=r"another example|beside other examples|which part of a gradient|GroupNorm"):
        go(model, data=(X.abs() + 0.1, Y), ledger=ledger, source="people")
    assert ledger.spent("people") == 0
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())


def test_a_loss_normalised_by_the_batch_is_refused():
    with pytest.raises(InvalidValue, match="another example"):
        go(loss=lambda out, y: EACH(out, y) / EACH(out, y).detach().mean())


def test_weights_that_begin_at_zero_are_left_so():
    model = Centred(lambda x: x * 2)
    nn.init.zeros_(model.layer.weight)
    train(
        model, torch.optim.SGD(model.parameters(), 0.1), (X, Y), EACH, unit=discreet.record(), delta=1e-5, rate=0.5, steps=4,
        clip_norm=1.0, noise_multiplier=1.0,
    )  # fmt: skip
    assert not model.layer.weight.any()


@pytest.mark.parametrize("channels", [1, 2, 3, 8, 16, 48, 64])
@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d])
def test_what_a_batch_norm_is_to_be_replaced_by_works(kind, channels):
    with pytest.raises(InvalidValue, match=r"^The layer '1' of the model is BatchNorm") as caught:
        go(nn.Sequential(nn.Linear(3, channels), kind(channels)))
    advice = re.findall(r"nn\.(\w+)\(([\d, ]+)\)", str(caught.value))
    layers = [getattr(nn, name)(*map(int, sizes.split(","))) for name, sizes in advice]
    assert [type(layer) for layer in layers] == ([nn.LayerNorm, nn.GroupNorm] if kind is nn.BatchNorm1d else [nn.GroupNorm])
    if kind is nn.BatchNorm1d:
        assert layers[0](torch.randn(1, channels)).shape == (1, channels)
    deep = {nn.BatchNorm1d: (5,), nn.BatchNorm2d: (5, 5), nn.BatchNorm3d: (5, 5, 5)}[kind]
    assert layers[-1](torch.randn(1, channels, *deep)).shape == (1, channels, *deep)
    assert layers[-1].num_groups < channels or channels == 1  # else it would be an instance norm


def test_a_frozen_batch_norm_is_allowed():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[1].eval()
    assert go(model).number == 4


@pytest.mark.parametrize(
    "mix", [lambda x: 0.5 * x + 0.5 * x.flip(0), lambda x: x - x.mean(0), lambda x: x[torch.randperm(len(x))]]
)
def test_augmentation_that_mixes_examples_is_refused(mix):
    with pytest.raises(InvalidValue, match="mixup"):
        go(augment=Augment(mix, copies=2))


def test_augmentation_must_draw_from_torch():
    generator = np.random.default_rng(1)
    with pytest.raises(InvalidValue, match="from torch"):
        go(augment=lambda x: x * float(generator.random()))
    assert go(augment=Augment(lambda x: x + 0.1 * torch.randn_like(x), copies=3)).number == 4


# Data that are not what they were


def test_a_dataset_that_changes_its_length(ledger):
    count = [20]
    data = Rows(lambda i: (X[i % 20], Y[i % 20]), lambda: count[0])
    model = nn.Linear(3, 2)
    run = train(
        model, torch.optim.SGD(model.parameters(), 0.1), data, EACH, unit=discreet.record(), delta=1e-5, rate=1.0, steps=4,
        clip_norm=1.0, noise_multiplier=1.0, ledger=ledger, source="people",
    )  # fmt: skip
    steps = iter(run)
    next(steps)
    count[0] = 21
    with pytest.raises(InvalidValue, match="copy it first"):
        next(steps)
    assert [entry.kind for entry in ledger.history("people")] == ["open", "reserve"]
    assert ledger.spent("people") > 0


def test_rows_that_cannot_be_read_are_not_charged_unless_nobody_looks(ledger):
    """Without a look the fault is found in private rows, so nothing is given back."""
    for data in (Rows(lambda i: (X[i], Y[i]), 40), Rows(lambda i: (torch.zeros(3 + i // 10), Y[i]))):
        before = ledger.spent("people")
        with pytest.raises(InvalidValue, match="Nothing was charged"):
            go(data=data, rate=1.0, ledger=ledger, source="people")
        assert ledger.spent("people") == before
        with pytest.raises((IndexError, RuntimeError)) as caught:
            go(data=data, rate=1.0, ledger=ledger, source="people", performance=Performance(check_rows=False))
        assert "stays spent" in caught.value.__notes__[-1]
        assert ledger.spent("people") > before
    ledger.verify()


@pytest.mark.parametrize("value", [NAN, float("inf"), -float("inf"), 1e38])
def test_one_spoiled_row_spoils_nothing(value):
    x = X.clone()
    x[3] = value
    run = go(data=(x, Y), rate=1.0)
    assert all(bool(torch.isfinite(p).all()) for p in run.model.parameters())


# Places


def test_a_release_where_there_is_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    run = go()
    for place in (tmp_path / "file", tmp_path / "file" / "model"):
        with pytest.raises(InvalidValue, match=r"is a file|cannot be written"):
            run.release(place)
    assert (tmp_path / "file").read_text() == "mine"
    run.release(tmp_path / "model")
    run.release(tmp_path / "model")
    assert read(tmp_path / "model", nn.Linear(3, 2)).claims == (run.plan.claim(),)


def test_a_model_without_its_claim_is_not_read(tmp_path):
    go().release(tmp_path / "model")
    with pytest.raises(InvalidValue, match="does not fit"):
        read(tmp_path / "model", nn.Linear(4, 2))
    (tmp_path / "model" / "release.json").unlink()
    with pytest.raises((DiscreetError, FileNotFoundError)):
        read(tmp_path / "model", nn.Linear(3, 2))


def test_a_release_that_breaks_off_leaves_no_claim(tmp_path, monkeypatch):
    """Neither an old claim beside a new model nor a model without one that looks finished."""
    go().release(tmp_path / "model")
    run = go()
    monkeypatch.setattr("safetensors.torch.save_file", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        run.release(tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["model.safetensors"]
    with pytest.raises((DiscreetError, FileNotFoundError)):
        read(tmp_path / "model", nn.Linear(3, 2))


def test_a_checkpoint_where_there_is_no_folder(ledger, tmp_path):
    with pytest.raises(InvalidValue, match="Make the folder first"):
        go(checkpoint=tmp_path / "none" / "run", ledger=ledger, source="people")
    (tmp_path / "junk").write_bytes(b"PK\x03\x04 not one of ours")
    with pytest.raises(DiscreetError, match="cannot be read as a checkpoint"):
        go(checkpoint=tmp_path / "junk", ledger=ledger, source="people")
    assert ledger.spent("people") == 0


@pytest.mark.parametrize(("share", "kind", "refused"), [("85", "cuda", True), ("100", "cuda", False), ("85", "cpu", False)])
def test_a_share_of_a_gpu_is_refused(monkeypatch, share, kind, refused):
    from discreet.learn.sgd.checks import whole_gpu

    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", share)
    with pytest.raises(InvalidValue, match="limited share") if refused else nullcontext():
        whole_gpu(torch.device(kind))


@pytest.mark.parametrize(("seen", "refused"), [(112, True), (132, False)])
def test_a_share_that_the_daemon_sets_is_refused(monkeypatch, seen, refused):
    from discreet.learn.sgd import checks

    monkeypatch.delenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(checks, "processors", lambda device: (seen, 132))
    with pytest.raises(InvalidValue, match="112 of 132") if refused else nullcontext():
        checks.whole_gpu(torch.device("cuda"))
