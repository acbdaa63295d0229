"""Rules for arithmetic: elementwise, along axes, and products."""

from __future__ import annotations

from typing import Any

import torch

from discreet.learn.sgd.proof.call import (
    NUMBERS,
    PUBLIC,
    ROWS,
    RULES,
    SUM,
    Call,
    Layout,
    NotProven,
    Rule,
    Value,
    dims_of,
    positive,
    rule,
)
from discreet.learn.sgd.proof.values import Cell, batch_axes, free, merged, public, rows, summed

# Entry by entry, where torch does not say so itself by a tag.
ENTRYWISE = {
    "_to_copy", "to", "where", "masked_fill", "native_dropout", "native_dropout_backward", "bernoulli", "copy", "fill",
    "threshold_backward", "gelu", "gelu_backward", "silu_backward", "elu_backward", "leaky_relu_backward",
    "hardtanh_backward", "hardswish_backward", "hardsigmoid_backward", "mish_backward", "softplus_backward",
    "softshrink_backward", "celu", "logit_backward", "log_sigmoid_backward", "log_sigmoid_forward", "sigmoid_backward",
    "tanh_backward", "zero", "normal", "uniform", "exponential", "random", "log_normal", "geometric", "cauchy",
    "rrelu_with_noise", "rrelu_with_noise_backward", "nan_to_num", "fake_quantize_per_tensor_affine", "_softplus", "isnan",
    "isinf", "isfinite", "masked_scale", "_conj", "glu_jvp", "real", "imag", "conj", "polar", "complex", "_neg_view",
    "resolve_conj", "resolve_neg", "addcmul", "addcdiv", "lerp", "clamp", "rsub", "elu", "_prelu_kernel",
}  # fmt: skip
DRAWS = {"bernoulli", "normal", "uniform", "exponential", "random", "log_normal", "geometric", "cauchy", "native_dropout"}
LINEAR = {
    "add", "sub", "rsub", "neg", "_to_copy", "to", "clone", "copy", "zero", "fill", "positive", "where", "masked_fill",
    "real", "conj", "_conj",
}  # fmt: skip


def entrywise(func: Any, name: str) -> bool:
    return name in ENTRYWISE or torch.Tag.pointwise in func.tags


def by_entry(call: Call) -> Any:
    """Entry by entry, after broadcasting: examples must lie along the same axis, counted from the last."""
    call.no_sizes()
    out = call.outs
    if not out:
        return []
    if SUM in call.kinds:
        _linear(call)
        return [summed() for _ in out]
    if NUMBERS in call.kinds:
        if (
            call.name not in ("_to_copy", "clone", "to")
            or not call["self"].dtype.is_floating_point == out[0].dtype.is_floating_point
        ):
            raise NotProven("the place of an example in its batch is used as a number")
        return Value(Cell(NUMBERS), call.layout("self"))
    axes = max(t.ndim for t in out)
    met = [
        value.layout.at(axes - t.ndim + value.layout.dim)
        for t, value in zip(call.tensors, call.values)
        if value.layout is not None
    ]
    if not met:
        layout = free(out[0].shape)
        return rows(layout) if layout is not None else public()
    if any(spot.dim < 0 for spot in met) or any(len(batch_axes(t.shape)) > 1 for t in out):
        raise NotProven("every example is laid beside every other")
    layout = merged(met)
    return [rows(layout.at(layout.dim - axes + t.ndim)) if batch_axes(t.shape) else public() for t in out]


def _linear(call: Call) -> None:
    """A sum over the batch stays one under linear operations with public factors alone."""
    sums = sum(value.kind == SUM for value in call.values)
    if call.kinds <= {SUM, PUBLIC} and all(value.layout is None for value in call.values):
        first = call.values[0].kind == SUM
        if call.name in ("where", "masked_fill"):
            condition = call.of("condition") or call.of("mask")
            if condition is not None and condition.kind == PUBLIC:
                return
        elif call.name in LINEAR:
            return
        elif call.name in ("mul", "true_divide", "div") and sums == 1 and (first or call.name == "mul"):
            if call["rounding_mode"] is None:
                return
        elif call.name.endswith("_backward") and sums == 1 and first:
            return
    raise NotProven("a sum over the batch is used as more than a gradient")


