"""Which way a step is computed: all examples at once where they are proven to be independent, each unit alone otherwise."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.learn.sgd.engine.compiled import eagerly
from discreet.learn.sgd.isolated import Isolated
from discreet.learn.sgd.proof import NotProven, traced
from discreet.learn.sgd.proof.python import Watch, put_back
from discreet.learn.sgd.rows import OfBatch

PATHS = ("fast", "isolated")
MOST = 64  # proofs that a process remembers
TRACING = {
    "FakeTensor", "FakeTensorMode", "fake_tensor", "is_fake", "detect_fake_mode", "_guards", "_subclasses", "SymInt", "SymBool",
    "_get_current_dispatch_mode", "_len_torch_dispatch_stack", "_dispatch", "_to_dlpack", "to_dlpack", "from_dlpack",
}  # fmt: skip
_known: dict[Hashable, tuple[Verdict, Any]] = {}
log = logging.getLogger("discreet")


@dataclass(frozen=True)
class Verdict:
    """Whether the examples of a batch are independent, for one model, loss and shape of rows, and why not."""

    proven: bool
    why: str
    graph: str = ""  # hash of the operations that were checked
    operations: int = 0
    computed: frozenset[str] = frozenset()  # attributes that a forward computes from parameters, as weight_norm does


class Path:
    """What was proven so far, and whether it still holds of what runs now."""

    def __init__(
        self, model: nn.Module, losses: Callable[[Any], Tensor], code: Iterable[Any], asked: str | None,
        *, backward: bool = True,
    ) -> None:  # fmt: skip
        self._model, self._losses, self._code, self._backward = model, losses, list(code), backward
        self.asked = None if asked is None else check.word("path", asked, PATHS)
        self._proofs: list[tuple[Hashable, Watch, Verdict]] = []
        self._last: tuple[Hashable, Watch, Verdict] | None = None
        self.verdicts: list[Verdict] = []

    def fast(self, batch: Any) -> bool:
        """Whether a batch like this may be computed at once. What was not asked before is traced now, on no values at all."""
        if self.asked == "isolated":
            return False
        verdict = self.verdict(batch)
        if not verdict.proven and self.asked == "fast":
            raise InvalidValue(f"path='fast' was asked for, but {_sentence(verdict)}")
        return verdict.proven

    def verdict(self, batch: Any) -> Verdict:
        form = _form(batch)
        if self._last is not None and self._last[0] == form and self._last[1].changed(deep=False) is None:
            return self._last[2]
        for proof in self._proofs:
            if proof[0] == form and proof[1].changed(deep=False) is None:
                self._last = proof
                return proof[2]
        self._last = (form, *self._prove(form, batch))
        self._proofs = [*self._proofs[-MOST:], self._last]
        self._tell(self._last[2])
        return self._last[2]

    def _prove(self, form: Hashable, batch: Any) -> tuple[Watch, Verdict]:
        watch = Watch(self._model, self._code)
        key = (form, self._backward, tuple(map(_hashable, watch.key)), watch.whole)
        if key not in _known:
            if len(_known) >= MOST:
                _known.pop(next(iter(_known)))
            _known[key] = (self._traced(watch, batch), watch.opaque)
        watch.computed = _known[key][0].computed
        return watch, _known[key][0]

    def _traced(self, watch: Watch, batch: Any) -> Verdict:
        asking = sorted(watch.named & TRACING)
        if asking:
            return Verdict(False, f"its code can ask whether it is traced ({asking[0]})")
        with put_back(self._model, self._code), eagerly():
            try:
                seen = traced(self._model, self._losses, batch, self._backward)
            except NotProven as error:
                return Verdict(False, str(error))
            watch.computed = watch.replaced(_public)
            changed = watch.changed()
        if not watch.whole:
            return Verdict(False, "its code can reach more than can be watched (a long list of tensors, say)")
        if changed is not None:
            return Verdict(False, f"a call of model or loss changes {changed}, and may do something else the next time")
        return Verdict(
            True,
            f"{seen.count} operations keep every example's numbers apart",
            seen.hash.hexdigest(),
            seen.count,
            watch.computed,
        )

    def _tell(self, verdict: Verdict) -> None:
        if verdict in self.verdicts:
            return
        self.verdicts.append(verdict)
        if verdict.proven or self.asked == "fast":
            log.info("private training: fast path (%s)", verdict.why)
        elif not self._backward:
            log.warning("private training: augment is called for every unit by itself, which is slower, since %s", verdict.why)
        else:
            log.warning("private training: every unit is computed by itself, which is slower, since %s", _sentence(verdict))

    # ---- what is said of it ------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        last = None if self._last is None else self._last[2]
        return "fast" if self.asked != "isolated" and last is not None and last.proven else "isolated"

    def sentence(self) -> str:
        assert self._last is not None
        return _sentence(self._last[2])

    def trusted(self, own_loop: bool = False) -> tuple[str, ...]:
        """What the claim has to assume."""
        return (PROVEN if self.name == "fast" else ALONE, OUTSIDE, *((LOOP,) if own_loop else ()))

    def facts(self, isolated: Isolated) -> dict[str, Any]:
        """For the release: which path, and what was proven with which torch."""
        proven = [it for it in self.verdicts if it.proven]
        unproven = [it.why for it in self.verdicts if not it.proven]
        told: dict[str, Any] = {"path": self.name, "torch": torch.__version__}
        if proven:
            told |= {"graphs": [it.graph for it in proven], "operations": [it.operations for it in proven]}
        if self.name != "fast":
            told |= {"way": isolated.way}
        if unproven:
            told |= {"not_proven": unproven}
        return told

    @property
    def why(self) -> str:
        return "isolated was asked for" if self._last is None else self._last[2].why


PROVEN = (
    "Torch's operations, and the layers that compute them for a batch, keep the examples apart as their rules say; these rules "
    "were checked for every operation of model and loss, forward and backward."
)
ALONE = "Torch computes a unit's gradient from the rows it is given alone, under torch.func.vmap or one unit after another."
OUTSIDE = (
    "The code of model and loss does the same in every step, traced or run: it keeps nothing outside the model, the loss and "
    "the variables it names (no files, no clocks, no memory behind torch's back)."
)


LOOP = "The losses given to run.step were computed as model and loss of the run compute them: each from its own row alone."


def code_of(loss: Any) -> list[Any]:
    """What else than the model's code runs in a step."""
    return [loss.losses if isinstance(loss, OfBatch) else loss]


