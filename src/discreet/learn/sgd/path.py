"""The path of a step: all examples at once where they are proven to be independent, each unit alone otherwise."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.compiled import eagerly
from discreet.learn.sgd.engine.probe import program_differs
from discreet.learn.sgd.isolated import Isolated, refuse
from discreet.learn.sgd.loading import plain
from discreet.learn.sgd.proof import NotProven, traced
from discreet.learn.sgd.proof.intact import replaced
from discreet.learn.sgd.proof.objects import machinery
from discreet.learn.sgd.proof.process import as_it_was, beside, settings
from discreet.learn.sgd.proof.program import Program
from discreet.learn.sgd.proof.python import Watch, modes, put_back
from discreet.learn.sgd.proof.recorder import Recorder
from discreet.learn.sgd.proof.watcher import Watcher
from discreet.learn.sgd.rows import OfBatch, made_up

PATHS = ("fast", "isolated")
MOST = 64  # proofs that a process remembers
_known: dict[Hashable, tuple[Verdict, Any]] = {}
log = logging.getLogger("discreet")


@dataclass(frozen=True)
class Verdict:
    """Whether the examples of a batch are proven independent, for one model, loss and shape of rows, and the reason if not."""

    proven: bool
    why: str
    graph: str = ""  # hash of the operations that were checked
    operations: int = 0
    computed: frozenset[tuple[int, str]] = (
        frozenset()
    )  # attributes that a forward computes from parameters, as weight_norm does
    program: Program | None = field(default=None, compare=False)  # what runs: the operations that were proven


@dataclass(frozen=True)
class Proof:
    """A verdict for one form of rows and one state of the code, and the program that runs instead of the code."""

    form: Hashable
    layers: Any  # of the engine: in the place of which modules something of ours runs
    watch: Watch
    verdict: Verdict
    program: Callable[[Any], Any] | None

    def holds(self, form: Hashable, layers: Any) -> bool:
        return self.form == form and self.layers is layers and self.watch.changed() is None


class Path:
    """The proofs so far, and whether they still apply."""

    def __init__(
        self, model: nn.Module, losses: Callable[[Any], Tensor], code: Iterable[Any], demanded: str | None,
        *, engine: Engine | None = None, backward: bool = True, varied: bool = False,
    ) -> None:  # fmt: skip
        """`varied`: rows differ in shape, so facts about the first row's shape are private too."""
        self._varied, self._engine = varied, engine
        self._model, self._losses, self._code, self._backward = model, losses, list(code), backward
        self.asked = None if demanded is None else check.word("path", demanded, PATHS)
        self._proofs: list[Proof] = []
        self._last: Proof | None = None
        self.verdicts: list[Verdict] = []

    def fast(self, batch: Any) -> bool:
        """Whether such a batch may be computed at once. A new form of rows is traced now, without values."""
        if self.asked == "isolated":
            return False
        verdict = self.verdict(batch)
        if not verdict.proven and self.asked == "fast":
            first = verdict == self.verdicts[0]  # later messages might reveal the shape of a private row
            raise InvalidValue(f"path='fast' was asked for, but {_sentence(verdict) if first else LATER}")
        return verdict.proven and (self._varied or self.verdicts[0].proven)  # the claim assumes what the first leaves to trust

    def verdict(self, batch: Any) -> Verdict:
        form, layers = _form(batch), None if self._engine is None else self._engine.layers
        for proof in (*([] if self._last is None else [self._last]), *self._proofs):
            if proof.holds(form, layers):
                self._last = proof
                return proof.verdict
        self._last = self._prove(form, layers, batch)
        self._proofs = [*self._proofs[-MOST:], self._last]
        self._tell(self._last.verdict)
        return self._last.verdict

    def program(self, batch: Any) -> Callable[[Any], Any] | None:
        """The program that replaces model and loss for rows of this shape; None where there is no proof yet."""
        shapes = _shapes(batch)
        known = (proof for proof in (self._last, *reversed(self._proofs)) if proof is not None)
        proof = next((proof for proof in known if proof.form[:2] == shapes), None)  # type: ignore[index]
        return None if proof is None or self.asked == "isolated" else proof.program

    def _prove(self, form: Hashable, layers: Any, batch: Any) -> Proof:
        watch = Watch(self._model, self._code, copies=False)
        names = {module: name for name, module in self._model.named_modules()}
        own = tuple(names.get(module) for module in layers or ())
        key = (form, own, self._backward, tuple(map(_hashable, watch.key)), watch.whole)
        if (active := beside()) is not None:
            return Proof(form, layers, watch, Verdict(False, f"{active} is active"), None)
        verdict, _ = _known.get(key, (None, None)) if replaced() is None else (None, None)
        if verdict is None:
            verdict = self._traced(watch, batch)
            if (strange := replaced()) is not None:
                why = f"{strange} is another function than the one that was installed"
                return Proof(form, layers, watch, Verdict(False, why), None)
            if verdict.program is None or not verdict.program.constants:  # its constants may belong to another model
                if len(_known) >= MOST:
                    _known.pop(next(iter(_known)))
                _known[key] = (verdict, watch.held)
        watch.computed = watch.at(verdict.computed)
        program = None if verdict.program is None else verdict.program.bound(self._model)
        if program is not None and self._engine is not None and (apart := self._unlike(program, batch)):
            verdict, program = Verdict(False, apart), None
        return Proof(form, layers, watch, verdict, program)

    def _unlike(self, program: Callable[[Any], Any], batch: Any) -> str | None:
        engine, draw = self._engine, torch.Generator().manual_seed(0)
        assert engine is not None
        device = engine.parameters[0].device
        with put_back(self._model, self._code):
            return program_differs(engine, self._losses, program, lambda examples: made_up(batch, examples, device, draw))

    def _traced(self, watch: Watch, batch: Any) -> Verdict:
        if not watch.whole:
            unseen = watch.hidden or watch.unproven or "a long list of tensors, say"
            return Verdict(False, f"its code can reach what cannot be watched ({unseen})")
        if torch._C._len_torch_dispatch_stack():
            return Verdict(False, "a dispatch mode is active, which may change every operation")
        marked = Marked(self._model, self._losses)
        with put_back(self._model, self._code), eagerly():
            drawn, settings_before = (random.getstate(), repr(np.random.get_state())), settings()
            recorder = Recorder(self._model, [] if self._engine is None else self._engine.layers)
            try:
                watcher = traced(self._model, marked, batch, self._backward, recorder)
            except NotProven as error:
                return Verdict(False, str(error))
            watch.computed = watch.replaced(_public)
            changed = watch.changed() or marked.changed()
            if drawn != (random.getstate(), repr(np.random.get_state())):
                changed = "the state of a generator of random numbers that is not torch's"
            if settings() != settings_before:
                changed = "a setting of torch or of the process"
        if changed is not None:
            return Verdict(False, f"a call of model or loss changes {changed}, and may do something else the next time")
        return self._proven(recorder.program, watcher, watch, batch)

    def _proven(self, program: Program | None, watcher: Watcher, watch: Watch, batch: Any) -> Verdict:
        """Apply the rules to the program, since that is what runs; it must have the same operations."""
        assert program is not None
        with put_back(self._model, self._code), eagerly():
            try:
                again = traced(self._model, program.bound(self._model), batch, self._backward)
            except NotProven as error:
                return Verdict(False, str(error))
        if again.hash.digest() != watcher.hash.digest():
            return Verdict(False, UNLIKE)
        reason = f"{watcher.count} operations keep every example's numbers apart"
        return Verdict(True, reason, watcher.hash.hexdigest(), watcher.count, watch.places(watch.computed), program)

    def _tell(self, verdict: Verdict) -> None:
        if verdict in self.verdicts:
            return
        self.verdicts.append(verdict)
        if len(self.verdicts) > 1:  # at a step: a reason might tell the shape of a private row
            log.info("private training: rows of another shape, or a model that was changed, were looked at again")
        elif verdict.proven or self.asked == "fast":
            log.info("private training: fast path (%s)", verdict.why)
        elif not self._backward:
            log.warning("private training: augment is called for every unit by itself, which is slower, since %s", verdict.why)
        else:
            log.warning("private training: every unit is computed by itself, which is slower, since %s", _sentence(verdict))

    # ---- what is said of it ------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        last = None if self._last is None else self._last.verdict
        proven = last is not None and last.proven and (self._varied or self.verdicts[0].proven)
        return "fast" if self.asked != "isolated" and proven else "isolated"

    @property
    def first(self) -> str:
        """The path at the beginning, the only one that is published: later shapes may be private."""
        return "fast" if self.asked != "isolated" and self.verdicts and self.verdicts[0].proven else "isolated"

    def sentence(self) -> str:
        assert self._last is not None
        return _sentence(self._last.verdict)

    def trusted(self, own_loop: bool = False) -> tuple[str, ...]:
        """The assumptions of the claim."""
        how = (PROVEN, ALONE) if self.first == "fast" or self._private else (ALONE,)
        return (*how, OUTSIDE, READING, *((LOOP,) if own_loop else ()))

    @property
    def _private(self) -> bool:
        """Whether even the first path is private, since a row's shape decided it."""
        return self._varied and self.asked is None

    def facts(self, isolated: Isolated) -> dict[str, Any]:
        """For the release: which path, and what was proven with which torch, of rows of the first shape."""
        if self._private:
            return {"path": VARIED, "torch": torch.__version__}
        result: dict[str, Any] = {"path": self.first, "torch": torch.__version__}
        first = self.verdicts[0] if self.verdicts else None
        if first is not None and first.proven and not self._varied:
            result |= {"graphs": [first.graph], "operations": [first.operations]}
        if self.first != "fast" and not self._varied:
            result |= {"way": isolated.tried}
        if first is not None and not first.proven:
            result |= {"not_proven": [first.why]}
        return result

    @property
    def why(self) -> str:
        return "isolated was asked for" if self._last is None else self._last.verdict.why


