"""Gradients of each unit from its own rows alone, so that no unit can influence another's, whatever the model does.

Under vmap one run of the model's code serves all units, and every operation treats them separately; code that branches on
values fails there. Such a model, and one with vmap rules of its own, is run for one unit after another. Parameters and buffers
are copies, so changes by a forward affect no other unit and are discarded; so are changes to Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.stateless import _reparametrize_module
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from discreet.errors import InvalidValue
from discreet.learn.sgd.clipping import Clipping
from discreet.learn.sgd.distributed import local
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.compiled import eagerly
from discreet.learn.sgd.engine.fallback import _no_fast_path, _no_warnings
from discreet.learn.sgd.engine.probe import checked
from discreet.learn.sgd.engine.tape import Record, Tape
from discreet.learn.sgd.proof.operations import hidden, vmap_rules
from discreet.learn.sgd.proof.process import as_it_was, beside
from discreet.learn.sgd.proof.python import Watch
from discreet.learn.sgd.proof.shapes import BLANK

ROOM = 1 << 26  # numbers of gradients that are written out at once
CHANGED = (
    "changed in place while rows were computed (by max_norm, say, by writing to .data, or by requires_grad_), so something of "
    "the rows would be released without noise. Change nothing in place in model and loss."
)

Losses = Callable[[Any], Tensor]


class Own(Record):
    """The gradients of the parameters of one module, written out, [units, …]."""

    def __init__(self, gradients: dict[Tensor, Tensor]) -> None:
        self._known = gradients
        self.parameters = list(gradients)

    def instantiate(self) -> dict[Tensor, Tensor]:
        return self._known


class Alone(Engine):
    """For losses of one unit at a time that are computed elsewhere: an ordinary backward."""

    @contextmanager
    def recording(self, examples: int) -> Iterator[Tape]:
        self.tape.clear()
        self.tape.examples = examples
        with eagerly():
            yield self.tape

    def add(self, losses: Tensor, clipping: Clipping, into: Tensor, scale: float = 1.0) -> None:
        raw = torch.autograd.grad(losses.sum(), self.parameters, allow_unused=True)
        dense = [torch.zeros_like(p) if g is None else g.to_dense() for g, p in zip(raw, self.parameters)]
        gradients = {p: g.detach().float()[None] for p, g in zip(self.parameters, dense)}
        with torch.no_grad(), torch.autocast(into.device.type, enabled=False):
            self._add([Own({p: g}) for p, g in gradients.items()], clipping, into, scale)


class Unchanged:
    """Checks that parameters and buffers are bit for bit unchanged, since the code may reach them by another name.

    The check covers the tensors at the end, whose memory may have been replaced (`p.data = …`, `set_`, `swap_tensors`), and
    whether they are trained. Changes are undone, and refused where they would depend on private rows without noise.
    """

    def __init__(self, model: nn.Module, *, refuse: bool = True) -> None:
        self._refuse = refuse
        own = {id(tensor): (name, tensor) for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        self._own = [
            (name, tensor, _form(tensor), tensor.data, local(tensor).detach().clone()) for name, tensor in own.values()
        ]
        self._beside = _beside(
            local(tensor) for _, tensor in own.values()
        )  # memory around them, which can be reached from them

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        changed = [state for state in self._own if not _unchanged(*state[1:])]
        for _, tensor, form, data, before in changed:
            _write_back(tensor, form, data, before)
        for name, memory, before in self._beside:
            if not torch.equal(memory, before):
                memory.copy_(before)
                changed.append((name,))  # type: ignore[arg-type]
        if changed and kind is None and self._refuse:
            raise InvalidValue(f"{', '.join(state[0] for state in changed[:5])}: {CHANGED}")


class Isolated:
    """Clipped sums for an engine's parameters, unit by unit."""

    def __init__(self, engine: Engine, losses: Losses, code: Iterable[Any]) -> None:
        self.engine, self._losses = engine, losses
        self._code = list(code)
        self._watch: Watch | None = None
        self._names = {name: p for name, p in engine.model.named_parameters() if p.requires_grad}
        self.why, self.way = "", "vmap"
        self._see(Watch(engine.model, self._code))
        self.tried = self.way  # what is published: the way at the beginning

    def _see(self, watch: Watch) -> Watch:
        """Decide whether vmap may be used; called before every step, since rules can be registered at any time."""
        rules = vmap_rules()
        if rules or watch.serial:
            self.why = watch.serial or f"operations with rules for vmap of their own are loaded: {rules[0]}"
            self.way = "one by one"
        return watch

    def try_on(self, batch: Any) -> None:
        """Find out on made-up rows whether the model can be vectorised."""
        with torch.random.fork_rng(devices=_cuda(self.engine)):
            self.gradients(batch, None)
        self.tried = self.way

    def add(self, batch: Any, weight: Tensor | None, clipping: Clipping, into: Tensor, scale: float) -> None:
        """Add the clipped gradients of all units of a batch, each times `scale`."""
        examples = pytree.tree_leaves(batch)[0].shape[0]
        units, rows = examples // self.engine.rows, self.engine.rows
        self._watch = self._see(Watch(self.engine.model, self._code))  # what is put back is the same for all units
        most = max(1, ROOM // max(self.engine.size, 1)) if self.way == "vmap" else 1
        with Unchanged(self.engine.model), self._watching():
            for start in range(0, units, most):
                part = slice(start * rows, min(start + most, units) * rows)
                piece = pytree.tree_map(lambda leaf, part=part: leaf[part], batch)
                its = self.gradients(piece, None if weight is None else weight[part])
                self.engine.tape.examples = part.stop - part.start
                with torch.no_grad(), torch.autocast(into.device.type, enabled=False):
                    self.engine._add([Own(group) for group in self._by_module(its)], clipping, into, scale)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._watch = None

    def _by_module(self, gradients: dict[str, Tensor]) -> list[dict[Tensor, Tensor]]:
        groups: dict[str, dict[Tensor, Tensor]] = {}
        for name, gradient in gradients.items():
            groups.setdefault(name.rpartition(".")[0], {})[self._names[name]] = gradient
        return list(groups.values())

    @contextmanager
    def checked(self) -> Iterator[None]:
        """A context in which one unit's losses are computed elsewhere; changes that other units could see are refused."""
        watch = Watch(self.engine.model, self._code)
        with Unchanged(self.engine.model):
            yield
        watch.restore(fresh=True)
        refuse(watch, after=True)

    # ---- gradients ---------------------------------------------------------------------------------------------------

    def gradients(self, batch: Any, weight: Tensor | None) -> dict[str, Tensor]:
        """By name, [units, …], float32."""
        rows = self.engine.rows
        leaf = pytree.tree_leaves(batch)[0]
        weight = torch.ones(leaf.shape[0], device=leaf.device) if weight is None else weight
        by_unit = pytree.tree_map(lambda tensor: tensor.unflatten(0, (-1, rows)), (batch, weight))
        if self.way == "vmap":
            together = self._together(*by_unit)
            if together is not None:
                return together
            self.way = "one by one"
        units = weight.shape[0] // rows
        seeds = torch.randint(2**62, (units,)).tolist()  # before any unit runs: none can choose what the next one draws
        alone = [pytree.tree_map(lambda tensor, i=i: tensor[i].clone(), by_unit) for i in range(units)]
        per_unit = [self._alone(own, its, seed) for (own, its), seed in zip(alone, seeds, strict=True)]
        return {name: torch.stack([its[name] for its in per_unit]) for name in self._names}

    def _together(self, batch: Any, weight: Tensor) -> dict[str, Tensor] | None:
        """All units under vmap; None where that does not work, or where the copies of the state were changed."""
        held, fixed = self._copies(), self._copies(trained=False)

        def loss(parameters: dict[str, Tensor], rows: Any, its: Tensor) -> Tensor:
            with self._with({**parameters, **fixed}):
                return self._loss(rows, its)

        try:
            with self._unseen(), _no_custom_rules(), hidden() as peeked:
                gradients = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(held, batch, weight)
        except Exception as error:  # whatever a user's code raises under vmap
            self.why = f"it cannot be vectorised: {type(error).__name__}"  # its message may hold private values
            return None
        if peeked:
            self.why = f"its code looks behind vmap ({peeked[0]})"
            return None
        if not self._intact({**held, **fixed}):
            self.why = "a forward changes parameters or buffers in place"
            return None
        return {name: its.detach().float() for name, its in gradients.items()}

    def _alone(self, batch: Any, weight: Tensor, seed: int) -> dict[str, Tensor]:
        """One unit, with copies of everything that a forward might change."""
        held = {name: copy.requires_grad_() for name, copy in self._copies().items()}
        with as_it_was(seed), self._unseen(), torch.enable_grad(), self._with({**held, **self._copies(trained=False)}):
            loss = self._loss(batch, weight)
            if loss.requires_grad:  # backward, not autograd.grad, and here: reentrant checkpoints run the forward again in it
                loss.backward()
        return {
            name: torch.zeros_like(copy, dtype=torch.float32) if copy.grad is None else copy.grad.detach().to_dense().float()
            for name, copy in held.items()
        }

    @contextmanager
    def on_copies(self) -> Iterator[None]:
        """A context in which the model has copies of its parameters and buffers; a change of parameters is refused."""
        held = {name: copy.requires_grad_() for name, copy in self._copies().items()}
        fixed = self._copies(trained=False)
        with self._with({**held, **fixed}):
            yield
        own = dict(self.engine.model.named_parameters())
        changed = [name for name, copy in (*held.items(), *fixed.items()) if name in own and not _alike(copy, own[name])]
        if changed:
            raise InvalidValue(f"{', '.join(changed[:5])}: {CHANGED}")

    def _with(self, state: dict[str, Tensor]) -> AbstractContextManager[None]:
        return _reparametrize_module(self.engine.model, state, tie_weights=True)

    def _loss(self, rows: Any, weight: Tensor) -> Tensor:
        return (checked(self._losses(rows), self.engine.rows) * weight).sum()

    def _copies(self, trained: bool = True) -> dict[str, Tensor]:
        if trained:
            return {name: p.detach().clone() for name, p in self._names.items()}
        model = self.engine.model
        others = [(name, p) for name, p in model.named_parameters() if not p.requires_grad] + list(model.named_buffers())
        return {name: tensor.detach().clone() for name, tensor in others}

    def _intact(self, copies: dict[str, Tensor]) -> bool:
        own = {**dict(self.engine.model.named_parameters()), **dict(self.engine.model.named_buffers())}
        return all(_alike(copies[name], own[name]) for name in copies)

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        """Undo changes to Python objects, and disable torch's fast paths that vmap cannot follow."""
        watch = self._watch or Watch(self.engine.model, self._code)
        cpu = self.engine.parameters[0].device.type == "cpu" and self.way == "vmap"
        with ExitStack() as stack:
            refuse(watch)
            stack.callback(refuse, watch, after=True)  # called last
            stack.callback(watch.restore, fresh=True)
            for context in (
                Written(),
                eagerly(),
                _no_fast_path(),
                _no_warnings(),
                sdpa_kernel(SDPBackend.MATH) if cpu else nullcontext(),
            ):
                stack.enter_context(context)
            yield


def refuse(watch: Watch, after: bool = False) -> None:
    """Where units run one after another, refuse state that cannot be restored between them."""
    if not after and (active := beside(contexts=False)) is not None:
        raise InvalidValue(
            f"While rows are computed, {active} is active, which could keep something of one unit for another. Leave that "
            "context, or take the function away, before training."
        )
    if watch.lost:
        raise InvalidValue(
            f"The code of model, loss or augment reaches something that cannot be looked into ({watch.lost}), in which one "
            "unit could leave something for another. Keep such things (generators, locks, files) out of it."
        )
    if after and watch.changed() is not None:
        raise InvalidValue(
            "The code of model, loss or augment changed something that could not be put back (an array's memory, say), so one "
            "unit would leave something for another. Let it keep nothing between calls."
        )


def _form(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor's numbers lie, and whether it is trained."""
    shard = local(tensor)
    return shard.data_ptr(), tuple(shard.shape), shard.stride(), shard.dtype, shard.device, tensor.requires_grad


def _beside(tensors: Iterable[Tensor]) -> list[tuple[str, Tensor, Tensor]]:
    """The storages that are larger than the tensors in them, each with a copy."""
    larger = {}
    for tensor in tensors:
        stored = tensor.untyped_storage()
        if tensor.device.type != "meta" and stored.nbytes() != tensor.numel() * tensor.element_size():
            larger[stored.data_ptr()] = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(stored)
    return [("memory beside a parameter", memory, memory.clone()) for memory in larger.values()]


def _unchanged(tensor: Tensor, form: tuple[Any, ...], data: Tensor, before: Tensor) -> bool:
    return _form(tensor) == form and _same_bits(local(tensor), before)


@torch.no_grad()
def _write_back(tensor: Tensor, form: tuple[Any, ...], data: Tensor, before: Tensor) -> None:
    if _form(tensor)[:-1] != form[:-1]:
        tensor.data = data
    local(tensor).detach().copy_(before)
    tensor.requires_grad_(form[-1])


def _alike(copy: Tensor, own: Tensor) -> bool:
    return copy.shape == own.shape and copy.dtype == own.dtype and _same_bits(copy, own)


def _same_bits(value: Tensor, other: Tensor) -> bool:
    value, other = value.detach().contiguous().view(-1), other.detach().contiguous().view(-1)
    return bool(torch.equal(value.view(torch.uint8), other.view(torch.uint8))) if value.numel() else True


class Written(TorchFunctionMode):
    """Memory that is asked for without contents holds zeros, and not what the rows of another unit left there."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "") in BLANK and isinstance(out, Tensor):
            with torch.no_grad():
                out.zero_()
        return out


@contextmanager
def _no_custom_rules() -> Iterator[None]:
    """Refuse custom autograd functions with a vmap rule of their own, which would see all units at once."""
    from torch._C._functorch import TransformType
    from torch._functorch.autograd_function import custom_function_call

    table = custom_function_call.functorch_table
    plain = table[TransformType.Vmap]

    def checked_rule(interpreter: Any, function: Any, *operands: Any, **more: Any) -> Any:
        if getattr(function, "vmap", None) is not torch.autograd.Function.vmap and not function.generate_vmap_rule:
            raise InvalidValue(f"{function.__name__} has a rule for vmap of its own, which sees all units at once.")
        return plain(interpreter, function, *operands, **more)

    table[TransformType.Vmap] = checked_rule
    try:
        yield
    finally:
        table[TransformType.Vmap] = plain


def _cuda(engine: Engine) -> list[torch.device]:
    device = engine.parameters[0].device
    return [device] if device.type == "cuda" else []
