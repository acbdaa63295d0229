"""Passwords are hashed cheaply in these tests, but for one."""

from __future__ import annotations

import pytest

from discreet.serve import users


@pytest.fixture(autouse=True, scope="session")
def cheap_hashing() -> None:
    users.HASHING.update(time_cost=1, memory_cost=64)
