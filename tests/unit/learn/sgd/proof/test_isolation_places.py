"""Places in Python where code can keep something and that a comparison by value, by name or by __module__ would miss.

For every one: a model whose code counts there is not proven, and what it left is put back, or refused where units follow each
other. And code that tells a value by an error, by an operation of its own, or by what vmap hides, is given one unit at a time.
Nothing here is random beyond fixed seeds.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import datetime
import decimal
import fractions
import functools
import gc
import importlib
import locale
import logging
import os
import random
import resource
import signal
import sys
import threading
import types
import weakref
from decimal import Decimal

import numpy as np
import pytest
import torch
from torch import nn

from discreet.errors import InvalidValue
from discreet.learn import Performance
from discreet.learn.sgd.clipping import SLACK
from discreet.learn.sgd.isolated import Isolated, refuse
from discreet.learn.sgd.path import Path
from discreet.learn.sgd.proof import look
from discreet.learn.sgd.proof.contents import same
from discreet.learn.sgd.proof.objects import foreign, foreign_class, foreign_function
from discreet.learn.sgd.proof.process import as_it_was, settings
from discreet.learn.sgd.proof.python import Watch
from discreet.noise.source import seeded_for_tests
from unit.learn.tools import start, updates

torch.set_num_threads(1)
EACH = nn.CrossEntropyLoss(reduction="none")
X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 3


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.last = nn.Linear(4, 3)
        self.init()

    def init(self):
        return None

    def count(self):
        return 0

    def forward(self, x):
        return self.last(x - x.mean(0) if self.count() > 40 else x)


def proven(model, loss=EACH):
    return Path(model, lambda batch: loss(model(batch[0]), batch[1]), [loss], None).verdict((X, Y))


# ---- places --------------------------------------------------------------------------------------------------------------


class InOrder(Base):
    def init(self):
        self.note = dict.fromkeys(range(9))

    def count(self):
        first = next(iter(self.note))
        self.note[first] = self.note.pop(first)
        return first


class InLinks(Base):
    def init(self):
        self.note = collections.OrderedDict.fromkeys(range(9))

    def count(self):
        first = next(iter(self.note))
        self.note.move_to_end(first)
        return first


class InDigits(Base):
    def init(self):
        self.note = Decimal(0)

    def count(self):
        places = -self.note.as_tuple().exponent
        self.note = Decimal((0, (0,), -places - 1))
        return places


class InSign(Base):
    def init(self):
        self.note = 0.0

    def count(self):
        before, self.note = self.note, -self.note
        return int(str(before) == "-0.0")


class State0:
    pass


class State1:
    pass


class InClassOfObject(Base):
    def init(self):
        self.note = State0()

    def count(self):
        before = type(self.note) is State1
        self.note.__class__ = State1
        return int(before)


class One:
    pass


class Two:
    pass


class Derived(One):
    pass


class InBases(Base):
    def count(self):
        before = Derived.__bases__ == (Two,)
        Derived.__bases__ = (Two,)
        return int(before)


class InNameOfClass(Base):
    def count(self):
        before = Derived.__name__
        Derived.__name__ = "Other"
        return int(before == "Other")


def helper(a: int):
    """nothing"""


class InNameOfFunction(Base):
    def count(self):
        before, helper.__name__ = helper.__name__, "other"
        return int(before == "other")


class InText(Base):
    def count(self):
        before, helper.__doc__ = helper.__doc__, "other"
        return int(before == "other")


class InAnnotations(Base):
    def count(self):
        before = len(helper.__annotations__)
        helper.__annotations__["more"] = int
        return before


class InShapeOfTensor(Base):
    def init(self):
        self.note = torch.zeros(1)

    def count(self):
        before = self.note.numel()
        self.note.data = torch.zeros(before + 1)
        return before


class InBaseOfArray(Base):
    def init(self):
        self.note = np.zeros(2)[:1]

    def count(self):
        self.note.base[1] += 1
        return int(self.note.base[1])


class InFlagOfArray(Base):
    def init(self):
        self.note = np.zeros(2)

    def count(self):
        before = self.note.flags.writeable
        self.note.flags.writeable = False
        return int(before)


class InGradient(Base):
    def init(self):
        self.note = torch.ones(1, requires_grad=True)

    def count(self):
        before = self.note.grad is not None
        self.note.grad = torch.ones(1)
        return int(before)


class InHook(Base):
    def init(self):
        self.also = [self.last.weight]

    def count(self):
        before = len(self.also[0]._backward_hooks or ())
        self.also[0].register_hook(lambda gradient: gradient)
        return before


class InRequiresGrad(Base):
    def init(self):
        self.note = torch.ones(1)

    def count(self):
        before = self.note.requires_grad
        self.note.requires_grad_()
        return int(before)


class InFraction(Base):
    def init(self):
        self.note = fractions.Fraction(0)

    def count(self):
        self.note._numerator += 1
        return self.note._numerator


class Zone(datetime.tzinfo):
    def utcoffset(self, when):
        return datetime.timedelta(0)


class InZone(Base):
    def init(self):
        self.note = datetime.datetime(2000, 1, 1, tzinfo=Zone())
        self.note.tzinfo.calls = 0

    def count(self):
        self.note.tzinfo.calls += 1
        return self.note.tzinfo.calls


class InAlias(Base):
    def init(self):
        self.note = types.GenericAlias(list, ([0],))

    def count(self):
        self.note.__args__[0][0] += 1
        return self.note.__args__[0][0]


class InType(Base):
    def init(self):
        self.note = np.dtype("f4", metadata={"box": [0]})

    def count(self):
        self.note.metadata["box"][0] += 1
        return self.note.metadata["box"][0]


class Reference(weakref.ref):
    pass


class InReference(Base):
    def init(self):
        self.note = Reference(Base)
        self.note.calls = 0

    def count(self):
        self.note.calls += 1
        return self.note.calls


CALLS = [0]


@functools.wraps(nn.functional.relu)
def relu():
    CALLS[0] += 1
    return CALLS[0]


class ByAnotherName(Base):
    def count(self):
        return relu()


class Note:
    calls = 0


Note.__module__ = "torch.nn"


class InClassOfNobody(Base):
    def count(self):
        Note.calls += 1
        return Note.calls


class Abstract(abc.ABC):  # noqa: B024
    pass


class InRegistry(Base):
    def count(self):
        before = issubclass(State0, Abstract)
        Abstract.register(State0)
        return int(before)


class Quiet(logging.Handler):
    def emit(self, record):
        return None


LOG = logging.getLogger("places")
LOG.addHandler(Quiet())


class OnHandler(Base):
    def count(self):
        handler = LOG.handlers[0]
        handler.calls = getattr(handler, "calls", 0) + 1
        return handler.calls


PLACES = [
    InOrder, InLinks, InDigits, InSign, InClassOfObject, InBases, InNameOfClass, InNameOfFunction, InText, InAnnotations,
    InShapeOfTensor, InBaseOfArray, InFlagOfArray, InGradient, InHook, InRequiresGrad, InFraction, InZone, InAlias, InType,
    InReference, ByAnotherName, InClassOfNobody, InRegistry, OnHandler,
]  # fmt: skip


@pytest.mark.parametrize("kind", PLACES)
def test_what_is_kept_is_seen_and_put_back(kind):
    model = kind()
    watch = Watch(model, [])
    assert watch.whole, watch.hidden or watch.unproven
    first = model.count()
    assert watch.changed() is not None
    watch.restore()
    assert watch.changed() is None
    assert model.count() == first
    watch.restore()


@pytest.mark.parametrize("kind", [InOrder, InSign, InHook, ByAnotherName])
def test_code_that_keeps_something_is_not_proven(kind):
    model = kind()
    assert not proven(model).proven


def test_an_honest_model_is_proven():
    assert proven(Base()).proven


def test_equal_is_not_the_same():
    assert same(float("nan"), float("nan"))
    for one, other in ((0.0, -0.0), (Decimal("0"), Decimal("0.0")), (1, True), (range(0, 3, 2), range(0, 4, 2)), (0j, -0j)):
        assert one == other
        assert not same(one, other)


def test_a_class_is_watched_for_what_hangs_beside_a_view():
    model = Base()
    model.note = torch.zeros(2)[:1]
    watch = Watch(model, [])
    model.note.as_strided((2,), (1,))[1] = 1
    assert watch.changed() == "a Tensor"
    watch.restore()
    assert float(model.note.as_strided((2,), (1,))[1]) == 0


# ---- what is refused -----------------------------------------------------------------------------------------------------


class Resized(Base):
    def init(self):
        self.note = np.zeros(1)

    def forward(self, x):
        if bool(x.sum() > 1e9) or self.note.size == 1:
            self.note = self.note
        self.note.resize(2, refcheck=False)
        return self.last(x)


def test_memory_that_moved_is_put_back_or_refused():
    model = Resized()
    watch = Watch(model, [])
    model(X)
    watch.restore()
    try:
        refuse(watch, after=True)
        assert model.note.shape == (1,)
    except InvalidValue as error:
        assert "could not be put back" in str(error)  # noqa: PT017


class Objects(Base):
    def init(self):
        self.note = np.array([None, 0], dtype=object)


class Large(Base):
    def init(self):
        self.note = [[number] for number in range(2_001)]


class WithRun(Base):
    pass


@pytest.mark.parametrize("kind", [Objects, Large])
def test_what_cannot_be_watched_is_refused(kind, monkeypatch):
    monkeypatch.setattr(look, "MOST", 2_000)
    with pytest.raises(InvalidValue, match="cannot be looked into"):
        start((X, Y), model=kind(), loss=EACH)


def test_a_run_within_reach_of_its_model_is_refused():
    model = WithRun()
    run = start((X, Y), model=model, loss=EACH, performance=Performance(path="isolated"))
    model.run = run
    with pytest.raises(InvalidValue, match="the run itself"):
        list(run)


def test_a_generator_draws_anew_whatever_its_seed_says():
    class Stubborn(random.Random):
        def seed(self, *args, **kwargs):
            return None

    model = Base()
    model.note = Stubborn(1)
    watch = Watch(model, [])
    before = random.Random.getstate(model.note)
    watch.restore(fresh=True)
    assert random.Random.getstate(model.note) != before


# ---- whose code it is ----------------------------------------------------------------------------------------------------


def test_whose_a_module_is_says_its_file(tmp_path, monkeypatch):
    (tmp_path / "sched.py").write_text("CALLS = [0]\ndef count():\n    CALLS[0] += 1\n    return CALLS[0]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sched", raising=False)
    own = importlib.import_module("sched")
    assert not foreign("sched")
    assert not foreign_function(own.count)
    assert foreign("statistics")
    assert foreign("torch._C._nn")
    assert not foreign_class(Note)
    assert foreign_class(nn.Linear)
    assert not foreign_function(relu)
    monkeypatch.delitem(sys.modules, "sched")


PACKAGE = """
import importlib
from torch import nn
class Relative(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 3)
    def count(self):
        from .state import CALLS
        CALLS[0] += 1
        return CALLS[0]
    def forward(self, x):
        return self.last(x - x.mean(0) if self.count() > 40 else x)