class Apart:
    """An augmentation by which no unit reaches another: proven to treat every row by itself, or called unit by unit."""

    def __init__(self, augment: Callable[[Any], Any], rows: int) -> None:
        self._augment, self._rows = augment, rows
        self._path = Path(nn.Module(), augment, [augment], None, backward=False)

    def __call__(self, inputs: Any) -> Any:
        if self._path.fast(inputs):
            return self._augment(inputs)
        leaves, parts = pytree.tree_leaves(inputs), []
        for start in range(0, leaves[0].shape[0], self._rows):
            with put_back(nn.Module(), [self._augment]):
                own = pytree.tree_map(lambda leaf, at=start: leaf[at : at + self._rows].clone(), inputs)
                parts.append(self._augment(own))
        return pytree.tree_map(lambda *units: torch.cat(units), *parts)


def several(batch: Any, weight: Tensor | None) -> tuple[Any, Tensor | None]:
    """A batch of one example beside a copy that counts for nothing: what is proven is proven of two examples and more."""
    leaf = pytree.tree_leaves(batch)[0]
    if leaf.shape[0] != 1:
        return batch, weight
    weight = torch.ones(1, device=leaf.device) if weight is None else weight
    return pytree.tree_map(lambda it: torch.cat([it, it]), batch), torch.cat([weight, torch.zeros_like(weight)])


def _sentence(verdict: Verdict) -> str:
    return (
        f"it could not be proven that the examples of a batch leave each other alone: {verdict.why}. For the fast path, let "
        "model and loss treat every example by operations along other axes than that of the batch, choose nothing by value or "
        "batch size, and keep nothing between calls."
    )


def _public(tensor: Tensor) -> bool:
    """Whether a tensor of a trace is a function of parameters and constants."""
    value = getattr(tensor, "_discreet_value", None)
    return value is not None and value.kind == "public" and not value.cell.blank


def _form(batch: Any) -> Hashable:
    """The shape of rows, and the settings of torch that decide which operations run."""
    leaves, tree = pytree.tree_flatten(batch)
    shapes = tuple((tuple(leaf.shape[1:]), leaf.dtype, leaf.device.type, leaf.requires_grad) for leaf in leaves)
    kinds = {"cpu", *(leaf.device.type for leaf in leaves)}
    cast = tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in sorted(kinds))
    sdp = torch.backends.cuda
    ways = (
        sdp.flash_sdp_enabled(),
        sdp.mem_efficient_sdp_enabled(),
        sdp.math_sdp_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
    )
    return tree, shapes, cast, ways, torch.get_default_dtype(), torch.__version__


def _hashable(it: Any) -> Hashable:
    try:
        hash(it)
    except TypeError:
        return object()  # equal to nothing
    return it
