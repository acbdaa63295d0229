"""Records, while model and loss are traced, which functions of torch they call: the program that runs instead of them.

Calls of torch's functions are recorded; operations that reach torch in another way (under vmap, from scripted code) are
recorded one by one. A tensor of unknown origin ends the recording.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from discreet.learn.sgd.engine.fallback import computed, with_hooks
from discreet.learn.sgd.engine.layers import computes
from discreet.learn.sgd.proof.intact import answering, line, of_torch
from discreet.learn.sgd.proof.objects import foreign_function, plain
from discreet.learn.sgd.proof.program import Held, Node, Part, Program, Ref, Sized, State, sharding, tensors, tidy
from discreet.learn.sgd.proof.values import NotProven, multiple, symbolic

NO = {"backward", "register_hook", "register_post_accumulate_grad_hook"}
FLAGS = {"requires_grad_", "detach_"}  # say of a tensor whether it is trained: not of one that outlives the step
UNKNOWN = "a tensor is used of which it was not seen where it came from"


class Frame:
    """A part during and after its recording."""

    def __init__(self, part: Part, outer: Frame | None, owner: str | None, node: Node | None) -> None:
        self.part, self.outer, self.owner, self.node = part, outer, owner, node


class Recorder(TorchFunctionMode):
    """Records the calls of one traced forward."""

    def __init__(self, model: nn.Module, layers: list[nn.Module]) -> None:
        super().__init__()
        self._model = model
        self._names = {module: name for name, module in model.named_modules()}
        split = [module for module in model.modules() if sharding(module) is not None]
        self._layers = list(dict.fromkeys(module for module in (*layers, *split) if module in self._names))
        self._slots: dict[int, tuple[Tensor, int]] = {}
        self._of: dict[int, Frame] = {}  # by slot
        self._held: dict[int, list[Held]] = {}
        self._keep: list[Tensor] = []
        self._covered = self._open = False
        self._ran = 0
        self.program: Program | None = None

    # ---- beginning and end -------------------------------------------------------------------------------------------

    def begin(self, inputs: Any) -> None:
        for path, module in self._model.named_modules(remove_duplicate=False):
            for buffer, held in ((False, module._parameters), (True, module._buffers)):
                for name, tensor in held.items():
                    if tensor is not None:
                        self._keep.append(tensor)
                        self._held.setdefault(id(tensor), []).append(Held(path, name, buffer))
        self._start = State.now()
        self._frame = self._framed(pytree.tree_leaves(inputs), None, None)
        self._whole, self._open = self._frame.part, True

    def end(self, outputs: Any, tree: bool = False) -> None:
        """Set the outputs: the losses, or a tree of tensors."""
        self._open = False
        leaves, shape = pytree.tree_flatten(outputs)
        if tree and not _plain_tree(shape):
            raise NotProven("what comes out is in a container with code of its own")
        refs = [self._reference(leaf) for leaf in leaves]
        if self._frame.outer is not None or not all(isinstance(ref, Ref) for ref in refs):
            raise NotProven("what comes out was not computed from the rows")
        self._whole.outs = [ref.slot for ref in refs]
        tidy(self._whole)
        self.program = Program(self._whole, self._start, shape if tree else None)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """A context in which layers and checkpoints are recorded as such."""
        before = {module: module.__dict__.get("forward") for module in self._layers}
        with ExitStack() as stack:
            for module in self._layers:
                module.__dict__["forward"] = self._layer(module, before[module])
                stack.callback(_put_back, module, before[module])
            plain = torch.utils.checkpoint._checkpoint_without_reentrant_generator
            torch.utils.checkpoint._checkpoint_without_reentrant_generator = self._checkpoint(plain)
            stack.callback(setattr, torch.utils.checkpoint, "_checkpoint_without_reentrant_generator", plain)
            stack.enter_context(self)
            yield

    # ---- calls -------------------------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self._open or self._covered:
            return func(*args, **kwargs)
        _allowed(func, args, self)
        template = self._template(func, args, kwargs)
        if template is None:  # seen below, operation by operation
            return func(*args, **kwargs)
        state, before = State.now(), self._ran
        out = self._inside(func, args, kwargs)
        leaves = tensors(out)
        if leaves or self._ran != before or getattr(func, "__name__", "") == "__set__":
            self._note(Node(func, *template, state), leaves)
        return out

    def _inside(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._covered = True
        try:
            return func(*args, **kwargs)
        finally:
            self._covered = False

    def operation(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        """An operation ran. If no recorded function called it, the operation itself is recorded."""
        self._ran += 1
        if not self._open or self._covered:
            return
        uncast = tuple((kind, False, dtype) for kind, _, dtype in self._start.cast)  # what it is given was cast already
        template = self._templates(args, kwargs)
        if template is None:
            raise NotProven(UNKNOWN)
        self._note(Node(func, *template, State(torch.is_grad_enabled(), uncast)), tensors(out))

    def _note(self, node: Node, leaves: list[Tensor]) -> None:
        node.outs, node.where = [self._slot(leaf, self._frame) for leaf in leaves], line()
        self._frame.part.nodes.append(node)

    def _slot(self, tensor: Tensor, frame: Frame) -> int:
        slot = len(self._of)
        self._of[slot] = frame
        self._slots[id(tensor)] = (tensor, slot)
        return slot

    # ---- arguments ---------------------------------------------------------------------------------------------------

    def _template(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        return self._templates(args, kwargs) if of_torch(func) else None

    def _templates(self, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """The arguments with references in the place of tensors; None where one cannot be recorded."""
        try:
            return tuple(self._recorded_argument(argument) for argument in args), {
                name: self._recorded_argument(argument) for name, argument in kwargs.items()
            }
        except _Unrecordable:
            return None

    def _recorded_argument(self, argument: Any) -> Any:
        if isinstance(argument, Tensor):
            return self._reference(argument)
        if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._sized(argument)
        kind = type(argument)
        if isinstance(argument, tuple):
            return tuple(self._recorded_argument(element) for element in tuple.__iter__(argument))
        if kind is list:
            return [self._recorded_argument(element) for element in argument]
        if kind is dict:
            return {self._recorded_argument(key): self._recorded_argument(element) for key, element in argument.items()}
        if kind is slice:
            return slice(
                self._recorded_argument(argument.start),
                self._recorded_argument(argument.stop),
                self._recorded_argument(argument.step),
            )
        if plain(argument) and kind not in (types.CodeType,):
            return argument
        raise _Unrecordable

    def _sized(self, size: Any) -> Any:
        if not symbolic(size):
            return size.node.maybe_as_int() if isinstance(size, torch.SymInt) else _fail()
        if not isinstance(size, torch.SymInt) or self._frame.part.size is None:
            raise NotProven("the size of the batch is used as a number")
        expr = size.node.expr
        symbols = list(expr.free_symbols)
        plus = expr.subs(symbols[0], 0)
        times = expr.subs(symbols[0], 1) - plus
        if len(symbols) != 1 or not (plus.is_Integer and times.is_Integer) or expr != times * symbols[0] + plus:
            raise NotProven("a size is computed from the batch size in another way than by a whole factor")
        return Sized(int(times), int(plus))

    def _reference(self, tensor: Tensor) -> Any:
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            raise _Unrecordable
        places = self._held.get(id(tensor))
        if places is not None:
            return self._own(places)
        known = self._slots.get(id(tensor))
        if known is not None:
            return Ref(self._reach(tensor, known[1]))
        if isinstance(tensor, FakeTensor) or type(tensor) not in (Tensor, nn.Parameter):
            raise NotProven(UNKNOWN)
        return tensor  # it was there before: a constant

    def _own(self, places: list[Held]) -> Held:
        """The name of a tied parameter in the module whose forward is running."""
        frame: Frame | None = self._frame
        while frame is not None:
            if frame.owner is not None:
                inside = f"{frame.owner}." if frame.owner else ""
                own = [
                    candidate for candidate in places if candidate.module == frame.owner or candidate.module.startswith(inside)
                ]
                if own:
                    return own[0]
            frame = frame.outer
        return places[0]

    def _reach(self, tensor: Tensor, slot: int) -> int:
        """The slot of a tensor in the current part: captured from an enclosing part, or returned by one that has ended."""
        current, way = self._frame, []
        around: list[Frame] = []
        frame: Frame | None = current
        while frame is not None:
            around.append(frame)
            frame = frame.outer
        while (home := self._of[slot]) not in around:
            assert home.node is not None
            assert home.outer is not None
            home.part.outs.append(slot)
            slot = self._slot(tensor, home.outer)
            home.node.outs.append(slot)
        for way_in in around:
            if way_in is home:
                break
            way.append(way_in)
        for frame in way:
            if slot not in frame.part.taken:
                frame.part.taken.append(slot)
        return slot

    # ---- layers, modules with parameters of their own, checkpoints ---------------------------------------------------

    def _layer(self, module: nn.Module, placed: Any) -> Callable[..., Any]:
        name, opaque = self._names[module], computes(module) and foreign_function(type(module).forward)  # type: ignore[arg-type]
        inner = functools.partial(type(module).forward, module) if placed is None else placed

        def forward(*args: Any, **kwargs: Any) -> Any:
            if not self._open or self._covered:
                return inner(*args, **kwargs)
            if (name_of := answering(module)) is not None:
                raise NotProven(f"a layer has code of its own where the engine looks at it ({type(module).__name__}.{name_of})")
            if placed is not None and not getattr(placed, "discreet", False):
                raise NotProven(f"a layer was given another forward ({type(module).__name__})")
            template = self._templates(args, kwargs)
            if template is None:
                raise NotProven(f"a layer is called with something that cannot be recorded ({type(module).__name__})")
            node = Node(None, *template, State.now(), module=name)
            if opaque:
                out = self._inside(inner, args, kwargs)
                self._note(node, tensors(out))
                return out
            return self._part(node, module, inner, args, kwargs)

        return forward

    def _part(self, node: Node, module: nn.Module, placed: Any, args: Any, kwargs: Any) -> Any:
        """Record a module that the engine runs by its own forward as a part."""
        with self._within(node, tensors((args, kwargs)), node.module) as frame:
            out = with_hooks(module, placed, args, kwargs) if computed(module) else placed(*args, **kwargs)
            leaves = [leaf for leaf in _all(out) if id(leaf) not in self._held]
            frame.part.outs = [self._reach(leaf, self._slots[id(leaf)][1]) for leaf in leaves if id(leaf) in self._slots]
        self._note(node, [leaf for leaf in leaves if id(leaf) in self._slots or not isinstance(leaf, FakeTensor)])
        return out

    @contextmanager
    def _within(self, node: Node, inputs: list[Tensor], owner: str | None = None) -> Iterator[Frame]:
        """A context in which calls are recorded as a part of the node; afterwards its inputs have their outer slots again."""
        outer, before = self._frame, {id(leaf): self._slots.get(id(leaf)) for leaf in inputs}
        self._frame = self._framed(inputs, outer, node, owner)
        try:
            yield self._frame
        finally:
            self._frame = outer
            for leaf_id, known in before.items():
                self._slots.pop(leaf_id, None)
                if known is not None:
                    self._slots[leaf_id] = known

    def _framed(self, inputs: list[Tensor], outer: Frame | None, node: Node | None, owner: str | None = None) -> Frame:
        axes = [(place, axis, multiple(size)) for place, tensor in enumerate(inputs) for axis, size in enumerate(tensor.shape)]
        size = next((entry for entry in axes if entry[2]), None)
        frame = Frame(Part([], size), outer, owner, node)
        frame.part.inputs = [self._slot(tensor, frame) for tensor in inputs]
        if node is not None:
            node.part = frame.part
        return frame

    def _checkpoint(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def generator(fn: Any, preserve: Any, *rest: Any, **kwargs: Any) -> Iterator[None]:
            around, args = plain(fn, preserve, *rest, **kwargs), rest[3:]  # before them: contexts, a check, a switch
            inputs = tensors((args, kwargs))
            if not self._open or self._covered or not torch.is_grad_enabled():
                yield from around
                return
            template = self._templates(tuple(inputs), {})
            if template is None:
                raise NotProven("a checkpoint is given something that cannot be recorded")
            node = Node(lambda: {"preserve_rng_state": preserve}, *template, State.now(), where=line())
            outer = self._frame
            with self._within(node, inputs):
                outer.part.nodes.append(node)
                yield from around

        return generator


class _Unrecordable(Exception):
    """An argument that cannot be recorded: a function, or an object of an unknown type."""


def _fail() -> Any:
    raise _Unrecordable


def _put_back(module: nn.Module, before: Any) -> None:
    if before is None:
        module.__dict__.pop("forward", None)
    else:
        module.__dict__["forward"] = before


def _all(out: Any) -> list[Tensor]:
    """The tensors in what a module gives back, in whatever container."""
    return [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, Tensor)]


def _plain_tree(shape: Any) -> bool:
    return shape.type in (None, tuple, list, dict) and all(map(_plain_tree, shape.children()))


def _allowed(func: Any, args: Any, recorder: Recorder) -> None:
    """Refuse calls that leave state on a tensor that outlives the step, or run a backward into parameters' gradients."""
    name = getattr(func, "__name__", "")
    if name in NO:
        raise NotProven(f"a hook is put on a tensor, or a backward is run inside the forward ({name})")
    if name == "__set__" or name in FLAGS:
        field = getattr(getattr(func, "__self__", None), "__name__", "requires_grad")
        outlives = id(args[0]) in recorder._held or not isinstance(args[0], FakeTensor)
        if field != "requires_grad" or outlives:
            raise NotProven(f"something is written onto a tensor ({field})")
