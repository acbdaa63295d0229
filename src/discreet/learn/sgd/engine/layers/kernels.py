"""`kernels.c` of `discreet.native`, where it was built: per-unit gradients of a convolution's kernel on a CPU, and their
norms in the same pass.

Before its first use in a process it is compared with torch. Elsewhere patches.py does the work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from discreet import native
from discreet.learn.sgd.engine.layers.patches import Block, Kernel, by_patches

Gradients = Callable[[Tensor, Tensor, Kernel, int, Tensor | None, Tensor], None]
NEAR = 1e-5  # of the largest number: what rounding explains


def fits(x: Tensor, kernel: Kernel) -> bool:
    """Whether the C kernel exists and supports this layer: no groups, no dilation, float32."""
    plain = kernel.groups == 1 and max(kernel.dilation) == 1
    return plain and x.device.type == "cpu" and x.dtype == torch.float32 and compiled() is not None


def gradients(x: Tensor, g: Tensor, kernel: Kernel, rows: int, keep: bool) -> tuple[Tensor, list[Block]]:
    """The squared length of every unit's gradient, and where it is to be kept the gradient itself."""
    run = compiled()
    assert run is not None
    p, width, kh, kw = kernel.size
    x, g = (t.contiguous().unflatten(0, (-1, rows)) for t in (x, g))
    squares, out = x.new_empty(len(x)), x.new_empty(len(x), width, kh, kw, p) if keep else None
    many = min(torch.get_num_threads(), len(x))
    if many < 2:
        run(x, g, kernel, rows, out, squares)
    else:
        splits = [t.tensor_split(many) for t in (x, g, squares)]
        parts = out.tensor_split(many) if out is not None else [None] * many
        with ThreadPoolExecutor(many) as pool:
            list(pool.map(lambda i: run(splits[0][i], splits[1][i], kernel, rows, parts[i], splits[2][i]), range(many)))
    return squares, [] if out is None else [Block(out, lambda whole: whole.permute(1, 2, 3, 0))]


@lru_cache(maxsize=1)
def compiled() -> Gradients | None:
    """The compiled kernel, if its results agree with torch's."""
    library = native.library("kernels")
    if library is None:
        return None
    function, pointer = library.discreet_kernels, ctypes.c_void_p
    function.argtypes = [pointer, pointer, ctypes.c_long, pointer, pointer, pointer]
    function.restype = ctypes.c_int

    def run(x: Tensor, g: Tensor, kernel: Kernel, rows: int, out: Tensor | None, squares: Tensor) -> None:
        numbers = np.array([rows, *x.shape[2:], *g.shape[2:], *kernel.size[2:], *kernel.stride, *kernel.padding], "l")
        to = None if out is None else out.data_ptr()
        if not function(x.data_ptr(), g.data_ptr(), x.shape[0], numbers.ctypes.data, to, squares.data_ptr()):
            raise RuntimeError("There is no memory for one unit's images with their padding.")

    return run if _agrees(run) else None


def _agrees(run: Gradients) -> bool:
    """Compare on kernels of one to ten columns, with full and partial registers of channels."""
    draw = torch.Generator().manual_seed(0)
    for wide, p, stride, rows in ((1, 3, 1, 1), (3, 16, 1, 1), (4, 40, 2, 2), (10, 5, 3, 1)):
        kernel = Kernel((p, 3, 3, wide), (1, stride), (1, 2), (1, 1), 1)
        x = torch.randn(2, rows, 3, 5, 13, generator=draw)
        g = torch.randn(2, rows, p, 5, (13 + 4 - wide) // stride + 1, generator=draw)
        out, squares = torch.empty(2, 3, 3, wide, p), torch.empty(2)
        run(x, g, kernel, rows, out, squares)
        right = by_patches(x.flatten(0, 1), g.flatten(0, 1), kernel, rows)[0].each.permute(0, 2, 3, 4, 1)
        if not bool((out - right).abs().max() <= NEAR * right.abs().max()):
            return False
        lengths = right.flatten(1).square().sum(1)
        if not bool((squares - lengths).abs().max() <= NEAR * lengths.max()):
            return False
    return True