PROVEN = (
    "Torch's operations, and the layers that compute them for a batch, keep the examples apart as their rules say; these rules "
    "were checked for every operation of the recorded program that runs in the place of model and loss, forward and backward. "
    "Torch, discreet and Python are as they were installed, and nothing changes them during the run."
)
ALONE = (
    "Where that is not shown, torch computes a unit's gradient from the rows it is given alone, under torch.func.vmap or one "
    "unit after another."
)
VARIED = "by the shape of a unit's rows"
READING = (
    "A row of the data is read the same whichever other rows are read: neither the data set, nor a collate function in what "
    "cannot be put back (files, objects of extensions), keeps anything between them."
)
UNLIKE = "its backward runs code that is not among the operations of its forward (a hook, an autograd function of its own)"
LATER = "that is not proven of rows of another shape, or of a model that was changed since the run began."
OUTSIDE = (
    "Where units are computed one by one or under vmap, the code of model and loss keeps nothing outside the model, the loss "
    "and the variables it names (no files, no clocks, no memory behind torch's back)."
)


LOOP = (
    "The losses given to run.step were computed as model and loss of the run compute them, each from its own row alone: in a "
    "loop of one's own their code runs on the rows of a batch, and does the same there as where it was traced."
)


def code_of(loss: Any) -> list[Any]:
    """The code beside the model's that runs in a step."""
    return [loss.losses if isinstance(loss, OfBatch) else loss]