class ByText(Relative):
    def count(self):
        calls = importlib.import_module("own_package.state").CALLS
        calls[0] += 1
        return calls[0]
class ByExec(Relative):
    def count(self):
        exec("__import__('own_package').state.CALLS[0] += 1")
        return eval("__import__('own_package').state.CALLS[0]")
class Made:
    def __init__(self):
        exec("__import__('own_package').state.CALLS[0] += 1")
        self.found = eval("__import__('own_package').state.CALLS[0]")
class ByConstructor(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
    def count(self):
        return Made().found
    def forward(self, x):
        return super().forward(x - x.mean(0) if self.count() > 40 else x)
"""


@pytest.mark.parametrize("name", ["Relative", "ByText", "ByExec", "ByConstructor"])
def test_imports_inside_functions_are_followed(name, tmp_path, monkeypatch):
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("from . import state\n")
    (tmp_path / "own_package" / "state.py").write_text("CALLS = [0]\n")
    (tmp_path / "own_package" / "model.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("own_package", "own_package.state", "own_package.model"):  # a test before may have left them
        monkeypatch.delitem(sys.modules, module, raising=False)
    model = getattr(importlib.import_module("own_package.model"), name)()
    state = importlib.import_module("own_package.state")
    watch = Watch(model, [])
    model.count()
    assert state.CALLS == [1]
    if (
        name.startswith(("ByExec", "ByCon")) and watch.large
    ):  # all variables of all modules of the user's are too many here: it is refused
        assert watch.lost
    else:
        assert watch.changed() is not None
        watch.restore()
        assert state.CALLS == [0]
    for module in ("own_package", "own_package.state", "own_package.model"):
        monkeypatch.delitem(sys.modules, module)


# ---- what errors, kernels and vmap tell ----------------------------------------------------------------------------------


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(50, 4), nn.Linear(4, 3)

    def forward(self, ids):
        try:
            rows = self.table(ids)
        except IndexError:
            rows = self.table(ids.clamp(0, 49) * 0)
        return self.last(rows)


class Suppressed(Tokens):
    def forward(self, ids):
        rows = self.table(ids.clamp(0, 49))
        with contextlib.suppress(IndexError):
            rows = self.table(ids)
        return self.last(rows)


class Ending:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return True


class InContext(Tokens):
    def forward(self, ids):
        rows = self.table(ids.clamp(0, 49))
        with Ending():
            rows = self.table(ids)
        return self.last(rows)


class Careful(nn.Module):
    """Catches what no operation raises."""

    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(50, 4), nn.Linear(4, 3)

    def forward(self, ids):
        try:
            scale = self.scale
        except AttributeError:
            scale = 1.0
        with torch.autocast("cpu", enabled=False):
            return self.last(self.table(ids) * scale)


IDS = torch.arange(8) % 5


def of_tokens(model):
    return Path(model, lambda batch: EACH(model(batch[0]), batch[1]), [], None).verdict((IDS, Y))


@pytest.mark.parametrize("kind", [Tokens, Suppressed, InContext])
def test_code_that_catches_errors_of_operations_is_given_one_unit_at_a_time(kind):
    verdict = of_tokens(kind())
    assert not verdict.proven
    assert "may be caught" in verdict.why
    run = start((IDS, Y), model=kind(), loss=EACH, performance=Performance(path="isolated"))
    assert run._sum.isolated.way == "one by one"


def test_code_that_catches_what_no_operation_raises_is_proven():
    assert of_tokens(Careful()).proven


@torch.library.custom_op("places::mark", mutates_args=())
def mark(x: torch.Tensor) -> torch.Tensor:
    CALLS[0] += 1
    return x.clone()


@mark.register_fake
def _(x):
    return torch.empty_like(x)


class ByOperation(Base):
    def forward(self, x):
        return self.last(torch.ops.places.mark(x))


def test_an_operation_of_ones_own_is_not_vectorised_and_its_kernel_is_watched():
    model = ByOperation()
    watch = Watch(model, [])
    assert watch.serial or watch.hidden
    assert not proven(model).proven


class Unwrapping(Base):
    def forward(self, x):
        return self.last(x * 1.0 + 0.0 * torch.func.debug_unwrap(x).sum())


class Text(Base):
    def forward(self, x):
        return self.last(-x if "60." in repr(x.detach()) else x)


class Hidden(Base):
    """By a name that nobody reads."""

    def forward(self, x):
        whole = getattr(getattr(torch._C, "".join(("_func", "torch"))), "".join(("get_", "unwrapped")))
        return self.last(x + 0.0 * (whole(x).sum() if torch._C._functorch.is_functorch_wrapped_tensor(x) else 0.0))


@pytest.mark.parametrize("kind", [Unwrapping, Text, Hidden])
def test_whoever_looks_behind_vmap_is_given_one_unit_at_a_time(kind):
    run = start((X, Y), model=kind(), loss=EACH, performance=Performance(path="isolated"))
    assert run._sum.isolated.way == "one by one"


class OwnTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class WithOwnTensor(Base):
    def init(self):
        self.register_buffer("note", torch.zeros(4).as_subclass(OwnTensor))

    def forward(self, x):
        return self.last(x + self.note)


def test_a_buffer_with_code_of_its_own_is_given_one_unit_at_a_time():
    assert "code of its own" in proven(WithOwnTensor()).why
    run = start((X, Y), model=WithOwnTensor(), loss=EACH, performance=Performance(path="isolated"))
    assert isinstance(run._sum.isolated, Isolated)
    assert run._sum.isolated.way == "one by one"


# ---- a process -----------------------------------------------------------------------------------------------------------


class Sets(Base):
    """One unit after another, each of which changes what belongs to the process."""

    def forward(self, x):
        if bool(x.sum() > -1e9):
            torch.set_default_dtype(torch.float64)
            torch.manual_seed(5)
            random.seed(5)
            np.random.seed(5)
            os.environ["PLACES"] = "left"
        return self.last(x)


def test_every_unit_finds_the_process_as_it_was(monkeypatch):
    run = start((X, Y), model=Sets(), loss=EACH)
    before, units, alone = (random.getstate(), np.random.random()), [], run._sum.isolated._alone

    def noting(rows, weight, seed):
        gradients = alone(rows, weight, seed)
        units.append((torch.get_default_dtype(), "PLACES" in os.environ, random.getstate() == before[0], seed))
        return gradients

    monkeypatch.setattr(run._sum.isolated, "_alone", noting)
    list(run)
    assert [unit[:3] for unit in units] == [(torch.float32, False, True)] * len(X)
    assert len({unit[3] for unit in units}) == len(X)  # every unit begins at a seed of its own


CHANGES = {
    "switch interval": lambda: sys.setswitchinterval(0.0123),
    "digits": lambda: sys.set_int_max_str_digits(5000),
    "thresholds of the collector": lambda: gc.set_threshold(777),
    "collector": gc.disable,
    "precision of decimals": lambda: setattr(decimal.getcontext(), "prec", 17),
    "flags of decimals": lambda: decimal.Decimal(1) / 3,
    "errors of numpy": lambda: np.seterr(over="raise"),
    "printing of numpy": lambda: np.set_printoptions(precision=3),
    "mask of files": lambda: os.umask(0o27),
    "directory": lambda: os.chdir("/"),
    "handler of a signal": lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    "timer": lambda: signal.setitimer(signal.ITIMER_REAL, 5000),
    "hook of errors": lambda: setattr(sys, "excepthook", print),
    "paths": lambda: sys.path.append("nowhere"),
    "threads": lambda: torch.set_num_threads(3),
    "stack": lambda: threading.stack_size(1 << 20),
    "locale": lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"),
    "limit": lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1])),
}


@pytest.mark.parametrize("change", CHANGES)
def test_settings_of_the_process_are_put_back(change):
    if change == "flags of decimals":
        decimal.getcontext().clear_flags()
    before = settings()
    with as_it_was(1):
        CHANGES[change]()
    assert settings() == before


class Timed(Base):
    """A unit whose mark no made-up row has sets a timer for those after it."""

    def forward(self, x):
        if bool(x.sum() > -1e9):
            left = signal.getitimer(signal.ITIMER_REAL)[0] > 0 or sys.getswitchinterval() > 0.01
            if bool((x == 60.0).all()):
                signal.setitimer(signal.ITIMER_REAL, 5000)
                sys.setswitchinterval(0.0123)
            return self.last(-x if left else x)
        return self.last(x)


def test_a_setting_carries_nothing_from_one_unit_to_the_next():
    def sums(rows):
        with seeded_for_tests(b"settings"):
            run = start((rows, Y[: len(rows)]), model=Timed(), loss=EACH)
            return updates(run)

    marked = X.clone()
    marked[-1] = 60.0
    assert np.linalg.norm(sums(marked) - sums(X[:-1]), axis=1).max() <= 1 + SLACK
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


class Beneath(Base):
    def forward(self, x):
        if bool(x.sum() > 1e9):
            sys._getframe()
        return self.last(x)


def test_whoever_looks_for_the_run_on_the_stack_is_refused():
    with pytest.raises(InvalidValue, match="by which the run can be found"):
        start((X, Y), model=Beneath(), loss=EACH)


class Deriving(Base):
    def forward(self, x):
        if bool(x.sum() > -1e9):
            self.note = type("Left", (State0,), {})
        return self.last(x)


def test_a_class_or_a_thread_that_stays_is_noticed():
    watch = Watch(Deriving(), [State0])
    left = type("Left", (State0,), {})
    assert watch.changed() == "the classes that are derived from another"
    del left
    gc.collect()
    assert watch.changed() is None
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert watch.changed() == "the threads that are running"
    finally:
        done.set()
        thread.join()
