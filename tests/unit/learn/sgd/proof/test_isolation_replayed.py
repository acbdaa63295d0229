"""Models that can tell whether they are traced, a class each: well behaved in a trace, and a leak in a step.

On the fast path their code is not given a row: what runs is the list of operations that was recorded and proven. On the other
path a unit is computed alone. Either way one unit moves the released sum by at most the clip norm, or the model is refused. The
broken twin of every one of them, whose code runs in the step as it was written, moves the sum by more.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import time
import types
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from discreet.errors import InvalidValue
from discreet.learn import Augment
from discreet.learn.sgd import clipped_sum
from discreet.learn.sgd.clipping import SLACK
from discreet.learn.sgd.proof import intact
from discreet.learn.sgd.run import Run
from discreet.noise.source import seeded_for_tests
from unit.learn.sgd.proof.test_isolation_leaks import EACH, Net, apart, data, far
from unit.learn.tools import start, updates

torch.set_num_threads(1)


def mixing(x):
    """What no proof lets pass: every row moves all others, where one of them is far out."""
    return x - far(x) * x.mean(0)


class Asking(Net):
    """Mixes examples where it finds that it is not traced."""

    def traced(self, x):
        raise NotImplementedError

    def forward(self, x):
        return super().forward(x if self.traced(x) else mixing(x))


class KindOfSize(Asking):
    def traced(self, x):
        return type(x.shape[0]) is not int


class KindOfTensor(Asking):
    def traced(self, x):
        return type(x) is not torch.Tensor


class NameOfKind(Asking):
    def traced(self, x):
        return "Fake" in type(x).__name__


class Symbol(Asking):
    def traced(self, x):
        return hasattr(x.shape[0], "node")


class DispatchModes(Asking):
    def traced(self, x):
        return torch._C._len_torch_dispatch_stack() > 0


class FunctionModes(Asking):
    def traced(self, x):
        return torch._C._len_torch_function_stack() > 0


class Written(Asking):
    def traced(self, x):
        try:
            return "Fake" in object.__repr__(x)
        except BaseException:
            return True


class ByDictionary(Asking):
    def traced(self, x):
        return "fake_mode" in getattr(x, "__dict__", {})


class Frames(Asking):
    def traced(self, x):
        frame = sys._getframe()
        while frame is not None:
            if "trace.py" in frame.f_code.co_filename:
                return True
            frame = frame.f_back
        return False


class Stack(Asking):
    def traced(self, x):
        return any("trace" in it.filename for it in inspect.stack(0))


class Filters(Asking):
    """A trace ignores warnings."""

    def traced(self, x):
        return bool(warnings.filters) and warnings.filters[0][0] == "ignore" and warnings.filters[0][2] is Warning


class Patched(Asking):
    """A trace puts another len in the place of Python's."""

    def traced(self, x):
        return isinstance(len, types.FunctionType)


class Clock(Asking):
    def __init__(self):
        super().__init__()
        self.begun = time.monotonic()

    def traced(self, x):
        return time.monotonic() - self.begun < 0.4


class Gradients(Asking):
    """In a trace the weights have no gradient function, and lie nowhere."""

    def traced(self, x):
        return type(self.first.weight) is not nn.Parameter


class MadeOfText(Net):
    """Its forward is made where it is built."""

    def __init__(self):
        super().__init__()
        space = {"mixing": mixing, "torch": torch, "Net": Net}
        exec("def forward(self, x):\n    return Net.forward(self, mixing(x) if type(x) is torch.Tensor else x)", space)  # noqa: S102
        type(self).forward = space["forward"]


class OwnFunction(Net):
    """A function of its own goes by the way on which torch is asked about its functions."""

    def forward(self, x):
        return super().forward(torch.overrides.handle_torch_function(kept_apart, (x,), x) if HANDLED[0] else kept_apart(x))


HANDLED = [False]


def kept_apart(x):
    return x if type(x) is not torch.Tensor else mixing(x)


class Own(nn.Module):
    """A parameter of its own, which the engine spreads over the examples, in a forward of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.scale * (mixing(x) if type(x) is torch.Tensor else x)


class OwnParameter(Net):
    def __init__(self):
        super().__init__()
        self.own = Own()

    def forward(self, x):
        return super().forward(self.own(x))


class Hook(Net):
    """The hook of a layer, which runs before the engine's."""

    def __init__(self):
        super().__init__()
        self.first.register_forward_pre_hook(lambda module, given: (kept_apart(given[0]),))