class Apart:
    """An augmentation that cannot mix units: proven to treat every row independently, or called unit by unit."""

    def __init__(self, augment: Callable[[Any], Any], rows: int) -> None:
        self._augment, self._rows = augment, rows
        self._path = Path(nn.Module(), augment, [augment], None, backward=False)

    def __call__(self, inputs: Any) -> Any:
        if self._path.fast(inputs):
            program = self._path.program(inputs)
            assert program is not None
            return program(inputs)
        leaves, parts = pytree.tree_leaves(inputs), []
        starts = range(0, leaves[0].shape[0], self._rows)
        for start, seed in zip(starts, torch.randint(2**62, (len(starts),)).tolist(), strict=True):
            with as_it_was(seed), put_back(nn.Module(), [self._augment], fresh=True) as watch:
                own = pytree.tree_map(lambda leaf, at=start: leaf[at : at + self._rows].clone(), inputs)
                parts.append(self._as_many(plain(self._augment(own))))
            refuse(watch, after=True)
        return pytree.tree_map(lambda *units: torch.cat(units), *parts)

    def _as_many(self, unit: Any) -> Any:
        """Refuse a unit whose number of rows changed: it would shift the rows of later units to other targets."""
        leaves = pytree.tree_leaves(unit)
        if not leaves or any(not isinstance(leaf, Tensor) or not leaf.ndim or len(leaf) != self._rows for leaf in leaves):
            raise InvalidValue(
                "augment is given the rows of one unit and must give as many back, in every tensor; it gave another number for "
                "some unit. Let it change rows, and neither add nor drop any."
            )
        return unit


