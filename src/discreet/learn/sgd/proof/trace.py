"""The trace of one step, forward and backward, on tensors without values whose batch size is a symbol.

Every operation is observed below autograd, so hooks, custom functions and the loss are covered like everything else.
"""

from __future__ import annotations

import builtins
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree

from discreet.learn.sgd.proof.armed import checked
from discreet.learn.sgd.proof.recorder import Recorder
from discreet.learn.sgd.proof.values import MIXED, PUBLIC, ROWS, SUM, Layout, NotProven, known, mark, public, rows
from discreet.learn.sgd.proof.watcher import Peeking, Watcher

SIZE = 37  # the hint for the symbolic batch size; used only where something asks for a number
SIZED = "what is computed depends on the size of the batch"
OWN = (str(Path(torch.__file__).parent) + "/", str(Path(__file__).parent) + "/")  # whose code may write a size out as text
ANSWERS: dict[str, Callable[..., Any]] = {"guard_bool": bool, "guard_int": int, "guard_float": float}

# ---- asking for the size ---------------------------------------------------------------------------------------------


@contextmanager
def _guarded(watcher: Watcher, env: ShapeEnv) -> Iterator[None]:
    """Fail the proof when any code asks a question about the batch size whose answer depends on it.

    Operations that only choose a kernel by it get the answer for the traced size, which is not recorded: torch would reuse
    it for the same question from the user's code. len(x) gives the symbol, as x.shape[0] does.
    """
    plain = {name: getattr(SymNode, name) for name in (*ANSWERS, "guard_size_oblivious", "guard_or_false", "guard_or_true")}
    length = builtins.len

    def watched(name: str) -> Callable[..., Any]:
        def ask(node: Any, *where: Any) -> Any:
            if watcher.choosing and name in ANSWERS and node.hint is not None:
                return ANSWERS[name](node.hint)
            before = (length(env.guards), length(env.replacements))
            answer = plain[name](node, *where)
            if before != (length(env.guards), length(env.replacements)):
                watcher.fail(SIZED)
            return answer

        return ask

    def symbolic_len(obj: Any, /) -> Any:
        return obj.shape[0] if isinstance(obj, FakeTensor) and obj.ndim else length(obj)

    try:
        for name in plain:
            setattr(SymNode, name, watched(name))
        builtins.len = symbolic_len
        with _unread(watcher):
            yield
    finally:
        builtins.len = length
        for name, function in plain.items():
            setattr(SymNode, name, function)


@contextmanager
def _unread(watcher: Watcher) -> Iterator[None]:
    """Fail when a size is converted to text, unless by torch, or when a tensor is exported to another library."""
    kinds = (torch.SymInt, torch.SymFloat, torch.SymBool)
    texts = {(kind, name): kind.__dict__.get(name) for kind in kinds for name in ("__str__", "__repr__", "__format__")}
    leaving = {name: getattr(torch._C, name) for name in ("_to_dlpack", "_to_dlpack_versioned") if hasattr(torch._C, name)}

    def text(kind: type, name: str) -> Callable[..., str]:
        plain = getattr(kind, name)

        def say(size: Any, *how: Any) -> str:
            if not sys._getframe(1).f_code.co_filename.startswith(OWN):
                watcher.fail(SIZED)
            written: str = plain(size, *how)
            return written

        return say

    def reporting_export(name: str) -> Callable[..., Any]:
        def leave(*args: Any, **kwargs: Any) -> Any:
            watcher.fail(f"a value is looked at, so that what is computed may depend on it ({name})")
            return leaving[name](*args, **kwargs)

        return leave

    def missing_attribute(name: str) -> property:
        def ask(size: Any) -> Any:
            watcher.fail(SIZED)
            raise AttributeError(name)

        return property(ask)

    lacking = [name for name in dir(int) if name[0] != "_" and not hasattr(torch.SymInt, name)]  # a number has it, a symbol not
    try:
        for name in lacking:
            setattr(torch.SymInt, name, missing_attribute(name))
        for (kind, name), _ in texts.items():
            setattr(kind, name, text(kind, name))
        for name in leaving:
            setattr(torch._C, name, reporting_export(name))
        yield
    finally:
        for name in lacking:
            delattr(torch.SymInt, name)
        for (kind, name), before in texts.items():
            delattr(kind, name) if before is None else setattr(kind, name, before)
        for name, function in leaving.items():
            setattr(torch._C, name, function)


