"""A recorded step: the list of torch's functions that model and loss called, with their arguments, to be called again.

On the fast path this proven list runs, and the code of model and loss gets no private row. A node calls a function of torch, a
layer of the engine, or a part of the list that belongs to a module or a checkpoint. Its arguments are constants, values of
earlier nodes, parameters and buffers of the model, and numbers computed from the batch size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from discreet.learn.sgd.engine.compiled import forward_of, recorded
from discreet.learn.sgd.proof.objects import foreign_class
from discreet.learn.sgd.proof.values import NotProven

Get = Callable[["Env"], Any]


@dataclass(frozen=True)
class Ref:
    """A tensor that an earlier node gave, or that went in."""

    slot: int


@dataclass(frozen=True)
class Held:
    """A parameter or buffer of the model, as it is when it is used."""

    module: str
    name: str
    buffer: bool


@dataclass(frozen=True)
class Sized:
    """A number computed from the size of the batch: times · B + plus."""

    times: int
    plus: int


@dataclass(frozen=True)
class State:
    """Grad mode and autocast types: the state that a `with` around a call sets."""

    grad: bool
    cast: tuple[tuple[str, bool, torch.dtype], ...]

    @classmethod
    def now(cls) -> State:
        kinds = ("cpu", "cuda")
        cast = tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)
        return cls(torch.is_grad_enabled(), cast)

    def enter(self, outer: State) -> None:
        torch._C._set_grad_enabled(self.grad and outer.grad)
        for kind, enabled, dtype in self.cast:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, dtype)


@dataclass
class Node:
    """One call. `module`: of a layer; `part`: the operations of a module's own forward, or of what a checkpoint runs again."""

    func: Callable[..., Any] | None
    args: Any
    kwargs: Any
    state: State
    outs: list[int] = field(default_factory=list)  # slots of the tensors that come out; -1: not used
    module: str | None = None
    part: Part | None = None
    drops: tuple[int, ...] = ()  # slots that no later node uses
    where: str = ""  # the line of code that made the call


@dataclass
class Part:
    """A list of nodes with what goes in, what it takes from around it, and what comes out."""

    inputs: list[int]
    size: tuple[int, int, int] | None  # where the batch size is found: which input, along which axis, by which factor
    nodes: list[Node] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)


class Env:
    """The tensors of one run, by slot."""

    __slots__ = ("size", "values")

    def __init__(self, values: dict[int, Any], size: Any) -> None:
        self.values, self.size = values, size


class Program:
    """The recorded losses of a batch, independent of a model: parameters are referenced by name."""

    def __init__(self, whole: Part, start: State, tree: Any = None) -> None:
        self.whole, self.start, self.tree = whole, start, tree
        self.constants = any(isinstance(leaf, Tensor) for part in parts(whole) for n in part.nodes for leaf in _leaves(n))

    def bound(self, model: nn.Module) -> Callable[[Any], Any]:
        """The program with the parameters of this model."""
        return Bound(self, model)


class Bound:
    """A program with the modules that it names."""

    def __init__(self, program: Program, model: nn.Module) -> None:
        modules = dict(model.named_modules(remove_duplicate=False))
        self._program = program
        self._run = _runner(program.whole, program.start, modules)

    def __call__(self, batch: Any) -> Any:
        with _as_begun():
            outs = self._run({}, *pytree.tree_leaves(batch))
        return outs[0] if self._program.tree is None else pytree.tree_unflatten(outs, self._program.tree)


@contextmanager
def _as_begun() -> Iterator[None]:
    """Restore grad mode and autocast if something inside fails."""
    outer = State.now()
    try:
        yield
    finally:
        if State.now() != outer:
            outer.enter(outer)


def parts(part: Part) -> Iterator[Part]:
    yield part
    for node in part.nodes:
        if node.part is not None:
            yield from parts(node.part)


def _leaves(node: Node) -> list[Any]:
    return pytree.tree_leaves((node.args, node.kwargs))


# ---- running ---------------------------------------------------------------------------------------------------------


def _runner(part: Part, start: State, modules: dict[str, nn.Module]) -> Callable[..., tuple[Any, ...]]:
    """A function of the values captured from the enclosing part, by slot, and of the part's inputs."""
    canonical = {start: start}  # equal states are interned, so that comparing them costs nothing
    states = [canonical.setdefault(node.state, node.state) for node in part.nodes]
    steps = [
        (_caller(step_node, modules), step_node.outs, step_node.drops, state, step_node.where)
        for step_node, state in zip(part.nodes, states, strict=True)
    ]

    def run(outside: dict[int, Any], *inputs: Any) -> tuple[Any, ...]:
        env = Env({**outside, **dict(zip(part.inputs, inputs, strict=True))}, _size(part, inputs))
        values, outer, now = env.values, State.now(), start
        for call, outs, drops, state, where in steps:
            if state is not now:
                (outer if state is start else state).enter(outer)
                now = state
            try:
                result = call(env)
            except Exception as error:
                error.where = getattr(error, "where", where)  # type: ignore[attr-defined]
                raise
            if len(outs) == 1 and isinstance(result, Tensor):
                values[outs[0]] = result
            elif outs:
                values.update(zip(outs, tensors(result), strict=True))
            del result
            for slot in drops:
                values.pop(slot, None)
        if now is not start:
            outer.enter(outer)
        return tuple(values[slot] for slot in part.outs)

    return run