def several(batch: Any, weight: Tensor | None) -> tuple[Any, Tensor | None]:
    """Pad a batch of one example with a copy of weight 0, since proofs are for two examples or more."""
    leaf = pytree.tree_leaves(batch)[0]
    if leaf.shape[0] != 1:
        return batch, weight
    weight = torch.ones(1, device=leaf.device) if weight is None else weight
    return pytree.tree_map(lambda tensor: torch.cat([tensor, tensor]), batch), torch.cat([weight, torch.zeros_like(weight)])


def _sentence(verdict: Verdict) -> str:
    return (
        f"it could not be proven that the examples of a batch leave each other alone: {verdict.why}. For the fast path, let "
        "model and loss treat every example by operations along other axes than that of the batch, choose nothing by value or "
        "batch size, and keep nothing between calls."
    )


class Marked:
    """The losses, for a trace: tensors that stand for parameters have their attributes, which must not change."""

    def __init__(self, model: nn.Module, losses: Callable[[Any], Any]) -> None:
        self._model, self._losses = model, losses
        own = [(name, tensor) for name, tensor in _state(model) if not machinery(type(tensor))]
        self._real = {name: dict(vars(tensor)) for name, tensor in own}
        self._traced: list[tuple[Tensor, dict[str, Any]]] = []
        self._seeded = False

    def __call__(self, batch: Any) -> Any:
        for name, tensor in _state(self._model):
            for attribute, content in self._real.get(name, {}).items():
                setattr(tensor, attribute, content)
            self._traced.append((tensor, dict(vars(tensor))))
        seed = torch.initial_seed()
        losses = self._losses(batch)
        self._seeded = torch.initial_seed() != seed
        return losses

    def changed(self) -> str | None:
        """An attribute of a parameter that is not what it was."""
        if self._seeded:
            return "the seed of torch's generator"
        for tensor, before in self._traced:
            now = vars(tensor)
            for name in now.keys() | before.keys():
                if not name.startswith("_discreet") and now.get(name, self) is not before.get(name, self):
                    return f"an attribute of a parameter ({name})"
        return None


def _state(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _public(tensor: Tensor) -> bool:
    """Whether a tensor of a trace is a function of parameters and constants alone."""
    value = getattr(tensor, "_discreet_value", None)
    return value is not None and value.kind == "public" and not value.cell.blank


def _shapes(batch: Any) -> tuple[Any, tuple[Any, ...]]:
    """How a batch is made of tensors, and the shapes, types and devices of the rows in them."""
    leaves, tree = pytree.tree_flatten(batch)
    return tree, tuple((tuple(leaf.shape[1:]), leaf.dtype, leaf.device.type, leaf.requires_grad) for leaf in leaves)


def _form(batch: Any) -> Hashable:
    """The shape of rows, and the settings of torch that decide which operations run."""
    tree, shapes = _shapes(batch)
    kinds = {"cpu", *(kind for _, _, kind, _ in shapes)}
    cast = tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in sorted(kinds))
    sdp = torch.backends.cuda
    ways = (
        sdp.flash_sdp_enabled(),
        sdp.mem_efficient_sdp_enabled(),
        sdp.math_sdp_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
    )
    return tree, shapes, cast, ways, tuple(map(id, modes())), beside(), torch.get_default_dtype(), torch.__version__


def _hashable(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return object()  # equal to nothing
    return value
