"""Configuration files of `discreet train` and `discreet federate`: sections checked name by name, the ledger they name, and
what of them goes out with the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.core.document import read_toml
from discreet.errors import InvalidDocument, InvalidValue

if TYPE_CHECKING:
    from discreet.learn.table import Encoding

Sections = Mapping[str, tuple[str, ...]]


def read_config(path: str, sections: Sections, needed: Sections, command: str) -> dict[str, Any]:
    """The file, checked name by name: a misspelt setting is an error, never silently a default."""
    from discreet.learn import table as table  # what is missing for the command is said before anything about its file

    config = read_toml(path, f"discreet {command} reads a TOML file, see its guide.")
    for section, settings in config.items():
        if section not in sections:
            raise InvalidDocument(f"{path!r} has a section [{section}]; known are {', '.join(sections)}.")
        if not isinstance(settings, dict):
            raise InvalidDocument(f"{section} in {path!r} must be a section [{section}].")
        check_names(path, f"[{section}]", settings, sections[section])
    for section, names in needed.items():
        missing = [name for name in names if name not in config.get(section, {})]
        if missing:
            raise InvalidDocument(f"[{section}] of {path!r} lacks {', '.join(missing)}.")
    return config


def check_names(path: str, what: str, settings: Iterable[str], names: tuple[str, ...]) -> None:
    """Refuse a setting that is none of these."""
    unknown = sorted(set(settings) - set(names))
    if unknown:
        raise InvalidDocument(f"{what} of {path!r} does not know {unknown[0]}; it takes {', '.join(names)}.")


def encoding_of(path: str, config: Mapping[str, Any], *without: str | None) -> Encoding:
    """What [data] says of the columns: in place, or in a schema file that it names, whose target is not learned from."""
    from discreet import schema
    from discreet.learn import table  # says what to install where there is no torch

    data = config["data"]
    said = data["columns"]
    if isinstance(said, str):
        place = Path(path).parent / said
        columns = schema.read(place, "[data] names it as the schema of columns.").one(Path(data["file"]).stem)
        known = table.described(columns, data["target"], *without)
    elif isinstance(said, Mapping):
        known = table.described({name: schema.column(name, facts, written=True) for name, facts in said.items()})
    else:
        raise InvalidDocument(f"columns in [data] of {path!r} is a section [data.columns] or the name of a schema file.")
    return table.Encoding(known, data["target"], data["classes"])


def readings_of(known: Encoding) -> dict[str, str]:
    """How each column was read, in words."""
    from discreet.schema import column, reading

    return {name: reading(column(name, said, written=True)) for name, said in known.columns.items()}


def ledger_of(config: Mapping[str, Any], folder: Path) -> str | None:
    """The ledger that [ledger] names, a file beside the configuration or a URL; None without that section."""
    ledger = config.get("ledger", {})
    if not ledger:
        return None
    if not {"place", "source"} <= set(ledger):
        raise InvalidDocument("[ledger] needs place (a file or a URL) and source (the name of the budget).")
    place = str(ledger["place"])
    if "://" in place:
        return place
    place = str(folder / place)
    if not Path(place).exists():  # a mistyped one would be made, empty
        raise InvalidValue(
            f"There is no ledger at {place}, which [ledger] names. Open a budget there first: discreet ledger open "
            f"{ledger['source']} --ledger {place} …; or name the one that you have."
        )
    return place


def write_released(known: Encoding, config: Mapping[str, Any], folder: Path) -> None:
    """Beside a model, what its rows are read by and how it was trained. Files, ledger and places are the owner's and stay."""
    from discreet.learn.table import CONFIG

    data = {"target": known.target, "classes": known.classes, "columns": known.columns}
    kept: dict[str, dict[str, Any]] = {
        "data": data | {name: value for name, value in config["data"].items() if name == "client"},
        **{part: dict(config.get(part, {})) for part in ("unit", "model", "train", "privacy")},
    }
    for name in ("resume", "every"):  # of the run, not of the model
        kept["train"].pop(name, None)
    text = "".join(
        f"[{part}]\n" + "".join(f"{_toml(name)} = {_toml(value)}\n" for name, value in settings.items())
        for part, settings in kept.items() if settings
    )  # fmt: skip
    (folder / CONFIG).write_text(text, encoding="utf-8")


def _toml(value: Any) -> str:
    """A value that was read from TOML, as TOML.

    >>> _toml({"age": [0, 1e-5], "sex of": ["f", True]})
    '{"age" = [0, 1e-05], "sex of" = ["f", true]}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(name)} = {_toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
