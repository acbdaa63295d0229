"""Modules without a hand-written layer.

Every example gets its own copy of the parameters, so one backward gives each example its gradient. Where a parameter only
meets examples by broadcasting (a class token, position embeddings, a scale per channel), a copy is that parameter with a
leading axis of examples, and the module's own forward runs on it: `spread_over`. Everything else runs example by example
under vmap: `copied`. Which of the two applies is determined on made-up examples, before anything private is read.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from discreet.errors import InvalidValue
from discreet.learn.sgd.engine.compiled import forward_of, is_recorded
from discreet.learn.sgd.engine.tape import Forward, Record, Tape

MOST_AXES = 5  # of what a parameter is broadcast against: examples, channels and three of space


class _Spread(torch.autograd.Function):
    """A copy of a parameter for every example; its gradient goes to the record.

    A leaf of its own for every step would get its gradient on a stream of torch's choice, which no CUDA graph can record.
    """

    @staticmethod
    def forward(ctx: Any, p: Tensor, examples: int, axes: int, record: CopiedRecord) -> Tensor:
        ctx.record, ctx.parameter = record, p
        return _expanded(p.detach(), examples, axes).clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None, None]:
        ctx.record.gradients[ctx.parameter] = gradient
        return None, None, None, None


class CopiedRecord(Record):
    """Parameters of which every example has a copy."""

    def __init__(self, tape: Tape, parameters: Iterable[Tensor]) -> None:
        self.tape, self.parameters = tape, list(parameters)
        self.gradients: dict[Tensor, Tensor] = {}  # of the copies, from the backward
        self._known: dict[Tensor, Tensor] = {}

    def copy(self, p: Tensor, axes: int) -> Tensor:
        """[examples, …], with so many axes in all."""
        copy: Tensor = _Spread.apply(p, self.tape.examples, axes, self)
        return copy

    def reached(self) -> bool:
        return bool(self.gradients)

    def instantiate(self) -> dict[Tensor, Tensor]:
        if not self._known:
            for p in self.parameters:
                gradient = self.gradients.get(p)
                shape = (self.tape.units, *p.shape)
                self._known[p] = (
                    torch.zeros(shape, device=p.device) if gradient is None
                    else gradient.reshape(-1, self.tape.rows, *p.shape).sum(1)
                )  # fmt: skip
        return self._known


# ---- by vmap ---------------------------------------------------------------------------------------------------------


def copied(module: nn.Module, tape: Tape) -> Callable[..., Any]:
    """The module's forward, run example by example under vmap, including all modules inside it."""
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}

    def forward(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except Exception as error:  # whatever a user's forward raises for a single example
            tape.layout.lost.add(module)
            if tape.layout.learning:  # what is around it may be run in its place, see Engine.enclose
                return forward_of(module)(*args, **kwargs)
            if isinstance(error, InvalidValue):
                raise
            raise InvalidValue(_why(module, error)) from error

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, shape = pytree.tree_flatten((args, kwargs))
        examples = tape.examples
        axes = [_axis(module, tape, leaf) for leaf in leaves]
        if 0 not in axes:
            raise InvalidValue(
                f"{type(module).__name__} has parameters of its own but takes nothing with one entry per example, "
                "so no example can be told from another. Let the module that calls it hold these parameters."
            )
        several = any(axis == 0 and leaf.shape[0] != examples for leaf, axis in zip(leaves, axes))
        leaves = [leaf.unflatten(0, (examples, -1)) if several and axis == 0 else leaf for leaf, axis in zip(leaves, axes)]
        record = CopiedRecord(tape, trained.values())
        copies = {name: record.copy(p, p.ndim + 1) for name, p in trained.items()}

        outputs: tuple[list[Any], Any] = ([], None)

        def run_example(parameters: dict[str, Tensor], *values: Any) -> list[Tensor]:
            nonlocal outputs
            single = [leaf[None] if axis == 0 and not several else leaf for leaf, axis in zip(values, axes)]
            its_args, its_kwargs = pytree.tree_unflatten(single, shape)
            out = functional_call(_Plain(module), {f"inner.{name}": p for name, p in parameters.items()}, its_args, its_kwargs)
            outputs = pytree.tree_flatten(out)
            tensors = [leaf for leaf in outputs[0] if isinstance(leaf, Tensor)]
            return tensors if several else [leaf.squeeze(0) for leaf in tensors]

        batched = vmap(run_example, in_dims=(0, *axes), randomness="different")
        with _no_fast_path(), _no_warnings(), _Padding(), sdpa_kernel(SDPBackend.MATH) if _on_cpu(copies) else nullcontext():
            try:
                result = batched(copies, *leaves)
            except RuntimeError:
                kind = next(iter(copies.values())).device.type
                if not torch.is_autocast_enabled(kind):
                    raise
                with torch.autocast(kind, enabled=False):  # under vmap autocast forgets some operations; then none is narrow
                    result = batched(copies, *map(_widened, leaves))
        tape.add(record)
        tensors = iter(leaf.flatten(0, 1) if several and leaf.ndim > 1 else leaf for leaf in result)
        # vmap gives nothing else back: None, say, is as the last example had it
        return pytree.tree_unflatten([next(tensors) if isinstance(leaf, Tensor) else leaf for leaf in outputs[0]], outputs[1])

    return forward


def _why(module: nn.Module, error: Exception) -> str:
    message = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    return (
        f"{type(module).__name__} holds parameters and no layer of its kind is known here, so it is run example by example "
        f"under torch.func.vmap, where it fails: {message}. "
        "Write its forward with other operations, none of which changes a tensor in place or chooses by value; if it renews "
        "buffers in every forward, as spectral_norm does, put it into eval mode; or fix its parameters (requires_grad_(False))."
    )


class _Padding(TorchFunctionMode):
    """Applies padding_idx here: under vmap all examples' tables are one, and F.embedding would take it for a row of that."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.embedding:
            return func(*args, **(kwargs or {}))
        bound = inspect.signature(F.embedding).bind(*args, **(kwargs or {}))
        chosen, table, padding = bound.arguments["input"], bound.arguments["weight"], bound.arguments.get("padding_idx")
        bound.arguments["padding_idx"] = None
        rows = F.embedding(*bound.args, **bound.kwargs)
        if padding is None:
            return rows
        return torch.where((chosen == padding % table.shape[0])[..., None], rows.detach(), rows)


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Silence torch's warnings about a user's forward under vmap, which the user cannot act on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop")
        warnings.filterwarnings("ignore", "The use of `x.T` on tensors")
        yield


def _widened(leaf: Any) -> Any:
    return leaf.float() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _on_cpu(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the tensors are on a CPU, where fused attention has no vmap rule and would run one example at a time."""
    return all(t.device.type == "cpu" for t in tensors.values())


@contextmanager
def _no_fast_path() -> Iterator[None]:
    """Disable the fast path of torch's transformers, which in eval mode under vmap would give no gradients."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _axis(module: nn.Module, tape: Tape, leaf: Any) -> int | None:
    if not isinstance(leaf, Tensor) or not leaf.ndim:
        return None
    if tape.layout.shared(module, leaf, tape.examples):
        return None
    return 0 if leaf.shape[0] == tape.examples * tape.layout.times(module, leaf, tape.examples) else None


class _Plain(nn.Module):
    """Calls the module's own forward, not the engine's, after the hooks that compute its weights."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        plain = forward_of(self.inner)
        return plain(*args, **kwargs) if is_recorded(plain) else with_hooks(self.inner, plain, args, kwargs)


def with_hooks(module: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run the hooks that compute the module's weights, then its forward."""
    before = {name: vars(module)[name] for name in computed(module)}
    try:
        for hook in list(module._forward_pre_hooks.values()) if before else ():
            hook(module, args)
        return forward(*args, **kwargs)
    finally:
        vars(module).update(before)


def computed(module: nn.Module) -> list[str]:
    """Attributes that forward pre-hooks compute from parameters: the old weight_norm and spectral_norm, and pruning."""
    attributes = vars(module).items() if module._forward_pre_hooks else ()
    return [name for name, value in attributes if isinstance(value, Tensor) and value.requires_grad]


# ---- by an axis of examples ------------------------------------------------------------------------------------------


def spread(tape: Tape, p: Tensor, axes: int | None = None) -> Tensor:
    """A parameter for every example, [examples, …], shaped to broadcast with activations of `axes` axes."""
    axes = p.ndim if axes is None else axes
    if not p.requires_grad:
        return _expanded(p.detach(), tape.examples, axes)
    record = CopiedRecord(tape, [p])
    tape.add(record)
    return record.copy(p, axes)


def _expanded(p: Tensor, examples: int, axes: int) -> Tensor:
    if p.ndim == axes and p.shape[0] == 1:
        return p.expand(examples, *p.shape[1:])
    return p.view(*(1,) * (axes - p.ndim), *p.shape).expand(examples, *(-1,) * (axes - 1))


def _fits(p: Tensor, axes: int) -> bool:
    return p.ndim < axes or (p.ndim == axes and p.shape[0] == 1)


LISTS = (nn.ParameterList, nn.ParameterDict)  # parameters of the module that has them, as far as their use goes


def own(module: nn.Module) -> dict[str, nn.Parameter]:
    """The trained parameters that a module's own forward uses, those in lists included."""
    result = {name: p for name, p in module.named_parameters(recurse=False) if p.requires_grad}
    for name, child in module.named_children():
        if isinstance(child, LISTS):
            result |= {f"{name}.{inner}": p for inner, p in own(child).items()}
    return result


@contextmanager
def _holding(module: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Replace parameters of the module by other tensors."""
    places = {name: (module.get_submodule(name.rpartition(".")[0])._parameters, name.rpartition(".")[2]) for name in tensors}
    before = {name: where[key] for name, (where, key) in places.items()}
    try:
        for name, (where, key) in places.items():
            where[key] = tensors[name]  # type: ignore[assignment]
        yield
    finally:
        for name, (where, key) in places.items():
            where[key] = before[name]


def spread_over(axes: int) -> Forward:
    """A forward of the module's own on parameters spread over the examples; the layers inside run as they are."""

    def make(module: nn.Module, tape: Tape) -> Callable[..., Any]:
        trained = own(module)

        def forward(*args: Any, **kwargs: Any) -> Any:
            with _holding(module, {name: spread(tape, p, axes) for name, p in trained.items()}):
                return forward_of(module)(*args, **kwargs)

        return forward

    return make


# ---- which of the two ------------------------------------------------------------------------------------------------

Spreads = dict[nn.Module, int | None]  # over how many axes a module's parameters spread; None: only vmap is right


def tried(spreads: Spreads) -> Forward:
    """The module's own forward, which also determines over how many axes its parameters can be spread."""

    def make(module: nn.Module, tape: Tape) -> Callable[..., Any]:
        plain, trained = type(module).forward, own(module)
        tried_shapes: set[Any] = set()  # what it was tried on; modules inside others are run many times

        def run(held: Mapping[str, Tensor], args: Any, kwargs: Any) -> Any:
            seed = torch.initial_seed() % 2**63
            with torch.random.fork_rng(devices=_cuda(trained)), _holding(module, held):
                torch.manual_seed(seed)
                return plain(module, *args, **kwargs)

        def forward(*args: Any, **kwargs: Any) -> Any:
            shapes = (tape.examples, *(getattr(leaf, "shape", None) for leaf in pytree.tree_leaves((args, kwargs))))
            if shapes not in tried_shapes and spreads.get(module, 0) is not None:
                tried_shapes.add(shapes)
                candidates = range(2, MOST_AXES + 1) if module not in spreads else [spreads[module]]
                with torch.autograd.graph.saved_tensors_hooks(Tensor.detach, _same):  # in a checkpoint, nothing is run again
                    y = run({}, args, kwargs)
                    spreads[module] = next((n for n in candidates if n and _right(n, y, args, kwargs)), None)
            return plain(module, *args, **kwargs)

        def _right(axes: int, wanted: Any, args: Any, kwargs: Any) -> bool:
            if not all(_fits(p, axes) for p in trained.values()):
                return False
            copies = {name: _expanded(p.detach(), tape.examples, axes).requires_grad_() for name, p in trained.items()}
            try:
                with _no_warnings():
                    y = run(copies, args, kwargs)
            except Exception:  # whatever a user's forward raises for unexpected shapes
                return False
            return _attributed(_outputs(wanted), _outputs(y), list(trained.values()), list(copies.values()), tape.examples)

        return forward

    return make


def _same(t: Tensor) -> Tensor:
    return t


def _outputs(y: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(y) if isinstance(leaf, Tensor) and leaf.requires_grad]


def _attributed(wanted: list[Tensor], actual: list[Tensor], own: list[Tensor], copies: list[Tensor], examples: int) -> bool:
    """Whether the outputs agree and each example's gradient is correct and in its own copies alone."""
    if not wanted or len(wanted) != len(actual) or any(y.shape != z.shape for y, z in zip(wanted, actual)):
        return False
    if any(not y.ndim or y.shape[0] != examples for y in actual) or not all(map(_near, actual, wanted)):
        return False
    for i in range(examples):
        directions = [torch.randn_like(y[i]) for y in wanted]
        expected = torch.autograd.grad([y[i] for y in wanted], own, directions, retain_graph=True, allow_unused=True)
        spread_out = torch.autograd.grad([y[i] for y in actual], copies, directions, retain_graph=True, allow_unused=True)
        for g, copy in zip(expected, spread_out):
            if g is None or copy is None:
                if g is not None or copy is not None:
                    return False
                continue
            others = torch.cat((copy[:i], copy[i + 1 :]))
            if bool(others.any()) or not _near(copy[i].reshape(g.shape), g):
                return False
    return True


def _near(value: Tensor, other: Tensor) -> bool:
    """Equal up to rounding; the errors to be detected are as large as the values."""
    value, other = value.detach(), other.detach()
    scale = float(other.abs().max()) if other.numel() else 0.0
    share = 0.03 if torch.is_autocast_enabled(value.device.type) else 1e-4
    return bool(torch.allclose(value, other, rtol=0.0, atol=share * scale))


def _cuda(own: Mapping[str, Tensor]) -> list[torch.device]:
    return [p.device for p in list(own.values())[:1] if p.device.type == "cuda"]
