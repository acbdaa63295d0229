"""What `discreet train`, `federate` and `fit` wrote, as the target of attacks.

It says what is known of its columns, which one it predicts, and how it was trained. Models like it are trained as privately, on
rows that the auditor brings, and released to nobody: nothing is charged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.cli.owners import Owners
from discreet.core import Release
from discreet.core.document import read_toml
from discreet.errors import InvalidDocument, InvalidValue

if TYPE_CHECKING:
    from discreet.attack.membership.model_audit import Loaded, ModelAudit
    from discreet.models import Recipe

Say = Callable[[str], None]
Fit = Callable[[Any, Any], Any]
MODEL, DOCUMENT, CONFIG = "model.safetensors", "release.json", "config.toml"
LABEL = "label"  # what --target-column is where nobody says
NO_PLAN = "It does not say how it was fitted, as an older discreet fit wrote it: attacks that need models like it are left out."


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A model that knows its table. `read` makes inputs, classes and the numbers of the rows kept of a table's columns."""

    release: Release[Any]
    document: Path
    weights: Path
    plan: Path
    name: str
    model: Any
    columns: tuple[str, ...]
    target: str
    classes: tuple[Any, ...]
    names: tuple[str, ...]  # of the inputs
    key: str | None
    read: Callable[[Any], tuple[Any, Any, Any]]
    fit: Callable[[Owners | None], Fit] | None  # the training of a model like it

    def load(self, audit: ModelAudit, say: Say) -> Loaded:
        """What is attacked, with the rows of the audit's files as this model was given rows."""
        from discreet.attack.membership import summary
        from discreet.attack.membership.model_audit import Loaded
        from discreet.models import Recipe
        from discreet.models.files import usable

        if audit.target_column not in (LABEL, self.target):
            raise InvalidValue(f"{self.name} predicts {self.target}; leave --target-column out.")
        model = self.model.to(usable(audit.device)) if hasattr(self.model, "to") else self.model
        sides = [self._side(file, audit.group_by) for file in (audit.members, audit.nonmembers)]
        pairs = [side[0] for side in sides]
        population, strangers = self._side(audit.population, ())[::3] if audit.population else (None, None)
        labels = np.concatenate([y for _, y in pairs])
        groups = {"class": np.array([str(each) for each in self.classes])[labels]}
        for name in audit.group_by:
            groups[name] = summary.grouping(name, _typed(np.concatenate([side[2][name] for side in sides])))
        owners = None if self.key is None else np.concatenate([side[3] for side in sides])
        known = None if owners is None else Owners.of([*pairs, *([population] if population else [])],
                                                       [owners, *([] if strangers is None else [strangers])],
                                                       people=len(set(sides[0][3].tolist())))  # fmt: skip
        recipe: Recipe | None = None if self.fit is None else Recipe(self.fit(known), kind="fit")
        say(NO_PLAN if recipe is None else f"Models like it are trained as {self.plan.name} says; no budget is charged.")
        return Loaded(
            model, recipe, pairs[0], pairs[1], population, groups, model, self.names,
            encoded=len(self.names) > len(self.columns),
            places=np.concatenate([side[1] for side in sides]), owners=owners, plan=str(self.plan), name=self.name,
        )  # fmt: skip

    def _side(self, path: str, by: tuple[str, ...]) -> tuple[tuple[Any, Any], Any, dict[str, Any], Any]:
        """Inputs and classes of a file, the numbers of these rows, their groups, and whose they are."""
        from discreet.columns import missing
        from discreet.models.tables import read_private

        names = dict.fromkeys([*self.columns, self.target, *([] if self.key is None else [self.key]), *by])
        table = read_private(path, list(names))
        numbers = np.arange(len(table[self.target]))
        if self.key is not None:  # as in training: a row without a key is nobody's
            numbers = np.flatnonzero([not missing(cell) for cell in table[self.key].tolist()])
            table = {name: column[numbers] for name, column in table.items()}
        inputs, labels, kept = self.read(table)
        owners = None if self.key is None else np.array([str(each) for each in table[self.key][kept].tolist()])
        return (np.asarray(inputs), np.asarray(labels)), numbers[kept], {name: table[name][kept] for name in by}, owners


def trained(weights: str) -> Trained | None:
    """The model in a folder of `discreet train` or `federate` (or its release), or a file of `discreet fit`."""
    path = Path(weights)
    folder = path.parent if path.name in (MODEL, DOCUMENT) and path.is_file() else path
    if folder.is_dir() and (folder / CONFIG).is_file():
        return _network(folder)
    if folder.is_dir() and (folder / DOCUMENT).is_file() and path in (folder, folder / DOCUMENT):
        raise InvalidValue(
            f"{str(folder)!r} has no {CONFIG}, so discreet train did not write it: give its {MODEL}, --recipe and --claim."
        )
    return _linear(path) if path.suffix == ".json" and path.is_file() else None


