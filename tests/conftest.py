"""Property tests take the time they need; in CI they try the same examples every time. One PostgreSQL server for all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: two processes of tests share two cores already

import numpy as np
import pytest
from hypothesis import settings

import postgres

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


_BEGAN: dict[str, Any] = {}  # how the generator of a module of tests stood before its first test


@pytest.fixture(autouse=True)
def same_numbers_in_any_order(request: pytest.FixtureRequest) -> None:
    """A module's RNG begins every test as it began the first, whichever tests this process ran before."""
    rng = getattr(request.module, "RNG", None)
    if isinstance(rng, np.random.Generator):
        rng.bit_generator.state = _BEGAN.setdefault(request.module.__name__, rng.bit_generator.state)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a real server, started when first asked for; a skip that says why where there is none."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'discreet-privacy[postgres]'")
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with postgres.server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a new, empty database."""
    with postgres.database(postgres_server) as url:
        yield url
