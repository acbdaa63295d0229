"""Token sequences from the gradient of a causal transformer (Petrov et al. 2024, DAGER).

A linear layer with inputs X has the gradient Xᵀ D, whose columns lie in the span of the inputs: fewer directions than the layer
has inputs, as long as the batch has fewer tokens. What the first block sees of a token depends on the token and its position
alone, so every pair of the two is tested: those in the span were there. What the second block sees at a position depends on the
tokens up to it, so sequences are built from the left, and those whose last vector is outside of the second span are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from discreet.attack.gradients.update import Update
from discreet.errors import InvalidValue

SEEN = 0.02  # squared distance from the first span, relative, of a token that was there
CERTAIN = 1e-7  # the same of a sequence from the second span; a wrong first token leaves about 1e-3
SPARE = 4  # sequences that are kept beyond the batch's
CHUNK = 256  # sequences at a time
GLANCE = 16  # directions outside of the span that a token is tested on
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Sequences:
    """Token numbers [sequences, length], and how far each is from the spans at its worst position."""

    tokens: Tensor
    distance: Tensor


class _Reached(Exception):
    """The layer that was asked for has its input; the rest of the network need not run."""


class _Layer:
    """The linear layers of a block that see the same input, and the span of that input over the batch."""

    def __init__(self, model: nn.Module, names: list[str], update: Update, most: int) -> None:
        self.model, self.module = model, model.get_submodule(names[0])
        parts = []
        for name in names:
            gradient, module = update.values[f"{name}.weight"], model.get_submodule(name)
            parts.append(gradient.T if isinstance(module, nn.Linear) else gradient)  # GPT-2's Conv1D is stored transposed
        left, singular, _ = torch.linalg.svd(torch.cat(parts, 1), full_matrices=False)
        self.rank = int((singular > max(5.0 * update.rounding, 1e-12) * singular[0]).sum())
        self.whole = self.rank < len(left) - 1  # what a layer normalisation gives has a mean of 0: one direction less
        self.basis, outside = left.tensor_split([min(self.rank, most)], 1)
        generator = torch.Generator().manual_seed(0)
        self.outside = outside @ torch.randn(outside.shape[1], GLANCE, generator=generator, dtype=left.dtype) / GLANCE**0.5

    def distances(self, tokens: Tensor) -> Tensor:
        """The squared distance from the span of what the layer sees, at each position of these sequences."""
        vectors = self._seen(tokens).double()
        inside: Tensor = ((vectors @ self.basis) ** 2).sum(-1) / (vectors**2).sum(-1)
        return (1.0 - inside).clamp(min=0.0)

    def glance(self, tokens: Tensor) -> Tensor:
        """The same by a few random directions outside of the span: unbiased, and much less to compute."""
        vectors = self._seen(tokens)
        outside: Tensor = ((vectors @ self.outside.to(vectors.dtype)) ** 2).sum(-1) / (vectors**2).sum(-1)
        return outside

    def _seen(self, tokens: Tensor) -> Tensor:
        seen: list[Tensor] = []

        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen.append(inputs[0])
            raise _Reached

        handle = self.module.register_forward_pre_hook(hook)
        try:
            with torch.no_grad():
                self.model(tokens)
        except _Reached:
            pass
        finally:
            handle.remove()
        return seen[0]


def applies(model: nn.Module, length: int) -> bool:
    """Two blocks at least, each with a linear layer over all positions."""
    try:
        return len(_places(model, length)) == 2
    except InvalidValue:
        return False


def sequences(
    model: nn.Module, update: Update, batch: int, length: int, *, seconds: float, progress: Progress | None = None
) -> Sequences:  # fmt: skip
    """As many sequences as the batch had, the most certain first."""
    places = _places(model, length)
    if len(places) < 2:
        raise InvalidValue('data="text" needs a causal transformer of two blocks at least, each with linear layers.')
    first, second = (_Layer(model, names, update, batch * length) for names in places)
    if not first.whole or not second.whole:
        raise InvalidValue(
            f"The batch has {batch * length} tokens, no fewer than the {len(first.basis)} inputs of a layer: its gradient "
            "spans everything, so no token can be told from another. Smaller batches or wider layers can be read."
        )
    begin = time.process_time()
    options = _tokens(first, _vocabulary(model), length)
    beams = torch.zeros(1, 0, dtype=torch.int64)
    worst = torch.zeros(1)
    for position in range(length):
        if not len(options[position]) or time.process_time() - begin > seconds:
            break
        longer = torch.cat(
            [beams.repeat_interleave(len(options[position]), 0), options[position].repeat(len(beams))[:, None]], 1
        )
        reached = worst.repeat_interleave(len(options[position]))
        away = torch.cat([second.distances(part)[:, -1] for part in torch.split(longer, CHUNK)])
        reached = torch.maximum(reached, away.to(reached))
        kept = reached.argsort()[: batch + SPARE]
        beams, worst = longer[kept], reached[kept]
        if progress is not None:
            progress(position + 1, length)
    return Sequences(beams[:batch], worst[:batch])


def _tokens(first: _Layer, vocabulary: int, length: int) -> list[Tensor]:
    """The tokens that were at each position, in any sequence."""
    chosen: list[list[Tensor]] = [[] for _ in range(length)]
    for part in torch.split(torch.arange(vocabulary), CHUNK):
        near = first.glance(part[:, None].expand(-1, length)) < SEEN
        for position in range(length):
            chosen[position].append(part[near[:, position]])
    return [torch.cat(parts) for parts in chosen]


def _vocabulary(model: nn.Module) -> int:
    """The size of the embedding that is called first with the tokens: the largest one."""
    sizes = [module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)]
    if not sizes:
        raise InvalidValue('data="text" needs a model with an nn.Embedding of tokens.')
    return max(sizes)


def _places(model: nn.Module, length: int) -> list[list[str]]:
    """For each of the first two blocks, the names of the layers that see the block's first linear input."""
    stacks = [(name, part) for name, part in model.named_modules() if isinstance(part, nn.ModuleList) and len(part) >= 2]
    if not stacks:
        return []
    name = stacks[0][0]
    calls: list[tuple[str, Tensor]] = []

    def look(place: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            calls.append((place, inputs[0]))

        return hook

    hooks = [
        module.register_forward_pre_hook(look(place))
        for place, module in model.named_modules()
        if place.startswith(f"{name}.") and getattr(getattr(module, "weight", None), "ndim", 0) == 2
    ]
    try:
        with torch.no_grad():
            model(torch.zeros(1, length, dtype=torch.int64))
    except (RuntimeError, IndexError, TypeError) as error:
        raise InvalidValue(f"The model does not take token numbers of the shape (1, {length}): {error}") from None
    finally:
        for handle in hooks:
            handle.remove()
    found = []
    for index in range(2):
        inside = [(place, seen) for place, seen in calls if place.startswith(f"{name}.{index}.")]
        if inside:
            found.append([place for place, seen in inside if seen is inside[0][1] or torch.equal(seen, inside[0][1])])
    return found
