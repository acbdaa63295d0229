"""The strongest reconstruction known for the case. The rule is fixed, and the first certified answer wins.

one row, a linear layer sees it          closed form
linear, ReLU, linear …                   exact, row by row (sparse.py)
convolutions and ReLU, few images        exact, layer by layer (last.py, convolutions.py)
smooth activations                       second-order matching
images otherwise                         cosine distance and total variation
tables otherwise                         an ensemble of relaxed rows, with the doubt of each cell (tables.py)
several local steps (FedAvg)             the steps simulated and differentiated through (federated.py)
token sequences                          those that the spans of two layers hold (text.py)
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from discreet.attack.gradients import closed, convolutions, estimate, federated, matching, sparse, tables, text
from discreet.attack.gradients.labels import as_labels, label_counts
from discreet.attack.gradients.layout import Layout
from discreet.attack.gradients.network import Loss, Network, certified
from discreet.attack.gradients.result import Inversion
from discreet.attack.gradients.update import Update, checked
from discreet.core import check
from discreet.errors import InvalidValue

METHODS = ("auto", "closed", "sparse", "convolutions", "second_order", "cosine", "tables", "federated")
PRIOR = 512  # public rows that stand for the batch


def gradients(
    model: nn.Module, update: Mapping[str, Any], *, batch: int, loss: Loss | None = None, data: Any = "image",
    shape: Sequence[int] | None = None, labels: Any = None, public: Any = None, method: str = "auto", steps: int = 2000,
    seconds: float = 60.0, seed: int = 0, epochs: int | None = None, learning_rate: float | None = None,
    batch_size: int | None = None, device: str = "cpu", progress: Callable[[str, int, int], None] | None = None,
) -> Inversion:  # fmt: skip
    """Read the rows of a batch out of one gradient that a client sent.

    `update` maps parameter names to the gradient of the mean loss over `batch` rows; `loss` is cross entropy where none is
    given. `data` is "image", with `shape` such as (3, 32, 32), or a schema: a mapping from each column to its categories or to
    a pair (low, high), whose rows the model sees one-hot. `labels` are guessed where they are not known. `public` are rows of
    the same kind that are nobody's secret; without them rows are drawn evenly from the ranges. `seconds` limits each attack's
    CPU time. With `epochs`, `learning_rate` and `batch_size` the update is how the weights changed over so many epochs of
    descent (FedAvg), and `batch` is how many rows the client has. With data="text", `batch` sequences of `shape=(length,)`
    token numbers are read from a causal transformer; `residual` is then their distance from the spans. Where the rank of the
    gradient shows that `batch` is wrong, the number of rows it shows is tried too. Recovered rows that reproduce the update up
    to rounding are certified: see `Inversion.exact`.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    >>> row, label = torch.tensor([[0.1, 0.7, 0.4]]), torch.tensor([1])
    >>> sent = torch.autograd.grad(nn.functional.cross_entropy(model(row), label), model.parameters())
    >>> update = dict(zip(dict(model.named_parameters()), sent))
    >>> found = gradients(model, update, batch=1, data={"a": (0, 1), "b": (0, 1), "c": (0, 1)})
    >>> found.method, bool(found.exact.all()), bool(found.rows.allclose(row.double(), atol=1e-5)), int(found.labels[0])
    ('closed', True, True, 1)
    """
    check.whole("batch", batch)
    check.word("method", method, METHODS)
    check.whole("steps", steps)
    check.positive("seconds", seconds)
    if isinstance(data, str) and data == "text":
        return _text(model, checked(model, update), batch, shape, seconds, progress)
    estimate.device(device)
    sent, local = checked(model, update), _local(epochs, learning_rate, batch_size)
    if local is not None and local.steps(batch) == 1:
        sent, local = sent.scaled(-1.0 / local.learning_rate), None

    def at(rows: int) -> Inversion:
        return _first(_Case(
            model, sent, rows, loss or nn.CrossEntropyLoss(), data, shape, labels if rows == batch else None, public, steps,
            seconds, seed, progress, local, device,
        ), method)  # fmt: skip

    result = at(batch)
    rank = None if local is not None or bool(result.exact.all()) else estimate.rows(model, sent, result.rows.shape[1:])
    if rank is None or rank == batch:
        return result.noted(*estimate.normalised(model))
    note = f"The gradient has the rank of {rank} rows, not of {batch}: batch={rank} was tried as well."
    again = at(rank)
    return (again if bool(again.exact.all()) else result).noted(note, *estimate.normalised(model))


def _first(case: _Case, method: str) -> Inversion:
    """The first certified answer, or the one with the least residual."""
    tried: list[Inversion] = []
    for name in case.order() if method == "auto" else [method]:
        found = getattr(case, name)()
        if found is None:
            continue
        tried.append(found)
        if bool(found.exact.all()) and len(found) == case.batch:
            break
    if not tried:
        raise InvalidValue(f"method={method!r} does not fit this model and batch; leave it out to use what does.")
    return min(tried, key=lambda found: (-int(found.exact.sum()), found.residual))


def _local(epochs: int | None, learning_rate: float | None, batch_size: int | None) -> federated.Local | None:
    given = (epochs, learning_rate, batch_size)
    if all(value is None for value in given):
        return None
    if epochs is None or learning_rate is None or batch_size is None:
        raise InvalidValue("A client of federated averaging needs all three: epochs=…, learning_rate=… and batch_size=….")
    return federated.Local(epochs, learning_rate, batch_size)


def _text(
    model: nn.Module, update: Update, batch: int, shape: Sequence[int] | None, seconds: float,
    progress: Callable[[str, int, int], None] | None,
) -> Inversion:  # fmt: skip
    if shape is None or len(shape) != 1:
        raise InvalidValue('data="text" needs the length of one sequence, such as shape=(32,).')
    start = time.process_time()
    tell = None if progress is None else lambda done, total: progress("text", done, total)
    sequences = text.sequences(copy.deepcopy(model).eval(), update, batch, int(shape[0]), seconds=seconds, progress=tell)
    if sequences.tokens.shape[1] < shape[0]:
        raise InvalidValue(
            f"Only {sequences.tokens.shape[1]} of {shape[0]} positions were read within {seconds:g} CPU seconds or before no "
            "token fitted. Give more seconds; noise or compression of the update ends this attack."
        )
    exact = (sequences.distance < text.CERTAIN) & (len(sequences.tokens) == batch)
    return Inversion(
        sequences.tokens,
        None,
        exact.double(),
        exact,
        "text",
        float(sequences.distance.max()) ** 0.5,
        time.process_time() - start,
    )


class _Case:
    """One update, what is known about it, and one method per attack."""

    def __init__(
        self, model: nn.Module, update: Update, batch: int, loss: Loss, data: Any, shape: Sequence[int] | None, labels: Any,
        public: Any, steps: int, seconds: float, seed: int, progress: Callable[[str, int, int], None] | None,
        local: federated.Local | None, device: str,
    ) -> None:  # fmt: skip
        self.local, self.device = local, device
        self.model, self.update, self.batch, self.steps, self.seconds, self.seed = model, update, batch, steps, seconds, seed
        self.network, self.loss = Network(model, loss), loss
        self.layout = None if isinstance(data, str) else Layout.of(data)
        if isinstance(data, str):
            check.word("data", data, ("image",))
        if self.layout is None and shape is None:
            raise InvalidValue('data="image" needs the shape of one row, such as shape=(3, 32, 32).')
        self.shape = tuple(shape) if shape is not None else (self.layout.width,)  # type: ignore[union-attr]
        self.start, self.progress = time.process_time(), progress
        self.prior, self.known_rows = self._prior(public), public is not None
        try:
            with torch.no_grad():
                self.classes = int(self.network.outputs(self.prior[:2].to(self.network.dtype)).shape[-1])
        except Exception as error:
            raise InvalidValue(f"The model does not take rows of the shape {self.shape}: {error}") from None
        self.labels = self._labels(labels)

    def _prior(self, public: Any) -> Tensor:
        if public is not None:
            rows = torch.as_tensor(public).double()
            if rows.shape[1:] != torch.Size(self.shape) or not len(rows):
                raise InvalidValue(f"public must hold rows of the shape {self.shape}; got {tuple(rows.shape)}.")
            return rows
        generator = torch.Generator().manual_seed(self.seed)
        if self.layout is not None:
            return self.layout.sample(PRIOR, generator)
        return torch.rand(PRIOR, *self.shape, generator=generator, dtype=torch.float64)

    def _labels(self, labels: Any) -> Tensor | None:
        if labels is not None:
            known = torch.as_tensor(labels).long().reshape(-1).cpu()
            if len(known) != self.batch:
                raise InvalidValue(f"labels has {len(known)} entries for a batch of {self.batch}.")
            return known
        if self.local is not None:
            return federated.labels_of(self.network, self.update, self.batch, self.prior, self.local)
        counts = label_counts(self.network, self.update, self.batch, self.prior)
        return None if counts is None else as_labels(counts)

    def order(self) -> list[str]:
        """The attacks that fit, the exact ones first."""
        if self.local is not None:
            return ["federated"]
        fallback = "tables" if self.layout is not None else "cosine"
        exact = ["closed"] if self.batch == 1 else []
        exact += ["sparse"] if sparse.applies(self.model) else []
        exact += ["convolutions"] if convolutions.applies(self.model, self.shape) else []
        return [*exact, *(["second_order"] if matching.smooth(self.model) else []), fallback]

    def closed(self) -> Inversion | None:
        row = closed.one_row(self.model, self.update, self.shape) if self.batch == 1 else None
        return None if row is None else self._made("closed", row, self._label_of(row))

    def sparse(self) -> Inversion | None:
        if not sparse.applies(self.model):
            return None
        found = sparse.rows_of(
            self.network, self.update, self.batch, self.classes, self.prior, seconds=self.seconds, seed=self.seed,
            progress=self._tell("sparse"),
        )  # fmt: skip
        if not found.rows:
            return None
        rows = torch.stack(found.rows).reshape(-1, *self.shape)
        labels = torch.tensor(found.labels)
        residual = self.network.residual(rows, labels, self.update)
        whole = len(rows) == self.batch
        notes = () if whole else (f"{len(rows)} of {self.batch} rows were found; each explains its own neurons.",)
        return self._result("sparse", rows, labels, residual, torch.tensor(found.sure), notes)

    def convolutions(self) -> Inversion | None:
        if not convolutions.applies(self.model, self.shape):
            return None
        images = convolutions.images(
            self.network, self.update, self.labels, self.shape, self.batch, seconds=self.seconds
        )  # fmt: skip
        if images is None:
            return None
        made = self._made("convolutions", *images)
        if self._equations() >= made.rows.numel():
            return made
        note = "The update has fewer independent values than the images have pixels: other images have the same gradient."
        return replace(made, exact=torch.zeros_like(made.exact), confidence=torch.zeros_like(made.confidence)).noted(note)

    def _equations(self) -> int:
        """How many values of the update can differ on their own: of a linear layer as many as its rank, the batch, allows."""
        values = self.update.values.values()
        return sum(self.batch * sum(value.shape) if value.dim() == 2 else int(value.count_nonzero()) for value in values)

    def second_order(self) -> Inversion | None:
        return self._matched("second_order", matching.second_order)

    def cosine(self) -> Inversion | None:
        return self._matched("cosine", matching.cosine)

    def tables(self) -> Inversion | None:
        if self.layout is None or self.labels is None:
            return None
        found = tables.ensemble(
            self.network, self.update, self.labels, self.layout, steps=self.steps, seconds=self.seconds, seed=self.seed,
            progress=self._tell("tables"),
        )  # fmt: skip
        if self.known_rows:
            found = tables.calibrated(
                found, self.network, self.labels, self.layout, self.prior, steps=self.steps, seconds=self.seconds,
                seed=self.seed,
            )  # fmt: skip
        residual = self.network.residual(found.rows, self.labels, self.update)
        exact = torch.full((len(found.rows),), self._determined(found.rows, self.labels, residual))
        return self._result("tables", found.rows, self.labels, residual, exact, (), found.confidence)

    def federated(self) -> Inversion | None:
        if self.local is None:
            raise InvalidValue('method="federated" needs epochs=…, learning_rate=… and batch_size=….')
        if self.labels is None:
            raise InvalidValue("The labels of the client are not known and the loss does not tell them: give labels=….")
        low, high = self._range()
        network = Network(self.model, self.network.loss, dtype=torch.float32)
        rows, sure = federated.rows_of(
            network, self.update, self.labels, self.shape, self.local, steps=self.steps, seconds=self.seconds, seed=self.seed,
            low=low, high=high, progress=self._tell("federated"),
        )  # fmt: skip
        copies = rows.to(network.dtype)[None].repeat(self.local.epochs, *[1] * rows.dim())
        change = federated.change(network, copies, self.labels, self.local, differentiable=False)
        residual = self.network.apart(change, self.update)
        exact = torch.zeros(len(rows), dtype=torch.bool)
        return self._result("federated", rows, self.labels, residual, exact, (), sure)

    def _matched(self, name: str, attack: Callable[..., matching.Match]) -> Inversion | None:
        if self.labels is None:
            raise InvalidValue("The labels of the batch are not known and the loss does not tell them: give labels=….")
        low, high = self._range()
        network = Network(self.model, self.network.loss, dtype=torch.float32, device=self.device)
        network = network if name == "cosine" else self.network
        match = attack(
            network, self.update, self.labels, self.shape, steps=self.steps, seconds=self.seconds, seed=self.seed,
            low=low, high=high, progress=self._tell(name),
        )  # fmt: skip
        rows = match.rows.double().cpu()
        residual = self.network.residual(rows, self.labels, self.update)
        exact = torch.full((len(rows),), self._determined(rows, self.labels, residual))
        return self._result(name, rows, self.labels, residual, exact)

    def _determined(self, rows: Tensor, labels: Tensor, residual: float) -> bool:
        """Rows that a search found are certified where they explain the update and no others near them do."""
        if not certified(residual, self.update):
            return False
        spans = torch.ones(self.shape) if self.layout is None else self.layout.spans()
        return matching.found_again(self.network, self.update, labels, rows, spans, seconds=self.seconds, seed=self.seed)

    def _range(self) -> tuple[float, float]:
        if self.layout is None:
            return 0.0, 1.0
        limits = [ends for ends in self.layout.ranges if ends is not None] + [(0.0, 1.0)]
        return min(low for low, _ in limits), max(high for _, high in limits)

    def _label_of(self, row: Tensor) -> Tensor:
        """The label that explains the update best, where the row is known."""
        options = [torch.tensor([label]) for label in range(self.classes)]
        if self.labels is not None:
            options.insert(0, self.labels)
        try:
            return min(options, key=lambda label: self.network.residual(row, label, self.update))
        except (RuntimeError, ValueError, IndexError):
            return options[0]

    def _made(self, method: str, rows: Tensor, labels: Tensor) -> Inversion:
        residual = self.network.residual(rows, labels, self.update)
        exact = torch.full((len(rows),), certified(residual, self.update))
        return self._result(method, rows, labels, residual, exact)

    def _result(
        self, method: str, rows: Tensor, labels: Tensor | None, residual: float, exact: Tensor, notes: tuple[str, ...] = (),
        confidence: Tensor | None = None,
    ) -> Inversion:  # fmt: skip
        if self.layout is not None:
            exact = exact & self.layout.holds(rows.detach().cpu())
        sure = exact.double() if confidence is None else confidence
        spent = time.process_time() - self.start
        return Inversion(rows.detach().cpu(), labels, sure, exact, method, residual, spent, notes, self.layout)

    def _tell(self, name: str) -> Callable[[int, int], None] | None:
        return None if self.progress is None else lambda done, total: self.progress(name, done, total)  # type: ignore[misc]
