"""The audit of a finished model from files: read, attack, measure, and write a release with every row's score."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from discreet.attack.membership import summary
from discreet.attack.membership.run import MembershipResult, membership
from discreet.core import Claim, Game, NonPrivate, Release, check, record
from discreet.errors import DiscreetError, InvalidValue
from discreet.figures import place_name
from discreet.models import Recipe, Trainer, predict
from discreet.models.files import Say, read_model, read_recipe, usable
from discreet.models.frames import framed, is_frame
from discreet.models.rows import class_numbers, in_order, read_rows

__all__ = ["ModelAudit"]

GROUP = 16  # models at a time on a CPU, so that there is progress to report and something to keep
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class ModelAudit:
    """What is attacked, with what, and where the results go: each field is an option of `discreet attack model`."""

    weights: str
    members: str
    nonmembers: str
    out: str
    recipe: str | None = None
    population: str | None = None
    target_column: str = "label"
    group_by: tuple[str, ...] = ()
    attacks: tuple[str, ...] | None = None
    shadows: int = 64
    controls: bool = True
    claim: str | None = None
    delta: float = 1e-5
    confidence: float = 0.95
    seed: int = 0
    device: str = "cpu"
    processes: int = 1
    ray: str | None = None
    trust_pickle: bool = False
    keep_shadows: bool = False

    def __post_init__(self) -> None:
        check.whole("shadows", self.shadows, least=0)
        check.small_fraction("delta", self.delta)
        check.open_fraction("confidence", self.confidence)

    def run(
        self, *, say: Say = lambda _: None, progress: Progress = lambda done, count: None, command: str | None = None,
        loaded: Loaded | None = None,
    ) -> Release[dict[str, Any]]:  # fmt: skip
        """Attack; write release.json and the score of every row into the folder `out`. `say` is told what a user should know.

        Interrupted, the same audit continues after the last finished group of shadows. `loaded` is what `load` read before.
        """
        carried = _carried(self.claim)
        loaded = load(self, say) if loaded is None else loaded
        folder = writable(Path(self.out), say)
        kept = folder / "shadows" / _fingerprint(self.recipe or loaded.plan, loaded.arrays(), self.shadows, self.seed)
        result, warned = self._attacked(loaded, kept, say, progress)
        release = self._release(loaded, result, warned, carried, command)
        folder.mkdir(parents=True, exist_ok=True)
        release.save(folder / "release.json")
        y = np.concatenate([loaded.members[1], loaded.nonmembers[1]])
        _write_scores(folder, result, loaded, summary.risks(result.shadows, y) if loaded.population is None else {})
        if not self.keep_shadows:
            _clear(kept)
        return release

    def _attacked(self, loaded: Loaded, kept: Path, say: Say, progress: Progress) -> tuple[MembershipResult, list[str]]:
        """The evidence of every attack, and what there was to warn of."""
        trainer = loaded.trainer(self)
        controls = trainer is not None and self.controls

        def step(done: int, count: int) -> None:
            progress(done, count)
            if done == count and controls:
                say("Now the controls: an overfit one with a few shadows of its own, and a model that saw none of the rows.")

        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always", UserWarning)
            warnings.filterwarnings("ignore", "There is a performance drop")  # of torch's, about its own layers
            try:
                result = membership(
                    loaded.target, trainer, loaded.members, loaded.nonmembers, attacks=self._attacks(loaded.recipe),
                    shadows=self.shadows, seed=self.seed, folder=kept, population=loaded.population,
                    controls=controls, progress=step,
                )  # fmt: skip
            except KeyboardInterrupt:
                done = _models_in(kept)
                say(f"Stopped: {done} of {self.shadows} shadows are kept in {kept}; the same command goes on from there.")
                raise
        warned = list(dict.fromkeys(str(each.message) for each in raised if issubclass(each.category, UserWarning)))
        for each in warned:
            say(f"Warning: {each}")
        return result, warned

    def _attacks(self, recipe: Recipe | None) -> Any:
        """The attacks asked for; the default is what the access allows of the usual three."""
        if self.attacks is not None:
            return "all" if self.attacks == ("all",) else self.attacks
        if recipe is None:
            return ("loss", "label")
        return ("bayes_lira", "lira", "loss") if self.population is None else ("lira_offline", "rmia", "loss")

    def _release(
        self, loaded: Loaded, result: MembershipResult, warned: list[str], carried: Release[Any] | None, command: str | None
    ) -> Release[dict[str, Any]]:
        first = next(iter(result.values()))
        exposed = [{**each, "index": int(loaded.numbers()[each["index"]])} for each in summary.most_at_risk(first)]
        controls = summary.of_controls(result.controls, self.confidence) if result.controls else []
        groups = summary.by_group(first, loaded.groups, self.confidence)
        sides = loaded.target, loaded.members, loaded.nonmembers
        name = loaded.name or place_name(self.weights)
        value = {
            "model": name, "members": len(loaded.members[1]), "nonmembers": len(loaded.nonmembers[1]),
            "shadows": self.shadows if result.shadows is not None else 0, "confidence": self.confidence, "delta": self.delta,
            "warnings": warned, "attacks": [summary.reached(each, self.delta, self.confidence) for each in result.values()],
            "high_loss_screen": summary.screened(*sides, self.confidence),
            "most_exposed_members": [each["index"] for each in exposed], "controls": controls, "groups": groups,
            **({"left_out_in_both": list(loaded.shared)} if any(loaded.shared) else {}),
        }  # fmt: skip
        files = {each: getattr(self, each) for each in ("weights", "recipe", "members", "nonmembers", "population")}
        facts = {
            "title": f"Membership attacks on {name}", "exposed": exposed, "controls": controls, "groups": groups,
            "quality": summary.accuracies(*sides), "attack_settings": summary.settings(result, loaded.shared),
            **summary.provenance(files, command, shadows=self.seed),
        }  # fmt: skip
        evidence = tuple(result.values())
        if carried is None:
            source, claims = place_name(self.members), _nothing_claimed(result)
            return Release(value=value, source=source, claims=claims, evidence=evidence, facts=facts)
        earlier = tuple(each for each in carried.evidence if each.attack not in result)
        # What is attacked stays what it is: its source, the entry that paid for it, and what it says of itself.
        return replace(carried, value=value, evidence=(*earlier, *evidence), facts=_together(carried.facts, facts))


@dataclass(frozen=True)
class Loaded:
    """The model, its recipe, rows (pairs of inputs and labels), and the groups of members and non-members by name.

    `model` is what was read, before it was made a function of numbered classes; `names` are those of the columns, `encoded`
    where one column of the table is several of them. `places` are the numbers of the rows in their files, members first, where
    some were left out; `owners` say whose row each is; `shared` is how many members and non-members were in both files. `plan`
    is the file that shadows depend on where that is no recipe.
    """

    target: Any
    recipe: Recipe | None
    members: Any
    nonmembers: Any
    population: Any
    groups: dict[str, Any]
    model: Any = None
    names: tuple[str, ...] = ()
    encoded: bool = False
    places: Any = None
    owners: Any = None
    shared: tuple[int, int] = (0, 0)
    plan: str | None = None
    name: str | None = None

    def numbers(self) -> Any:
        """The number of each row in its file."""
        if self.places is not None:
            return self.places
        return np.concatenate([np.arange(len(side[1])) for side in (self.members, self.nonmembers)])

    def arrays(self) -> tuple[Any, ...]:
        return (*self.members, *self.nonmembers, *(self.population or ()))

    def trainer(self, audit: ModelAudit) -> Trainer | None:
        if self.recipe is None:
            return None
        return Trainer(self.recipe, audit.device, GROUP if audit.device == "cpu" else None, audit.processes, audit.ray)


def load(audit: ModelAudit, say: Say) -> Loaded:
    """The model, the recipe and the rows that an audit names."""
    recipe = read_recipe(audit.recipe, say) if audit.recipe else None
    target = read_model(audit.weights, recipe, trust_pickle=audit.trust_pickle, device=usable(audit.device))
    frames = hasattr(target, "feature_names_in_") and (recipe is None or recipe.kind != "torch")
    model = target
    pairs, groups, columns = _rows(audit, target, frames)
    target, recipe, (members, nonmembers, population) = _framed(target, recipe, pairs)
    if predict.names_classes(target):  # labels are numbered by now, and its own names must not number them again
        target = predict.adapt(target).scores
    return Loaded(target, recipe, members, nonmembers, population, groups, model, columns)


def _framed(target: Any, recipe: Recipe | None, pairs: list[Any]) -> tuple[Any, Recipe | None, list[Any]]:
    """Where any rows have text or empty cells: all rows as objects, and a model and a recipe that are given them as frames."""
    names = list(getattr(target, "feature_names_in_", ()))
    if any(pair is not None and is_frame(pair[0]) for pair in pairs):
        from pandas import DataFrame  # type: ignore[import-untyped, unused-ignore]

        pairs = [pair if pair is None or is_frame(pair[0]) else (DataFrame(pair[0], columns=names), pair[1]) for pair in pairs]
    return framed(target, recipe, *pairs)


def _rows(audit: ModelAudit, model: Any, frames: bool) -> tuple[list[Any], dict[str, Any], tuple[str, ...]]:
    """Members, non-members and other rows, their columns in one order; the groups of the first two; the columns' names."""
    pairs: list[Any] = []
    fitted = getattr(model, "feature_names_in_", None)
    wanted = None if fitted is None else [str(each) for each in fitted]
    whose = "members do not" if wanted is None else "the model was not fitted on"
    labels, columns = [], []
    for what, file in (("members", audit.members), ("nonmembers", audit.nonmembers), ("population", audit.population)):
        if file is None:
            pairs.append(None)
            continue
        fitted = wanted if frames else None
        X, y, names, more = read_rows(file, audit.target_column, audit.group_by, needed=what != "population", fitted=fitted)
        wanted = names if wanted is None and what == "members" else wanted
        pairs.append((in_order(names, X, wanted, what, whose), class_numbers(y, model, what)))
        labels.append(np.asarray(y))
        columns.append(more)
    groups = {"class": np.array([str(each) for each in np.concatenate(labels[:2]).tolist()])}
    for name in audit.group_by:
        groups[name] = summary.grouping(name, np.concatenate([columns[0][name], columns[1][name]]))
    return pairs, groups, tuple(wanted or ())


