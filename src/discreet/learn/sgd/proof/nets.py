"""Rules for network layers that are one operation in torch."""

from __future__ import annotations

from typing import Any

from discreet.learn.sgd.proof.call import NUMBERS, PUBLIC, ROWS, SUM, Call, Layout, NotProven, Value, rule
from discreet.learn.sgd.proof.numbers import by_entry
from discreet.learn.sgd.proof.values import batch_axes, merged, public, rows, summed


def _first(layout: Layout, operation: str = "an operation on images") -> Layout:
    if layout.dim != 0:
        raise NotProven(f"{operation} is given its examples along another axis than the first")
    return layout


def _all_rows(call: Call, *names: str) -> Layout:
    return call.rows_of(*names)


@rule(
    "convolution", "_convolution", "mkldnn_convolution", "cudnn_convolution", "convolution_overrideable", "thnn_conv2d",
    "_slow_conv2d_forward",
)  # fmt: skip
def convolved(call: Call) -> Value:
    call.no_sizes()
    call.publics("weight", "bias")
    return rows(_first(_all_rows(call, "input" if call["input"] is not None else "self")))


@rule("convolution_backward")
def convolved_back(call: Call) -> list[Value]:
    call.no_sizes()
    call.publics("weight")
    _first(_all_rows(call, "grad_output"))
    if call.of("input").kind == PUBLIC:  # type: ignore[union-attr]
        raise NotProven("a convolution of something all examples share")
    layout = _first(_all_rows(call, "grad_output", "input"))
    mask = list(call["output_mask"])
    return [value for value, wanted in zip((rows(layout), summed(), summed()), mask) if wanted]


@rule("native_layer_norm", "_fused_rms_norm")
def layer_norm(call: Call) -> list[Value]:
    call.no_sums()
    call.no_sizes()
    call.publics("weight", "bias")
    layout = _all_rows(call, "input")
    if layout.dim >= call["input"].ndim - len(call["normalized_shape"]):
        raise NotProven("a norm is taken over the batch")
    return [rows(layout) for _ in call.outs]


@rule("native_layer_norm_backward", "_fused_rms_norm_backward")
def layer_norm_back(call: Call) -> list[Value]:
    call.no_sizes()
    call.publics("weight", "bias")
    layout = _all_rows(call, "grad_out", "input", *(name for name in ("mean", "rstd") if call[name] is not None))
    if layout.dim >= call["input"].ndim - len(call["normalized_shape"]):
        raise NotProven("a norm is taken over the batch")
    return [rows(layout) if batch_axes(t.shape) else summed() for t in call.outs]


@rule("native_group_norm")
def group_norm(call: Call) -> list[Value]:
    call.no_sums()
    call.publics("weight", "bias")
    layout = _first(_all_rows(call, "input"))
    return [rows(layout) for _ in call.outs]


@rule("native_group_norm_backward")
def group_norm_back(call: Call) -> list[Value]:
    call.publics("weight")
    layout = _first(_all_rows(call, "grad_out", "input", "mean", "rstd"))
    return [rows(layout) if batch_axes(t.shape) else summed() for t in call.outs]


@rule(
    "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "cudnn_batch_norm",
    "miopen_batch_norm", "_batch_norm_no_update", "_batch_norm_with_update", "batch_norm", "_batch_norm_impl_index",
)  # fmt: skip
def batch_norm(call: Call) -> list[Value]:
    if _as_channels(call):
        return _of_channels(call)
    trains = (
        call.name not in ("_native_batch_norm_legit_no_training", "_batch_norm_no_update") and call["training"] is not False
    )
    if trains or call["running_mean"] is None:
        raise NotProven("batch norm in training mode takes statistics over the batch")
    call.publics("weight", "bias", "running_mean", "running_var")
    layout = _first(_all_rows(call, "input"))
    return [rows(layout) if batch_axes(t.shape) else public() for t in call.outs]


def _as_channels(call: Call) -> bool:
    """InstanceNorm gives the examples as channels, and statistics are taken of each."""
    layout = call.layout("input")
    return layout is not None and layout.dim == 1 and call["running_mean"] is None