@contextmanager
def _unflattened() -> Iterator[None]:
    """Skip the flattening of recurrent weights on a GPU, which depends on addresses and computes nothing."""
    plain = nn.RNNBase.flatten_parameters
    nn.RNNBase.flatten_parameters = lambda self: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.RNNBase.flatten_parameters = plain  # type: ignore[method-assign]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's log about operations that it cannot trace; the reason is reported by us."""
    talkers = [logging.getLogger(name) for name in ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")]
    before = [talker.disabled for talker in talkers]
    try:
        for talker in talkers:
            talker.disabled = True
        yield
    finally:
        for talker, disabled in zip(talkers, before):
            talker.disabled = disabled


class Seen(FakeTensorMode):
    """Fake tensors whose operations are refused where the rules are not applied, as in another thread."""

    watcher: Watcher | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.watcher is not None and not self.watcher.sees:
            self.watcher.fail("an operation runs where the proof does not see it (in another thread, say)")
        return super().__torch_dispatch__(func, types, args, kwargs)


# ---- one trace -------------------------------------------------------------------------------------------------------


def traced(
    model: nn.Module, losses: Callable[[Any], Any], batch: Any, backward: bool = True, recorder: Recorder | None = None
) -> Watcher:  # fmt: skip
    """Trace `losses` of rows like those of `batch` and the gradients of what is trained; NotProven where a rule fails.

    Without `backward`, any function that gives rows for rows. A `recorder` has the program of the forward afterwards.
    """
    env = ShapeEnv(duck_shape=True)
    fake = Seen(shape_env=env, allow_non_fake_inputs=True)
    fake.cache_enabled = False  # entries are of this trace alone, and cost more than they save
    watcher = Watcher(recorder)
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        inputs = pytree.tree_map(lambda leaf: _fake_rows(fake, leaf), batch)
        held = {name: _fake_constant(fake, _whole(tensor)) for name, tensor in _state(model).items()}
        stack.enter_context(_unflattened())
        stack.enter_context(_unsplit(model))
        stack.enter_context(_quiet())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        stack.enter_context(_reparametrize_module(model, held, tie_weights=True))
        stack.enter_context(checked(model, watcher.fail))
        stack.enter_context(_guarded(watcher, env))
        stack.enter_context(enable_python_dispatcher())  # operations that ask for sizes in terms of others
        stack.enter_context(fake)
        stack.enter_context(watcher)
        stack.enter_context(Peeking(watcher))
        stack.enter_context(torch.enable_grad())
        if recorder is not None:
            stack.enter_context(recorder.recording())
        try:
            fake.watcher = watcher
            _joint(model, losses, inputs, held, recorder) if backward else _mapped(losses, inputs, recorder)
        except NotProven as error:
            watcher.fail(str(error))
        except Exception as error:
            watcher.fail(f"the model cannot be traced without values: {type(error).__name__}: {_short(error)}")
        finally:
            fake.watcher = None
    if watcher.reason is None and (env.replacements or env.guards or env.deferred_runtime_asserts):
        watcher.reason = SIZED
    if watcher.reason is not None:
        raise NotProven(watcher.reason)
    return watcher


def _mapped(function: Callable[[Any], Any], inputs: Any, recorder: Recorder | None) -> None:
    if recorder is not None:
        recorder.begin(inputs)
    outputs = function(inputs)
    if recorder is not None:
        recorder.end(outputs, tree=True)
    for leaf in pytree.tree_leaves(outputs):
        value = known(leaf) if isinstance(leaf, Tensor) else public()
        if value.kind == MIXED:
            raise NotProven(value.cell.why)
        if value.kind != ROWS or value.layout is None or value.layout.dim or value.layout.times != 1 or value.cell.blank:
            raise NotProven("what comes out is not one row for each example")


def _joint(
    model: nn.Module, losses: Callable[[Any], Tensor], inputs: Any, held: dict[str, Tensor], recorder: Recorder | None
) -> None:  # fmt: skip
    trained = [tensor for tensor in held.values() if tensor.requires_grad]
    if recorder is not None:
        recorder.begin(inputs)
    outputs = losses(inputs)
    if recorder is not None:
        recorder.end(outputs)
    now = _state(model)
    changed = [name for name, tensor in held.items() if now.get(name) is not tensor] + [
        name for name in now if name not in held
    ]
    if changed:
        raise NotProven(f"a forward puts something else in the place of {changed[0]}")
    value = known(outputs)
    if value.kind == MIXED:
        raise NotProven(value.cell.why)
    if value.kind != ROWS or value.layout is None or value.layout.times != 1 or outputs.ndim != 1:
        raise NotProven("the losses are not one number for each example")
    seeds = torch.ones_like(outputs)
    gradients = torch.autograd.grad(outputs, trained, seeds, allow_unused=True)
    for name, gradient in zip((name for name, tensor in held.items() if tensor.requires_grad), gradients):
        if gradient is not None and known(gradient).kind not in (SUM, PUBLIC):
            raise NotProven(known(gradient).cell.why or f"the gradient of {name} is not a sum over the examples")


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _fake_rows(fake: FakeTensorMode, leaf: Tensor) -> Tensor:
    whole = leaf[:1].expand(SIZE, *leaf.shape[1:]).contiguous()
    sizes = [DimDynamic.DUCK, *[DimDynamic.STATIC] * (leaf.ndim - 1)]
    fake_tensor = fake.from_tensor(whole, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))
    mark(fake_tensor, rows(Layout(0, 1, 1)))
    return fake_tensor


def _fake_constant(fake: FakeTensorMode, tensor: Tensor) -> Tensor:
    fake_tensor = fake.from_tensor(tensor, static_shapes=True)
    mark(fake_tensor, public(captured=True))
    return fake_tensor


def _whole(parameter: Tensor) -> Tensor:
    """A sharded parameter as a layer sees it: whole."""
    if not hasattr(parameter, "device_mesh"):
        return parameter
    return nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype, device=parameter.device), parameter.requires_grad)


@contextmanager
def _unsplit(model: nn.Module) -> Iterator[None]:
    """Remove the hooks by which fully_shard gathers weights, which are whole here."""
    saved = [(hooks, dict(hooks)) for module in model.modules() for hooks in (module._forward_pre_hooks, module._forward_hooks)]
    for hooks, before in saved:
        for number, hook in before.items():
            if type(getattr(hook, "__self__", None)).__name__ == "FSDPState":
                del hooks[number]
    try:
        yield
    finally:
        for hooks, before in saved:
            if len(hooks) != len(before):
                hooks.clear()
                hooks.update(before)


def _short(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0][:200]