def writable(folder: Path, say: Say) -> Path:
    """A folder that can be written, before hours are spent; an earlier audit in it is replaced, another release is not."""
    if folder.exists() and not folder.is_dir():
        raise InvalidValue(f"--output names a folder; {str(folder)!r} is a file. Give another name.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidValue(
            f"The folder {str(folder)!r} of --output cannot be written: {error.strerror}. Give another."
        ) from None
    there = folder / "release.json"
    if there.exists():
        try:
            value = Release.load(there).value
        except DiscreetError:
            value = None
        if not isinstance(value, dict) or "attacks" not in value:
            raise InvalidValue(f"{str(there)!r} is not an audit of this kind, and would be lost. Give --output another folder.")
        say(f"{folder} holds an audit of {value.get('model')}, which this one replaces once it is finished.")
    return folder


def _clear(kept: Path) -> None:
    """Remove the shadows of this audit; what else lies there is not ours."""
    shutil.rmtree(kept, ignore_errors=True)
    with suppress(OSError):  # it holds shadows of another audit, or something of the user's
        kept.parent.rmdir()


def _fingerprint(recipe: str | None, arrays: tuple[Any, ...], shadows: int, seed: int) -> str:
    """Names what the shadows depend on, so that others' are never taken for them."""
    digest = hashlib.sha256(f"{shadows} {seed} ".encode())
    for file in _sources(recipe) if recipe else ():
        digest.update(file.read_bytes())
    for part in arrays:
        content = repr(part.tolist()).encode() if part.dtype.kind == "O" else np.ascontiguousarray(part).tobytes()
        digest.update(f"{part.shape} {part.dtype}".encode() + content)
    return digest.hexdigest()[:16]