# ---- along axes ------------------------------------------------------------------------------------------------------


def _without(layout: Layout, dims: list[int], keep: bool) -> Layout:
    return layout if keep else layout.at(layout.dim - sum(dim < layout.dim for dim in dims))


@rule("sum", "nansum")
def totalled(call: Call) -> Value:
    value, dims = call.of("self"), dims_of(call["dim"], call["self"].ndim)
    assert value is not None
    if value.kind == NUMBERS or (value.kind == SUM and call.name == "nansum"):
        raise NotProven("the place of an example in its batch is used as a number")
    if value.layout is None:
        return Value(Cell(value.kind))
    if value.layout.dim in dims:
        return summed()
    return rows(_without(value.layout, dims, bool(call["keepdim"])))


@rule(
    "mean", "amax", "amin", "var", "std", "var_mean", "std_mean", "prod", "any", "all", "logsumexp", "linalg_vector_norm",
    "norm", "argmax", "argmin", "max", "min", "median", "nanmedian", "mode", "aminmax", "count_nonzero", "kthvalue",
    "nanmean", "quantile", "nanquantile", "_linalg_vector_norm", "cummax_helper",
)  # fmt: skip
def over(call: Call) -> Any:
    """A reduction over axes keeps examples apart if the axis of examples is not among them."""
    if "other" in call.arguments:  # the larger of two, entry by entry
        return by_entry(call)
    call.no_sums()
    call.no_sizes()
    layout, axes = call.layout("self"), call["self"].ndim
    if layout is None:
        return [public() for _ in call.outs]
    dims = dims_of(call.arguments.get("dim", call.arguments.get("ord_dim")), axes)
    if layout.dim in dims or NUMBERS in call.kinds:
        raise NotProven("a statistic is taken over the batch")
    return [rows(_without(layout, dims, bool(call["keepdim"]))) for _ in call.outs]


@rule(
    "_softmax", "_log_softmax", "softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "sort",
    "argsort", "topk", "_softmax_backward_data", "_log_softmax_backward_data", "_safe_softmax", "_masked_softmax",
    "glu", "glu_backward", "diff",
)  # fmt: skip
def beside(call: Call) -> Any:
    """Entries meet along one axis, which must not be that of the examples; axes stay where they are."""
    call.no_sums()
    call.no_sizes()
    layouts = [value.layout for value in call.values if value.kind == ROWS and value.layout is not None]
    if NUMBERS in call.kinds:
        raise NotProven("the place of an example in its batch is used as a number")
    if not layouts:
        return [public() for _ in call.outs]
    layout, axes = merged(layouts), call.outs[0].ndim
    if any(value.kind == PUBLIC and t.ndim for value, t in zip(call.values, call.tensors)):
        raise NotProven("some of what meets here is rows of examples and some is not")
    dim = call["dim"]
    if positive(-1 if dim is None else int(dim), axes) == layout.dim:
        raise NotProven("entries of different examples meet along the batch")
    return [rows(layout) for _ in call.outs]


# ---- products --------------------------------------------------------------------------------------------------------


def product(a: Value, b: Value, axes: int) -> Value:
    """[…, n, k] times […, k, m]: rows stay rows, and a product over the examples is a sum over them."""
    kinds = {a.kind, b.kind}
    if NUMBERS in kinds:
        raise NotProven("the place of an example in its batch is used as a number")
    if SUM in kinds:
        if kinds == {SUM} or ROWS in kinds:
            raise NotProven("a sum over the batch is used as more than a gradient")
        return summed()
    first, second = a.layout, b.layout
    if first is None and second is None:
        return public()
    if first is not None and second is not None:
        if first.dim == second.dim == 0 and axes == 3:
            return rows(merged([first, second]))
        if first.dim == axes - 1 and second.dim == axes - 2:
            merged([first.at(0), second.at(0)])
            return summed()
        raise NotProven("a product in which every example meets every other")
    layout, inside = (first, axes - 1) if first is not None else (second, axes - 2)
    assert layout is not None
    if layout.dim == inside:
        raise NotProven("a product over the batch")
    return rows(layout)