def _size(part: Part, inputs: Sequence[Any]) -> Any:
    if part.size is None:
        return None
    place, axis, times = part.size
    size = inputs[place].shape[axis]
    return size if times == 1 else size // times


def _caller(node: Node, modules: dict[str, nn.Module]) -> Callable[[Env], Any]:
    args, kwargs = _filled(node.args, modules), _filled(node.kwargs, modules)
    if node.part is not None:
        return _of_part(node, node.part, args, kwargs, modules)
    if node.module is not None:
        layer = modules[node.module]
        return lambda env: _called(layer, args(env), kwargs(env))
    func: Any = node.func
    if not node.kwargs:
        return lambda env: func(*args(env))
    return lambda env: func(*args(env), **kwargs(env))


def _of_part(node: Node, part: Part, args: Get, kwargs: Get, modules: dict[str, nn.Module]) -> Callable[[Env], Any]:
    run = _runner(part, node.state, modules)
    module = None if node.module is None else modules[node.module]

    def call(env: Env) -> Any:
        outside = {slot: env.values[slot] for slot in part.taken}
        if module is None:  # a checkpoint: given all that it uses, it can be run again
            return checkpoint(partial(run, outside), *args(env), use_reentrant=False, **node.func())  # type: ignore[misc]

        def forward(*operands: Any, **named: Any) -> tuple[Any, ...]:
            return run(outside, *tensors((operands, named)))

        with recorded(module, forward):
            return _called(module, args(env), kwargs(env))

    return call


def _called(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """Call the forward that the engine or the proof installed; else the recorded one, or torch's own."""
    placed = module.__dict__.get("forward")
    forward = placed if placed is not None and getattr(placed, "discreet", False) else forward_of(module)
    shards = sharding(module)
    if shards is None:
        return forward(*args, **kwargs)
    args, kwargs = shards._pre_forward(module, args, kwargs)
    return shards._post_forward(module, args, forward(*args, **kwargs))


def sharding(module: nn.Module) -> Any:
    """The state of fully_shard for a module, which gathers the weights in forward and backward; None for others."""
    hooks = [getattr(hook, "__self__", None) for hook in module._forward_pre_hooks.values()]
    return next((state for state in hooks if type(state).__name__ == "FSDPState" and foreign_class(type(state))), None)


def _filled(template: Any, modules: dict[str, nn.Module]) -> Get:
    """A function that puts tensors and sizes into a template of arguments."""
    if isinstance(template, Ref):
        slot = template.slot
        return lambda env: env.values[slot]
    if isinstance(template, Sized):
        times, plus = template.times, template.plus
        return lambda env: times * env.size + plus if plus else env.size if times == 1 else times * env.size
    if isinstance(template, Held):
        module, name = modules[template.module], template.name
        held = module._buffers if template.buffer else module._parameters
        if type(held) is not dict:
            raise NotProven(f"a module keeps its parameters in a container with code of its own ({type(held).__name__})")
        if template.buffer and held[name].requires_grad:  # type: ignore[union-attr]
            return lambda env: held[name].detach()  # type: ignore[union-attr]
        return lambda env: held[name]
    if isinstance(template, Tensor):
        constant = template.detach()  # no gradient may go to its hooks
        return lambda env: constant
    if not _open(template):
        return lambda env: template
    if isinstance(template, slice):
        ends = _filled((template.start, template.stop, template.step), modules)
        return lambda env: slice(*ends(env))
    if isinstance(template, dict):
        named = {key: _filled(item, modules) for key, item in template.items()}
        return lambda env: {key: get(env) for key, get in named.items()}
    kind, getters = type(template), [_filled(item, modules) for item in template]
    return lambda env: kind([get(env) for get in getters])


def _open(template: Any) -> bool:
    """Whether something is to be put in."""
    if isinstance(template, slice):
        return any(map(_open, (template.start, template.stop, template.step)))
    if isinstance(template, dict):
        return any(map(_open, template.values()))
    if isinstance(template, (tuple, list)):
        return any(map(_open, template))
    return isinstance(template, (Ref, Sized, Held, Tensor))


def tensors(tree: Any) -> list[Tensor]:
    """The tensors in tuples, lists and dictionaries, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        return [leaf for item in dict.values(tree) for leaf in tensors(item)]
    if isinstance(tree, (tuple, list)):
        parts = tuple.__iter__(tree) if isinstance(tree, tuple) else list.__iter__(tree)
        return [leaf for item in parts for leaf in tensors(item)]
    return []


def tidy(part: Part, needed: Iterable[int] = ()) -> None:
    """Note for every node which slots are not needed after it, so that memory is freed as in the original code."""
    last: dict[int, int] = {}
    for number, node in enumerate(part.nodes):
        used = [leaf.slot for leaf in _leaves(node) if isinstance(leaf, Ref)]
        for slot in (*used, *node.outs, *(node.part.taken if node.part is not None else ())):
            last[slot] = number
        if node.part is not None:
            tidy(node.part)
    for slot in (*part.outs, *needed):
        last.pop(slot, None)
    for number, node in enumerate(part.nodes):
        node.drops = tuple(slot for slot, at in last.items() if at == number)