def _of_channels(call: Call, *names: str) -> list[Value]:
    layout = _all_rows(call, "input", *names)
    for name in ("weight", "bias", "save_mean", "save_invstd", "save_var"):
        value = call.of(name)
        if value is not None and value.kind != PUBLIC:
            merged([layout.at(0), call.rows_of(name)])
    if any(batch_axes(t.shape) not in ([1] if t.ndim > 1 else [0], []) for t in call.outs):
        raise NotProven("batch norm with examples along another axis")
    return [rows(layout if t.ndim > 1 else layout.at(0)) if batch_axes(t.shape) else public() for t in call.outs]


@rule("native_batch_norm_backward", "batch_norm_backward", "cudnn_batch_norm_backward")
def batch_norm_back(call: Call) -> list[Value]:
    if _as_channels(call):
        return _of_channels(call, "grad_out")
    if call.arguments.get("train", call.arguments.get("update", True)) is not False:
        raise NotProven("batch norm in training mode takes statistics over the batch")
    call.publics("weight", "running_mean", "running_var", "save_mean", "save_invstd", "save_var")
    layout = _first(_all_rows(call, "grad_out", "input"))
    return [rows(layout) if batch_axes(t.shape) else summed() for t in call.outs]


# ---- tables ----------------------------------------------------------------------------------------------------------


@rule("embedding")
def embedding(call: Call) -> Value:
    table, index = call.of("weight"), call.of("indices")
    assert table is not None
    assert index is not None
    if index.kind == PUBLIC and table.kind == PUBLIC:
        return public()
    if table.kind != PUBLIC or index.kind != ROWS or index.layout is None:
        raise NotProven("a table that differs between examples, or is indexed by places in the batch")
    return rows(index.layout)


@rule("embedding_dense_backward", "embedding_backward")
def embedding_back(call: Call) -> Value:
    if call["scale_grad_by_freq"]:
        raise NotProven("scale_grad_by_freq counts the words of the whole batch")
    gradient, index = call.of("grad_output") or call.of("grad"), call.of("indices")
    assert gradient is not None
    assert index is not None
    if gradient.kind in (PUBLIC, SUM) and index.kind == PUBLIC:
        return summed() if gradient.kind == SUM else public()
    if gradient.kind != ROWS or index.kind == NUMBERS:
        raise NotProven("a sum over the batch is used as more than a gradient")
    if index.kind == ROWS:
        merged([gradient.layout, index.layout])  # type: ignore[list-item]
    return summed()


@rule("_sparse_coo_tensor_with_dims_and_tensors")
def sparse(call: Call) -> Value:
    """The gradient of a table as a list of positions and the values added there."""
    places, added = call.of("indices"), call.of("values")
    assert places is not None
    assert added is not None
    if places.kind == added.kind == ROWS and places.layout is not None and added.layout is not None:
        merged([places.layout.at(0), added.layout.at(0)])
        if (places.layout.dim, added.layout.dim) == (1, 0):
            return summed()
    raise NotProven("a sparse tensor")


# ---- images ----------------------------------------------------------------------------------------------------------

IMAGES = (
    "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "max_pool3d_with_indices",
    "max_pool3d_with_indices_backward", "avg_pool1d", "avg_pool2d", "avg_pool2d_backward", "avg_pool3d",
    "avg_pool3d_backward", "adaptive_avg_pool1d", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d", "_adaptive_avg_pool3d_backward", "adaptive_max_pool2d", "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d", "adaptive_max_pool3d_backward", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
    "reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward", "replication_pad1d",
    "replication_pad2d", "replication_pad3d", "replication_pad1d_backward", "replication_pad2d_backward",
    "replication_pad3d_backward", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward", "upsample_bilinear2d",
    "upsample_bilinear2d_backward", "upsample_bicubic2d", "upsample_bicubic2d_backward", "upsample_linear1d",
    "upsample_linear1d_backward", "upsample_trilinear3d", "upsample_trilinear3d_backward", "_upsample_bilinear2d_aa",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
    "_upsample_nearest_exact2d_backward", "im2col", "col2im", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
    "native_channel_shuffle", "grid_sampler_2d", "grid_sampler_3d", "grid_sampler_2d_backward", "grid_sampler_3d_backward",
    "max_unpool2d", "max_unpool3d", "affine_grid_generator",
)  # fmt: skip
POOLS = ("max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d")


