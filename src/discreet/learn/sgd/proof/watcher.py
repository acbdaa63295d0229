"""Runs every operation of a trace, applies its rule, and records the first obstacle to a proof."""

from __future__ import annotations

import hashlib
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from discreet.learn.sgd.proof import indices, nets, numbers, recurrent, shapes
from discreet.learn.sgd.proof.call import CUTS, RULES, Call, base_name, namespace, whole_parts
from discreet.learn.sgd.proof.recorder import Recorder
from discreet.learn.sgd.proof.values import (
    MIXED,
    NUMBERS,
    PUBLIC,
    ROWS,
    SUM,
    Cell,
    NotProven,
    Value,
    batch_axes,
    known,
    mark,
    merged,
    mixed,
    multiple,
    public,
    summed,
    symbolic,
)  # fmt: skip

ASKED = {
    "_local_scalar_dense", "item", "is_nonzero", "equal", "allclose", "nonzero", "masked_select", "unique_consecutive",
    "_unique2",
}  # fmt: skip
FILLS = {
    "copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_", "log_normal_", "geometric_",
    "cauchy_",
}  # fmt: skip
HARMLESS = {
    "sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "is_contiguous", "is_strides_like_format", "size",
    "stride", "numel", "is_non_overlapping_and_dense", "device", "layout", "dim", "storage_offset", "dtype",
    "_assert_async", "_assert_tensor_metadata", "is_same_size", "_fused_sdp_choice", "_assert_scalar", "result_type",
    "can_cast", "is_complex", "is_floating_point", "record_stream", "_has_compatible_shallow_copy_type",
}  # fmt: skip
CHOOSING = {"convolution", "_convolution", "convolution_backward", "_fused_sdp_choice"}  # ask for sizes to choose a kernel


