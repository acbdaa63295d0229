"""`discreet attack model --all`: every attack that fits the model and the access, in one release and one page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.cli.output import command_line, talk
from discreet.errors import InvalidValue
from discreet.figures import place_name

if TYPE_CHECKING:
    from discreet.attack.everything import Everything
    from discreet.attack.membership.model_audit import Loaded, ModelAudit
    from discreet.core import Release

LEAST_SHADOWS = 100  # of property inference


def membership_within(access: str, loaded: Loaded) -> tuple[str, ...]:
    """The membership attacks that see no more than `access` gives."""
    from discreet.attack.everything import ACCESS
    from discreet.attack.membership.attacks import ATTACKS

    if access != "labels":
        return ("all",)
    numeric = loaded.members[0].dtype.kind != "O"
    return tuple(each.name for each in ATTACKS if each.view <= ACCESS[access] and (numeric or not each.needs.numeric))


def narrowed(loaded: Loaded, access: str) -> Loaded:
    """The model as the attacker has it: with less than its weights, a function that answers."""
    if access == "weights":
        return loaded
    from discreet.models import predict

    return replace(loaded, target=predict.adapt(loaded.target).scores)


def all_attacks(audit: ModelAudit, loaded: Loaded, release: Release[Any], access: str, shape: str | None) -> Release[Any]:
    """The release of a membership audit with what every other attack found; the page goes beside it."""
    from discreet.attack.everything import Case, everything

    case = Case(
        model=loaded.target, inner=loaded.model, members=loaded.members, nonmembers=loaded.nonmembers, access=access,
        recipe=loaded.recipe, shape=None if shape is None else _shape(shape), names=loaded.names, encoded=loaded.encoded,
        properties=_properties(loaded, audit.group_by), shadows=max(LEAST_SHADOWS, audit.shadows),
        confidence=audit.confidence, seed=audit.seed,
    )  # fmt: skip
    return joined(release, everything(case, say=talk), Path(audit.out))


def joined(release: Release[Any], found: Everything, folder: Path) -> Release[Any]:
    """Facts and evidence of both, saved with the page."""
    from discreet.report import html
    from discreet.report.coverage import not_tried

    facts = {**release.facts, **found.facts, "tried": [each.attack for each in release.evidence] + list(found.tried)}
    both = replace(release, evidence=(*release.evidence, *found.evidence), facts=facts)
    both = replace(both, facts={**both.facts, "not_tried": [*found.left_out, *not_tried(both)]})
    both.save(folder / "release.json")
    (folder / "report.html").write_text(html(both), encoding="utf-8")
    for reason in found.left_out:
        talk(f"Left out. {reason}")
    talk(f"One page with everything: {folder / 'report.html'}. It is for the owner of the data alone.")
    return both


def language_model(folder: str, members: str, nonmembers: str, out: str, seed: int) -> Release[Any]:
    """All attacks on a language model in a folder; texts are JSON lines."""
    from discreet.attack.everything.text import everything_of_text
    from discreet.attack.membership.model_audit import writable
    from discreet.cli.extraction import read_texts
    from discreet.core import Release
    from discreet.core.facts import made

    texts = [read_texts(path, "text") for path in (members, nonmembers)]
    place = writable(Path(out), talk)
    found = everything_of_text(folder, *texts, seed=seed, say=talk)
    name = Path(folder).resolve().name
    value = {"model": name, "members": len(texts[0]), "nonmembers": len(texts[1]), "attacks": list(found.tried)}
    facts = {"title": f"Attacks on {name}", "made": made(command_line())}
    return joined(Release(value=value, source=place_name(members), claims=(), facts=facts), found, place)


def is_language_model(weights: str) -> bool:
    return (Path(weights) / "config.json").is_file()


def _properties(loaded: Loaded, by: tuple[str, ...]) -> dict[str, Any]:
    """Groups that a column with two of them makes of the non-members: the larger one, by name."""
    import numpy as np

    found = {}
    for column in by:
        groups = np.asarray(loaded.groups[column])
        names = np.unique(groups)
        if len(names) == 2:
            found[f"{column} {names[1]}"] = groups[len(loaded.members[1]) :] == names[1]
    return found


def _shape(text: str) -> tuple[int, int, int]:
    try:
        height, width, channels = (int(part) for part in text.split(","))
    except ValueError:
        raise InvalidValue(f"--shape must be height, width and channels, such as 28,23,1; got {text!r}.") from None
    return height, width, channels