@rule(*IMAGES)
def images(call: Call) -> list[Value]:
    """Image by image: every input and output tensor has one entry per image along its first axis."""
    call.no_sums()
    call.no_sizes()
    layouts = [value.layout for value in call.values if value.kind == ROWS and value.layout is not None]
    if len(layouts) != len(call.values) or not layouts:
        raise NotProven("some of what meets here is rows of examples and some is not")
    layout = _first(merged(layouts))
    if any(batch_axes(t.shape) != [0] for t in call.outs):
        raise NotProven("an operation on images makes something else than one for each")
    values = [rows(layout) for _ in call.outs]
    if call.name in POOLS:
        values[1].cell.pooled = tuple(call["self"].shape[1:])
    if call.name.removesuffix("_backward") in POOLS and call.name not in POOLS:
        indices = call.of("indices")
        if indices is None or indices.cell.pooled is None or indices.cell.pooled != tuple(call["self"].shape[1:]):
            raise NotProven("entries are written by indices that no pooling of these images found, and nobody looks at them")
    return values


# ---- losses ----------------------------------------------------------------------------------------------------------


@rule("nll_loss_forward", "nll_loss2d_forward")
def nll(call: Call) -> list[Value]:
    _not_reduced(call)
    call.publics("weight")
    layout = _first(_all_rows(call, "self", "target"))
    return [rows(layout), public()]


@rule("nll_loss_backward", "nll_loss2d_backward")
def nll_back(call: Call) -> Value:
    _not_reduced(call)
    call.publics("weight", "total_weight")
    return rows(_first(_all_rows(call, "grad_output", "self", "target")))


@rule(
    "mse_loss", "mse_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward", "huber_loss", "huber_loss_backward",
    "binary_cross_entropy", "binary_cross_entropy_backward", "binary_cross_entropy_with_logits", "soft_margin_loss",
    "soft_margin_loss_backward",
)  # fmt: skip
def entry_losses(call: Call) -> Any:
    _not_reduced(call)
    return by_entry(call)


@rule(
    "multi_margin_loss", "multi_margin_loss_backward", "multilabel_margin_loss_forward", "multilabel_margin_loss_backward",
)  # fmt: skip
def class_losses(call: Call) -> list[Value]:
    _not_reduced(call)
    call.publics("weight")
    layout = _first(merged([value.layout for value in call.values if value.layout is not None]))
    return [rows(layout) for _ in call.outs]


def _not_reduced(call: Call) -> None:
    call.no_sums()
    if call["reduction"] != 0:
        raise NotProven("a loss is taken over the batch (use reduction='none')")


# ---- attention and recurrent cells -----------------------------------------------------------------------------------


@rule(
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_attention_math",
    "_scaled_dot_product_flash_attention_for_cpu_backward", "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_attention_math_for_mps", "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_fused_attention_overrideable_backward",
)  # fmt: skip
def attention(call: Call) -> list[Value]:
    """Queries, keys and values meet within one entry of the first two axes."""
    call.no_sums()
    if any(call[name] is not None and not isinstance(call[name], int) for name in ("cum_seq_q", "cum_seq_k")):
        call.publics("cum_seq_q", "cum_seq_k")
    layout = _all_rows(
        call, "query", "key", "value", *(name for name in ("grad_out", "out", "logsumexp") if call[name] is not None)
    )
    mask = call.of("attn_mask") or call.of("attn_bias")
    if layout.dim > 1:
        raise NotProven("attention over the batch")
    if mask is not None and mask.kind != PUBLIC:
        mask_tensor = call["attn_mask"] if call["attn_mask"] is not None else call["attn_bias"]
        if mask.kind != ROWS:
            raise NotProven("a sum over the batch is used as more than a gradient")
        merged([layout, mask.layout.at(mask.layout.dim + 4 - mask_tensor.ndim)])  # type: ignore[union-attr]
    results = []
    for t in call.outs:
        axes = batch_axes(t.shape)
        if axes and axes != [layout.dim]:
            raise NotProven("attention with examples along another axis")
        results.append(rows(layout) if axes else summed() if call.name.endswith("_backward") else public())
    return results


@rule(
    "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell_backward_impl", "_thnn_fused_gru_cell_backward",
)  # fmt: skip
def cells(call: Call) -> list[Value]:
    layouts = [value.layout for t, value in zip(call.tensors, call.values) if value.layout is not None]
    call.no_sums()
    layout = _first(merged(layouts))
    return [rows(layout) if batch_axes(t.shape) else summed() for t in call.outs]