class Again(Net):
    """A checkpoint runs its function again in the backward."""

    def inner(self, x):
        return self.hidden(x if type(x) is not torch.Tensor else mixing(x))

    def forward(self, x):
        return self.last(checkpoint(self.inner, x, use_reentrant=False))


class BackwardAlone(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        return g if type(g) is not torch.Tensor else g + 100 * far(1e3 * g) * g.sum(0)


class OwnBackward(Net):
    def forward(self, x):
        return self.last(BackwardAlone.apply(self.hidden(x)))


class TensorHook(Net):
    def forward(self, x):
        h = self.hidden(x)
        if h.requires_grad:
            h.register_hook(lambda g: g if type(g) is not torch.Tensor else g + 100 * far(1e3 * g) * g.sum(0))
        return self.last(h)


MODELS = [
    KindOfSize, KindOfTensor, NameOfKind, Symbol, DispatchModes, FunctionModes, Written, ByDictionary, Frames, Stack, Filters,
    Patched, Clock, Gradients, MadeOfText, OwnFunction, OwnParameter, Hook, Again, OwnBackward,
    TensorHook,
]  # fmt: skip
UNSEEN = {OwnParameter}  # as it is written too, vmap keeps its examples apart, since nobody tried on made-up rows to spread it


def code_runs(monkeypatch):
    """The broken twin: what was proven of the trace, and then the code."""
    monkeypatch.setattr(clipped_sum.ClippedSum, "proven_losses", clipped_sum.ClippedSum.losses)
    monkeypatch.setattr(Run, "_check_rows", lambda self: None)
    monkeypatch.setattr(clipped_sum, "probe", lambda *given, **how: True)
    monkeypatch.setattr(clipped_sum, "check_training_mode", lambda *given: None)
    monkeypatch.setattr("discreet.learn.sgd.path.Path.fast", lambda self, batch: True)


@pytest.mark.parametrize("kind", MODELS)
def test_code_that_knows_whether_it_is_traced_does_not_run_in_a_step(kind):
    assert apart(kind, EACH) <= 1 + SLACK


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind not in UNSEEN])
def test_run_as_written_it_would_leak(kind, monkeypatch):
    code_runs(monkeypatch)
    if kind is Clock:
        monkeypatch.setattr(time, "monotonic", lambda: np.inf)
    assert apart(kind, EACH) > 1 + SLACK


def test_the_loss_too():
    def loss(out, y):
        return EACH(out - (10 * (y == 2).any() * out.mean(0) if type(out) is torch.Tensor else 0), y)

    assert apart(Net, loss) <= 1 + SLACK


def test_and_an_augmentation():
    def augment(x):
        return mixing(x) if type(x) is torch.Tensor and len(x) > 9 else x

    assert apart(Net, EACH, augment=Augment(augment)) <= 1 + SLACK


def test_no_private_row_reaches_the_code_of_a_model_on_the_fast_path(monkeypatch):
    x, y = data()
    given = []

    class Told(Net):
        def forward(self, x):
            sys.audit("discreet.tests.told", x)
            return super().forward(x)

    def hear(event, args):
        if event == "discreet.tests.told" and type(args[0]) is torch.Tensor:
            given.append(args[0].detach().clone())

    sys.addaudithook(hear)
    run = start((x, y), model=Told(), loss=EACH, steps=3)
    assert run.path == "fast"
    for _ in run:
        pass
    assert given  # made-up rows did
    assert not any((rows == 60.0).any() for rows in given)


@pytest.mark.parametrize(
    "name", ["torch.nn.functional.linear", "torch.tanh", "torch.nn.Linear.forward", "torch.Tensor.add", "torch.bmm"]
)
def test_functions_put_into_torch_are_not_taken_for_torchs_own(name, monkeypatch):
    place, _, last = name.rpartition(".")
    owner = functools.reduce(getattr, place.split(".")[1:], torch)
    plain = getattr(owner, last)

    def other(*args, **kwargs):
        args = [mixing(it) if type(it) is torch.Tensor and it.ndim == 2 and len(it) > 9 else it for it in args]
        return plain(*args, **kwargs)

    monkeypatch.setattr(owner, last, other)
    assert apart(Net, EACH) <= 1 + SLACK


# ---- what is called beside the recorded operations -----------------------------------------------------------------------

