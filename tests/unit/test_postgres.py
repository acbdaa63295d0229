"""The server that other tests stand on: real, durable, alone, and gone afterwards."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

import postgres


def test_the_server_is_durable_and_reached_by_nobody_else(postgres_server: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_server) as link:
        told = {
            name: link.execute(f"SHOW {name}").fetchone()[0] for name in ("fsync", "synchronous_commit", "listen_addresses")
        }
    assert told == {"fsync": "on", "synchronous_commit": "on", "listen_addresses": ""}


def test_a_database_is_empty_and_of_its_own(postgres_server: str, postgres_url: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_url) as link:
        link.execute("CREATE TABLE mine (x int)")
    with postgres.database(postgres_server) as other, psycopg.connect(other) as link:
        assert link.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'mine'").fetchone() == (0,)


def test_a_server_leaves_nothing_behind() -> None:
    psycopg = pytest.importorskip("psycopg")
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with postgres.server() as url:
        folder = Path(parse_qs(urlsplit(url).query)["host"][0])
        assert (folder / ".s.PGSQL.5432").is_socket()
    assert not folder.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