def _network(folder: Path) -> Trained:
    from discreet.learn import table

    found, config = table.load(folder), read_toml(str(folder / CONFIG), "discreet train wrote it.")
    known, release = found.encoding, found.release
    with (folder / MODEL).open("rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    if release.facts.get("hashes", {}).get(MODEL, digest) != digest:
        raise InvalidValue(f"{folder / MODEL} is another model than {DOCUMENT} beside it is about: its hash is another.")
    federated = "privacy" in config
    key = config["data"]["client"] if federated else config.get("unit", {}).get("key")
    names = [name if table.is_range(values) else f"{name} {value}" for name, values in known.columns.items()
             for value in ([0] if table.is_range(values) else table.values_of(values))]  # fmt: skip

    def fit(owners: Owners | None) -> Fit:
        return (_federation if federated else _run)(str(folder / CONFIG), known, owners)

    def read(columns: Any) -> tuple[Any, Any, NDArray[np.int64]]:
        inputs, labels, kept = known.read(columns)
        return inputs.numpy(), labels.numpy(), kept

    return Trained(
        release=release, document=folder / DOCUMENT, weights=folder / MODEL, plan=folder / CONFIG, name=folder.resolve().name,
        model=release.value.eval(), columns=tuple(known.columns), target=known.target, classes=tuple(known.classes),
        names=tuple(names), key=key, read=read, fit=fit,
    )  # fmt: skip


def _run(path: str, known: Any, owners: Owners | None) -> Fit:
    """A private training run as `discreet train` makes it."""
    from discreet.cli import train
    from discreet.cli.config import read_config
    from discreet.models.trainer import one_thread

    config = read_config(path, train.SECTIONS, {"train": train.NEEDED["train"]}, "train")

    def fit(X: Any, y: Any) -> Any:
        import torch

        rows = torch.from_numpy(np.ascontiguousarray(X)), torch.from_numpy(np.ascontiguousarray(y))
        with one_thread("cpu"):  # for models so small threads cost more than they bring
            return train.run_on(rows, None if owners is None else owners.find(X, y), config, known).fit(progress=False)

    return fit


def _federation(path: str, known: Any, owners: Owners | None) -> Fit:
    """A federated training as `discreet federate` makes it."""
    from discreet.cli import federate
    from discreet.federate import Clients, simulate
    from discreet.models.trainer import one_thread

    config = federate.read(path, {part: federate.NEEDED[part] for part in ("train", "privacy")})
    assert owners is not None

    def fit(X: Any, y: Any) -> Any:
        import torch

        plan = federate.plan(config, known)
        clients = Clients.by_column(torch.from_numpy(np.ascontiguousarray(X)), torch.from_numpy(y), owners.find(X, y))
        with one_thread("cpu"):
            done = simulate(plan.model, clients, plan.loss, strategy=plan.strategy, rounds=plan.rounds,
                            per_round=plan.per_round, privacy=plan.privacy, source="rows of the auditor")  # fmt: skip
        return done.model.eval()

    return fit


def _linear(path: Path) -> Trained | None:
    from discreet.learn.estimators.saved import load_fit

    try:
        found = load_fit(path)
    except InvalidDocument:
        return None
    if not found.classes:
        raise InvalidValue(f"{path} is a regression; what it predicts is no class, and is not attacked here.")

    def read(columns: Any) -> tuple[Any, Any, Any]:
        from discreet.cli.fit import labels_of

        names = [str(each) for each in found.classes]
        y, kept = labels_of(found.target, columns[found.target].tolist(), names)
        return found.features(columns)[kept], np.array([names.index(each) for each in y[kept]], np.int64), np.flatnonzero(kept)

    def fit(owners: Owners | None) -> Fit:
        return lambda X, y: scored(_fitted(found, X, y))

    def scored(coefficients: tuple[Any, Any]) -> Callable[[Any], Any]:
        return lambda X: found.logits(np.asarray(X, np.float64) @ coefficients[0].T + coefficients[1])

    known = {"epsilon", "delta"} <= set(found.release.value)
    width = found.coef.shape[1]
    return Trained(
        release=found.release, document=path, weights=path, plan=path, name=path.name,
        model=scored((found.coef, found.intercept)), columns=tuple(found.features.known), target=found.target,
        classes=found.classes, names=tuple(f"feature {place}" for place in range(width)), key=None, read=read,
        fit=fit if known else None,
    )  # fmt: skip


def _fitted(found: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """Coefficients of another fit with the same settings, on other rows."""
    from discreet.learn import LinearSVC, LogisticRegression

    value = found.release.value
    given = {"epsilon": value["epsilon"], "delta": value["delta"], "norm": found.features.norm,
             "unit": found.release.claims[0].game.unit, "classes": list(range(len(found.classes)))}  # fmt: skip
    other = LogisticRegression(**given, margin=found.margin) if found.kind == "logistic" else LinearSVC(**given)
    other.fit(X, y)
    return np.asarray(other.coef_), np.asarray(other.intercept_)


def _typed(cells: Any) -> Any:
    """Cells of a text file as numbers where all are."""
    try:
        return np.asarray(cells, np.float64)
    except (TypeError, ValueError):
        return cells