KEPT: list[torch.Tensor] = []


def kept(tensor):
    if type(tensor) is torch.Tensor:
        KEPT.append(tensor.detach().clone())


class HookOfConstant(Net):
    """Its gradient is a sum over the batch."""

    def __init__(self):
        super().__init__()
        self.shift = [torch.zeros(4, requires_grad=True)]
        self.shift[0].register_hook(kept)

    def forward(self, x):
        return super().forward(x + self.shift[0])


class HookOfParameter(Net):
    def __init__(self):
        super().__init__()
        self.first.weight.register_hook(kept)


class Kept(nn.Linear):
    @property
    def weight(self):
        return self._parameters["weight"]

    @weight.setter
    def weight(self, value):
        self._parameters["weight"] = value


class Answering(Net):
    def __init__(self):
        super().__init__()
        self.first.__class__ = Kept


class Wrapped(Net):
    """A function of the user's in one of torch's."""

    inner = torch.no_grad()(kept_apart)

    def forward(self, x):
        return super().forward(x + 0 * torch.overrides.handle_torch_function(type(self).inner, (x,), x))


class Appending(Net):
    def forward(self, x):
        torch.overrides.handle_torch_function(KEPT.append, (x,), x)
        return super().forward(x)


@pytest.mark.parametrize("kind", [HookOfConstant, HookOfParameter, Answering, Wrapped, Appending])
def test_nothing_is_called_beside_the_operations(kind):
    try:
        run = start(data(), model=kind(), loss=EACH, steps=2)
    except (InvalidValue, TypeError):  # there is no such way outside a trace
        return
    KEPT.clear()
    for _ in run:
        pass
    assert run.path == "isolated" or not KEPT
    assert apart(kind, EACH) <= 1 + SLACK


class Everywhere(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_no_proof_while_a_context_of_the_users_is_active():
    with Everywhere():
        assert start(data(), model=Net(), loss=EACH).path == "isolated"


@pytest.mark.parametrize("how", ["saved", "profile", "collector"])
def test_nothing_is_computed_while_a_function_of_the_users_is_called_beside_it(how):
    def beside(*given):
        return given[0] if how == "saved" else None

    def profile(*given):
        return None

    try:
        if how == "saved":
            torch._C._autograd._push_saved_tensors_default_hooks(beside, beside)
        elif how == "profile":
            sys.setprofile(profile)
        else:
            gc.callbacks.append(profile)
        with pytest.raises(InvalidValue, match="is active"):
            start(data(), model=Net(), loss=EACH)
    finally:
        if how == "saved":
            torch._C._autograd._pop_saved_tensors_default_hooks()
        elif how == "profile":
            sys.setprofile(None)
        else:
            gc.callbacks.remove(profile)


class Pairs(torch.utils.data.Dataset):
    def __init__(self, count):
        self.x, self.y = (part[:count] for part in data())

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        return self.x[row], self.y[row]


def remembering():
    """A collate function that knows whether a row before was far out, and draws by it."""
    seen = []

    def collate(rows):
        x, y = torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])
        turned = bool(seen) or float(torch.rand(())) < 0
        if x.abs().max() > 50:
            seen.append(1)
            torch.manual_seed(0)
        return (-x if turned else x), y

    return collate


def test_a_collate_function_keeps_nothing_of_one_unit_for_the_next():
    from torch.utils.data import DataLoader

    moved = []
    for rows in (range(13), range(12)):
        with seeded_for_tests(b"collate"):
            order = [12, *range(12)] if len(rows) == 13 else list(range(12))
            given = torch.utils.data.Subset(Pairs(13), order)
            run = start(DataLoader(given, collate_fn=remembering()), model=Net(), loss=EACH, steps=3)
            moved.append(updates(run))
    assert np.linalg.norm(moved[0] - moved[1], axis=1).max() <= 1 + SLACK


def test_what_torch_compile_leaves_in_torch_takes_no_proof_away(monkeypatch):
    """It puts functions into torch's modules under names that no file of torch has."""
    place, name = torch._dynamo.external_utils, "__compiled_fn_9_5f554da9"
    monkeypatch.setattr(place, name, lambda: None, raising=False)
    assert intact.replaced() is None
    monkeypatch.setattr(place, "added", lambda: None, raising=False)
    assert intact.replaced() == "torch._dynamo.external_utils.added"
