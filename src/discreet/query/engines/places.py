"""Which engine reads a location: a file, a frame, a URL or a session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from discreet.errors import MissingExtra
from discreet.query.engines import Engine
from discreet.query.engines.folders import table_name
from discreet.query.engines.frames import Declared


def open_engine(location: Any, declared: Mapping[str, Declared]) -> Engine:
    """The engine for a location as `discreet.connect` takes it; `declared` has the columns of text files, by table."""
    for needed in ("pyarrow", "sqlglot"):
        if find_spec(needed) is None:  # loaded where they are used: the engine's memory comes first
            raise MissingExtra(needed, "sql", "Private SQL") from None
    if isinstance(location, str) and location.startswith(("postgresql://", "postgres://")):
        from discreet.query.engines.postgres import PostgresEngine

        return PostgresEngine(location)
    if isinstance(location, str) and location.startswith(("spark://", "k8s://", "local[")):
        from discreet.query.engines.spark import SparkEngine, cluster

        return SparkEngine(cluster(location))
    frames = list(location.values()) if isinstance(location, Mapping) else [location]
    if frames and all(type(it).__module__.startswith("pyspark.") for it in frames):
        from discreet.query.engines.spark import SparkEngine

        return SparkEngine(location)
    from discreet.query.engines.duckdb import DATABASES, DuckEngine

    if isinstance(location, (str, os.PathLike)):
        path = Path(location)
        if path.suffix.lower() in DATABASES:
            return DuckEngine(path)
        return DuckEngine({table_name(location): location}, declared)
    if isinstance(location, Mapping):
        return DuckEngine(location, declared)
    return DuckEngine({"data": location})
