"""The attacks that `discreet serve` runs in its worker processes: what the commands of `discreet attack` call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from discreet.cli.output import command_line

Progress = Callable[[int, int], None]


def attack_model(options: Mapping[str, Any], progress: Progress) -> None:
    """Attack the model in `weights`; options are those of `discreet attack model`."""
    from discreet.attack.membership.model_audit import ModelAudit
    from discreet.cli.membership import attack_names

    names = ("members", "nonmembers", "recipe", "target_column", "claim", "out")
    given: dict[str, Any] = {name: options[name] for name in names if name in options}
    given |= {name: int(options[name]) for name in ("shadows", "seed") if name in options}
    audit = ModelAudit(
        weights=options["weights"], **given, attacks=attack_names(options.get("attacks")),
        controls=options.get("controls") is not False, trust_pickle=options.get("trust_pickle") is True,
    )  # fmt: skip
    audit.run(progress=progress, command=command_line(_repeated(options, names)))


def attack_table(options: Mapping[str, Any], progress: Progress) -> None:
    """Attack the table in `file`; options are those of `discreet attack table`."""
    from discreet.cli.attack import audit_table

    names = ("sensitive", "population", "id", "out")
    fraction = None if "fraction" not in options else float(options["fraction"])
    audit_table(options["file"], options.get("quasi", ""), fraction, *(options.get(name) for name in names))


ATTACKS = {"model": attack_model, "table": attack_table}


def _repeated(options: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    """The arguments of the command that does the same, for the release."""
    flags = [*(["--trust-pickle"] if options.get("trust_pickle") is True else []),
             *(["--no-controls"] if options.get("controls") is False else [])]  # fmt: skip
    given = [name for name in (*names, "attacks", "shadows", "seed") if name in options]
    spelt = {"out": "output"}
    words = [word for name in given for word in (f"--{spelt.get(name, name).replace('_', '-')}", str(options[name]))]
    return ["attack", "model", options["weights"], *words, *flags]