class Watcher(TorchDispatchMode):
    """Runs every operation and applies its rule; the first that has none, or whose rule fails, is the reason."""

    def __init__(self, recorder: Recorder | None = None) -> None:
        super().__init__()
        self.recorder = recorder
        self.reason: str | None = None
        self.choosing = False  # in an operation that asks for sizes to choose a kernel, and computes the same with each
        self.count = 0
        self.hash = hashlib.sha256()
        self._here = threading.local()

    @property
    def sees(self) -> bool:
        """Whether the running operation was dispatched here."""
        return bool(getattr(self._here, "depth", 0))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._here.depth = getattr(self._here, "depth", 0) + 1
        try:
            return self._checked(func, args, kwargs or {})
        finally:
            self._here.depth -= 1

    def _checked(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = base_name(func)
        if namespace(func) in ("prim", "profiler") or name in HARMLESS:
            return self._run(func, name, args, kwargs)
        try:
            out = self._step(func, name, args, kwargs)
            if self.recorder is not None and self._here.depth == 1:
                self.recorder.operation(func, args, kwargs, out)
            return out
        except NotProven as error:
            raise self.fail(f"{error} ({name})") from None
        except Exception as error:
            self.fail(f"torch cannot trace {name} without values ({type(error).__name__})")
            raise

    def fail(self, reason: str) -> NotProven:
        if self.reason is None:
            self.reason = reason if ", at " in reason else reason + _line()
        return NotProven(self.reason)

    def _step(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        if name in ASKED:
            raise NotProven("a value is looked at, so that what is computed may depend on it")
        if namespace(func) not in ("aten", "prims"):
            raise NotProven(f"no rule is known for operations of {namespace(func)}")
        decomposed = self._decomposed(func, name, args, kwargs)
        if decomposed is not None:
            with self:
                return decomposed(*args, **kwargs)
        self.count += 1
        out = self._run(func, name, args, kwargs)
        call = Call(func, args, kwargs, out)
        self._note(call)
        values = self._values(func, call)
        if func._schema.is_mutable:
            self._write(func, call, values)
        else:
            self._mark(func, call, values)
        return out

    def _run(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        before, self.choosing = self.choosing, name in CHOOSING or (name in CUTS and whole_parts(func, args, kwargs))
        try:
            return func(*args, **kwargs)
        finally:
            self.choosing = before

    def _decomposed(self, func: Any, name: str, args: Any, kwargs: Any) -> Callable[..., Any] | None:
        plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        if plain in RULES or numbers.entrywise(func, plain) or func._schema.is_mutable:
            return None
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if all(known(t).kind == PUBLIC for t in tensors):
            return None
        return decompositions().get(func)

    def _note(self, call: Call) -> None:
        plain = [leaf for leaf in pytree.tree_leaves(call.arguments) if isinstance(leaf, (bool, int, float, str))]
        self.hash.update(f"{call.func}{plain}{[tuple(map(str, t.shape)) for t in call.outs]}".encode())

    def _values(self, func: Any, call: Call) -> list[Value]:
        """The output values by the rule; without an applicable rule they are mixed, as is everything computed from them."""
        plain = call.name[:-1] if call.name.endswith("_") and not call.name.endswith("__") else call.name
        many = max(1, len(call.outs))
        before = next((argument for argument in call.values if argument.kind == MIXED), None)
        if before is not None and plain not in shapes.SAME | shapes.DRAWN | shapes.BLANK:
            return [mixed(before.cell.why)] * many
        try:
            self._no_blank(func, call, plain)
            result = self._rule(func, plain, call)
            values = list(result) if isinstance(result, (list, tuple)) else [result] * many
            for tensor, value in zip(call.outs, values, strict=bool(call.outs)):
                _consistent(tensor, value)
        except NotProven as error:
            return [mixed(f"{error} ({plain}){_line()}")] * many
        return values

    def _no_blank(self, func: Any, call: Call, plain: str) -> None:
        """Refuse reading uninitialised memory, which may hold another example's values."""
        if _views(func) or plain in shapes.SAME | shapes.DRAWN | shapes.BLANK:
            return
        for place, value in enumerate(call.values):
            if value.cell.blank and not (call.name in FILLS and place == 0):
                raise NotProven("memory is read that was never written")

    def _rule(self, func: Any, name: str, call: Call) -> Any:
        sizes = any(symbolic(leaf) for leaf in pytree.tree_leaves(call.arguments))
        call.only_shapes(name)
        if NUMBERS in call.kinds:
            indices.only_picking(name, call)
        if call.kinds <= {PUBLIC} and not sizes and name not in shapes.BLANK:
            return [public() for _ in call.outs]
        call.name = name
        if name in RULES:
            return RULES[name](call)
        first = [value.kind for value in call.values] == [SUM, *[PUBLIC] * (len(call.values) - 1)]
        if name.endswith("_backward") and first and not sizes:  # a backward is linear in the gradient that it is given
            return [summed() for _ in call.outs]
        if numbers.entrywise(func, name):
            return numbers.by_entry(call)
        raise NotProven("an operation without a rule")

    def _mark(self, func: Any, call: Call, values: list[Value]) -> None:
        base = known(call.tensors[0]).cell if _views(func) and call.tensors else None
        for tensor, value in zip(call.outs, values, strict=True):
            if base is not None:
                base.views = True
                if value.kind != base.kind:  # seen in another way, so that neither may be written any more
                    base.captured = True
                    value = Value(Cell(value.kind, captured=True, why=value.cell.why), value.layout)
                else:
                    value = Value(base, value.layout)
            value.cell.free = value.cell.free or (value.layout is not None and value.layout.free)
            if not any(tensor is source for source in call.tensors):
                mark(tensor, value)

    def _write(self, func: Any, call: Call, values: list[Value]) -> None:
        """Check an in-place operation: the values of all views of the memory must stay correct."""
        written = [
            argument.name
            for argument in func._schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        if written != ["self"] or func._schema.name.endswith(".out") or func._overloadname == "out":
            raise NotProven("something is changed in place")
        target, value = call["self"], values[0]
        if func._schema.name in ("aten::transpose_", "aten::t_"):  # no entry is written
            mark(target, Value(known(target).cell, value.layout))
            return
        cell, layout = known(target).cell, known(target).layout
        cell.pooled = None
        if cell.captured:
            raise NotProven("a parameter, a buffer or a constant is changed in place")
        if cell.blank:
            if cell.views:
                raise NotProven("memory is read that was never written")
            cell.blank = False
        if cell.free and cell.views:  # written in part, its entries are not alike any more, and its views do not know
            raise NotProven("rows are written into a part of something else")
        if value.kind == MIXED or cell.kind == MIXED:
            cell.kind, cell.why = MIXED, cell.why or value.cell.why
        elif value.kind == ROWS and cell.kind == ROWS and layout is not None and value.layout is not None:
            mark(target, Value(cell, merged([layout, value.layout])))
        elif value.kind == SUM and cell.kind in (PUBLIC, SUM) and layout is None:
            cell.kind = SUM
        elif not (value.kind == PUBLIC and cell.kind in (PUBLIC, SUM)):
            raise NotProven("rows of examples are written where all examples share the place")


def _consistent(tensor: Tensor, value: Value) -> None:
    """Check that the axes that grow with the batch are those of the value's layout, whatever the rule said."""
    axes, layout = batch_axes(tensor.shape), value.layout
    wanted = [] if layout is None else [layout.dim]
    if axes != wanted or (layout is not None and multiple(tensor.shape[layout.dim]) != layout.times):
        raise NotProven("the axis of examples is split or merged in a way that loses track of them")


def _views(func: Any) -> bool:
    return not func._schema.is_mutable and any(returned.alias_info is not None for returned in func._schema.returns)


class Peeking(TorchFunctionMode):
    """Refuses reading values of tensors outside torch, which the rules cannot see."""

    WAYS = frozenset({
        "numpy", "tolist", "item", "data_ptr", "__array__", "__dlpack__", "storage", "untyped_storage", "__bool__", "__int__",
        "__float__", "__index__", "__contains__", "share_memory_", "_typed_storage", "__reduce_ex__", "__deepcopy__",
        "__repr__", "__str__", "__format__", "__complex__", "from_dlpack", "to_dlpack", "_to_dlpack",
    })  # fmt: skip

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher = watcher

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in self.WAYS and any(isinstance(argument, FakeTensor) for argument in args):
            self._watcher.fail(f"a value is looked at, so that what is computed may depend on it ({name})")
        if name == "__set__" and getattr(getattr(func, "__self__", None), "__name__", "") == "data":
            self._watcher.fail("a tensor is given other data in place of its own")
        whole = recurrent.WHOLE.get(name)
        if whole is not None and recurrent.is_torchs(name, func) and args and isinstance(args[0], FakeTensor):
            try:
                result = whole(name, args, kwargs or {})
            except NotProven as error:
                raise self._watcher.fail(str(error)) from None
            if result is not None:
                self._watcher.hash.update(name.encode())
                return result
        return func(*args, **(kwargs or {}))


def _line() -> str:
    """The current line of the user's code."""
    ours = ("/torch/", "/discreet/learn/", "<", "/contextlib.py")
    for frame in reversed(traceback.extract_stack()):
        if not any(part in frame.filename for part in ours):
            return f", at {frame.filename.rpartition('/')[2]}:{frame.lineno}: {frame.line}" if frame.line else ""
    return ""


_table: dict[Any, Callable[..., Any]] = {}


def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """torch's decompositions, loaded when an operation without a rule occurs."""
    if not _table:
        from torch._decomp import core_aten_decompositions

        _table.update(core_aten_decompositions())
        _table[torch.ops.aten._trilinear.default] = _trilinear
    return _table


def _trilinear(first: Tensor, second: Tensor, third: Tensor, *axes: Any) -> Tensor:
    """Sums of products of three tensors with inserted axes, as in nn.Bilinear."""
    factors = []
    for tensor, dims in zip((first, second, third), axes):
        for dim in sorted(dims):
            tensor = tensor.unsqueeze(dim)
        factors.append(tensor)
    return (factors[0] * factors[1] * factors[2]).sum(axes[3])


__all__ = ["Peeking", "Watcher", "indices", "nets"]