def _sources(recipe: str) -> list[Path]:
    """The recipe, and what it imported of its neighbours: the network may be written there."""
    here = Path(recipe).resolve()
    loaded = {Path(file).resolve() for each in list(sys.modules.values()) if (file := getattr(each, "__file__", None))}
    near = [file for file in loaded if file.is_relative_to(here.parent) and "site-packages" not in file.parts]
    return [here, *sorted(file for file in near if file != here and file.suffix == ".py" and file.is_file())]


def _models_in(folder: Path) -> int:
    """How many shadows are kept, of this run and of earlier ones."""
    places = [each.stem.split("-")[1:] for each in folder.glob("models-*-*.npz")]
    return sum(int(stop) - int(start) for start, stop in places)


def _carried(path: str | None) -> Release[Any] | None:
    """The release that is attacked, with its claims, its ledger entry and its facts."""
    if path is None:
        return None
    release: Release[Any] = Release.load(path)
    if not release.claims:
        raise InvalidValue(f"{path!r} has no claims to carry over; leave --claim out, and nothing is claimed.")
    return release


def _together(known: Any, found: dict[str, Any]) -> dict[str, Any]:
    """The facts of the release, with what the attack measured; seeds and hashes of both."""
    measured = {name: found[name] for name in ("exposed", "controls", "groups", "attack_settings")}
    both = {name: {**known.get(name, {}), **found[name]} for name in ("seeds", "hashes", "quality")}
    return {**found, **known, **measured, **both}


def _nothing_claimed(result: MembershipResult) -> tuple[Claim, ...]:
    view = {name for each in result.values() for name in each.game.view}
    return (Claim(game=Game(record(), view), event=NonPrivate()),)


def _write_scores(folder: Path, result: MembershipResult, loaded: Loaded, risks: dict[str, Any]) -> None:
    """Every row's score by every attack, and its risk over all shadows: parquet, or CSV where nothing here writes parquet."""
    first = next(iter(result.values()))
    columns: dict[str, Any] = {
        "inside": first.inside,
        "row": loaded.numbers(),
        **{name: each.score for name, each in result.items()},
        **risks,
    }
    try:
        import pyarrow
        from pyarrow.parquet import write_table
    except ImportError:
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*(each.tolist() for each in columns.values())))]
        (folder / "scores.csv").write_text("\n".join(lines) + "\n")
        return
    write_table(pyarrow.table(columns), folder / "scores.parquet")
