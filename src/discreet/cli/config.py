"""Configuration files of `discreet train` and `discreet federate`: sections checked name by name, and the ledger they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.core.document import read_toml
from discreet.errors import InvalidDocument, InvalidValue

if TYPE_CHECKING:
    from discreet.learn.table import Encoding

Sections = Mapping[str, tuple[str, ...]]


def read_config(path: str, sections: Sections, needed: Sections, command: str) -> dict[str, Any]:
    """The file, checked name by name: a misspelt setting is an error, never silently a default."""
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
    from discreet.learn.table import Encoding, described

    data = config["data"]
    said = data["columns"]
    if isinstance(said, str):
        place = Path(path).parent / said
        columns = schema.read(place, "[data] names it as the schema of columns.").one(Path(data["file"]).stem)
        known = described(columns, data["target"], *without)
    elif isinstance(said, Mapping):
        known = described({name: schema.column(name, facts, written=True) for name, facts in said.items()})
    else:
        raise InvalidDocument(f"columns in [data] of {path!r} is a section [data.columns] or the name of a schema file.")
    return Encoding(known, data["target"], data["classes"])


def keep_config(path: str, config: Mapping[str, Any], folder: Path) -> None:
    """What was asked, beside the model: `discreet predict` reads rows by it."""
    from discreet.learn.table import COLUMNS, CONFIG

    (folder / CONFIG).write_text(Path(path).read_text("utf-8"), "utf-8")
    said = config["data"]["columns"]
    if isinstance(said, str):
        (folder / COLUMNS).write_text((Path(path).parent / said).read_text("utf-8"), "utf-8")


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
