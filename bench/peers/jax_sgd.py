"""JAX, plain and private (jax-privacy==2.0.0, which brings jax and optax): the nets of bench/sgd.py again, every step one
compiled function on one thread. One worker, see _sgd_loop.py."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import optax
from _sgd_loop import BATCH, CLIP, NOISE, RATE, Step, serve
from jax_privacy import noise_addition

Net = tuple[Any, Callable[[Any, Any], Any], Any, Any]  # parameters, forward, inputs, labels
SOURCE = np.random.default_rng(0)


def weights(*shape: int) -> Any:
    return jnp.asarray(SOURCE.normal(0, 0.05, shape), jnp.float32)


def linear(wide: int, out: int) -> dict[str, Any]:
    return {"w": weights(wide, out), "b": jnp.zeros(out)}


def filters(wide: int, out: int, side: int) -> dict[str, Any]:
    return {"w": weights(out, wide, side, side), "b": jnp.zeros(out)}


def apply(layer: dict[str, Any], x: Any) -> Any:
    return x @ layer["w"] + layer["b"]


def convolve(layer: dict[str, Any], x: Any, stride: int, pad: int) -> Any:
    names = ("NCHW", "OIHW", "NCHW")
    out = jax.lax.conv_general_dilated(x, layer["w"], (stride, stride), [(pad, pad)] * 2, dimension_numbers=names)
    return out + layer["b"][:, None, None]


def pool(x: Any, stride: int) -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, stride, stride), "VALID")


def normal(layer: dict[str, Any], x: Any) -> Any:
    middle, spread = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - middle) * jax.lax.rsqrt(spread + 1e-5) * layer["w"] + layer["b"]


def dense(batch: int, *widths: int) -> Net:
    layers = [linear(wide, out) for wide, out in itertools.pairwise(widths)]

    def forward(layers: Any, x: Any) -> Any:
        for layer in layers[:-1]:
            x = jnp.tanh(apply(layer, x))
        return apply(layers[-1], x)

    return layers, forward, SOURCE.integers(2, size=(batch, 600)), SOURCE.integers(100, size=batch)


def digits(batch: int) -> Net:
    layers = {"first": filters(1, 16, 8), "second": filters(16, 32, 4), "hidden": linear(512, 32), "head": linear(32, 10)}

    def forward(layers: Any, x: Any) -> Any:
        x = pool(jnp.tanh(convolve(layers["first"], x, 2, 3)), 1)
        x = pool(jnp.tanh(convolve(layers["second"], x, 2, 0)), 1)
        return apply(layers["head"], jnp.tanh(apply(layers["hidden"], x.reshape(len(x), -1))))

    return layers, forward, SOURCE.normal(size=(batch, 1, 28, 28)), SOURCE.integers(10, size=batch)


def pictures(batch: int) -> Net:
    widths = [3, 32, 32, 64, 64, 128, 128]
    layers = {
        "filters": [filters(widths[place], widths[place + 1], 3) for place in range(6)],
        "hidden": linear(2048, 128), "head": linear(128, 10),
    }  # fmt: skip

    def forward(layers: Any, x: Any) -> Any:
        for place, layer in enumerate(layers["filters"]):
            x = jnp.tanh(convolve(layer, x, 1, 1))
            x = pool(x, 2) if place % 2 else x
        return apply(layers["head"], jnp.tanh(apply(layers["hidden"], x.reshape(len(x), -1))))

    return layers, forward, SOURCE.normal(size=(batch, 3, 32, 32)), SOURCE.integers(10, size=batch)


def gpt(batch: int, words: int = 512, length: int = 64, width: int = 256, blocks: int = 4, heads: int = 4) -> Net:
    def norm() -> dict[str, Any]:
        return {"w": jnp.ones(width), "b": jnp.zeros(width)}

    def block() -> dict[str, Any]:
        square = {name: linear(width, width) for name in ("query", "key", "value", "out")}
        return {"norm1": norm(), "norm2": norm(), **square, "up": linear(width, 4 * width), "down": linear(4 * width, width)}

    layers = {
        "words": weights(words, width), "places": weights(length, width), "norm": norm(), "head": linear(width, words),
        "blocks": [block() for _ in range(blocks)],
    }  # fmt: skip
    mask = jnp.tril(jnp.ones((length, length), bool))

    def split(x: Any) -> Any:
        return x.reshape(len(x), length, heads, width // heads).transpose(0, 2, 1, 3)

    def attend(layer: Any, x: Any) -> Any:
        query, key, value = (split(apply(layer[name], x)) for name in ("query", "key", "value"))
        found = jnp.where(mask, query @ key.swapaxes(-1, -2) / (width // heads) ** 0.5, -1e9)
        return apply(layer["out"], (jax.nn.softmax(found) @ value).transpose(0, 2, 1, 3).reshape(x.shape))

    def forward(layers: Any, x: Any) -> Any:
        hidden = layers["words"][x] + layers["places"]
        for layer in layers["blocks"]:
            hidden = hidden + attend(layer, normal(layer["norm1"], hidden))
            hidden = hidden + apply(layer["down"], jax.nn.gelu(apply(layer["up"], normal(layer["norm2"], hidden))))
        return apply(layers["head"], normal(layers["norm"], hidden))

    return layers, forward, SOURCE.integers(words, size=(batch, length)), SOURCE.integers(words, size=(batch, length))


NETS = {
    "mlp": lambda batch: dense(batch, 600, 1024, 512, 256, 100), "mlp-small": lambda batch: dense(batch, 600, 128, 100),
    "mnist-cnn": digits, "cifar-cnn": pictures, "gpt": gpt,
}  # fmt: skip


def plain(layers: Any, loss: Any, x: Any, y: Any) -> Iterator[None]:
    update = jax.jit(lambda p, x, y: jax.tree.map(lambda a, g: a - RATE * g, p, jax.grad(loss)(p, x, y)))
    while True:
        layers = jax.block_until_ready(update(layers, x, y))
        yield


def private(layers: Any, loss: Any, x: Any, y: Any) -> Iterator[None]:
    gradient = jax_privacy.clipped_grad(loss, l2_clip_norm=CLIP, batch_argnums=(1, 2), normalize_by=len(x))
    noise = noise_addition.gaussian_privatizer(stddev=NOISE * gradient.sensitivity(), prng_key=jax.random.key(0))

    @jax.jit
    def update(layers: Any, state: Any, x: Any, y: Any) -> Any:
        noisy, state = noise.update(gradient(layers, x, y), state)
        return jax.tree.map(lambda a, g: a - RATE * g, layers, noisy), state

    state = noise.init(layers)
    while True:
        layers, state = jax.block_until_ready(update(layers, state, x, y))
        yield


def worker(given: argparse.Namespace) -> tuple[int, Callable[[], Step]]:
    layers, forward, x, y = NETS[given.task](BATCH[given.task])
    x, y = jnp.asarray(x, jnp.int32 if given.task == "gpt" else jnp.float32), jnp.asarray(y, jnp.int32)

    def loss(layers: Any, x: Any, y: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(forward(layers, x), y).mean()

    way = private if given.variant == "jax-privacy" else plain
    size = sum(leaf.size for leaf in jax.tree.leaves(layers))
    return size, lambda: way(layers, loss, x, y).__next__


if __name__ == "__main__":
    serve(worker)