def plus(call: Call, name: str, result: Value) -> Value:
    """The addend of a product."""
    more = call.of(name)
    if more is None:
        return result
    if result.kind == ROWS and more.kind == ROWS:
        wide = call.outs[0].ndim - call[name].ndim
        merged([result.layout, more.layout.at(more.layout.dim + wide)])  # type: ignore[union-attr,list-item]
    elif more.kind != PUBLIC and more.kind != result.kind:
        raise NotProven("a sum over the batch is used as more than a gradient")
    return result


@rule("mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv", "addbmm", "_addmm_activation")
def products(call: Call) -> Value:
    call.no_sizes()
    names = [
        name for name in ("mat1", "mat2", "batch1", "batch2", "mat", "vec", "vec2", "tensor", "self") if call[name] is not None
    ]
    add = call.name.startswith(("add", "badd", "_addmm"))
    if add:
        names.remove("self")
    elif names[-1] == "self":
        names = ["self", *names[:-1]]
    if len(names) != 2 or call.name in ("addbmm", "_addmm_activation"):
        raise NotProven("a product of another kind")
    a, b = (call.of(name) for name in names)
    assert a is not None
    assert b is not None
    axes = 3 if call.name in ("bmm", "baddbmm") else 2
    if call.name in ("mv", "addmv"):
        b = Value(b.cell, b.layout and b.layout.at(0))
        result = product(a, b, 2)
    elif call.name == "dot":
        result = product(Value(a.cell, a.layout and a.layout.at(1)), b, 2)
    else:
        result = product(a, b, axes)
    return plus(call, "self", result) if add else result


def last_axes(count: int, *names: str) -> Rule:
    """Operations on the last axes of tensors, one by one over the others."""

    def its(call: Call) -> Any:
        call.no_sums()
        call.no_sizes()
        layouts = []
        for t, value in zip(call.tensors, call.values):
            if value.kind == NUMBERS:
                raise NotProven("the place of an example in its batch is used as a number")
            if value.layout is not None:
                if value.layout.dim >= t.ndim - count:
                    raise NotProven("entries of different examples meet along the batch")
                layouts.append(value.layout.at(value.layout.dim - t.ndim))
        if not layouts:
            return [public() for _ in call.outs]
        layout, axes = merged(layouts), max(t.ndim for t in call.tensors)
        return [rows(layout.at(layout.dim + axes)) if batch_axes(t.shape) else public() for t in call.outs]

    for name in names:
        RULES[name] = its
    return its


last_axes(
    2,
    "linalg_inv_ex", "linalg_cholesky_ex", "linalg_solve_triangular", "_linalg_solve_ex", "_linalg_det", "_linalg_slogdet",
    "linalg_qr", "_linalg_svd", "_linalg_eigh", "linalg_matrix_exp", "tril", "triu", "cholesky_solve", "linalg_lu",
    "linalg_cross",
)  # fmt: skip


@rule("_fft_r2c", "_fft_c2r", "_fft_c2c")
def fourier(call: Call) -> Value:
    call.no_sums()
    call.no_sizes()
    layout = call.layout("self")
    if layout is not None and layout.dim in dims_of(call["dim"], call["self"].ndim):
        raise NotProven("entries of different examples meet along the batch")
    return rows(layout) if layout is not None else public()


@rule("view_as_real", "view_as_complex")
def complex_view(call: Call) -> Value:
    value = call.of("self")
    assert value is not None
    return Value(Cell(value.kind), value.layout)
