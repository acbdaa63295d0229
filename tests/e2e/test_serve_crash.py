"""kill -9 while questions are answered: what was spent stays spent, what was answered stays answered, nothing comes unpaid."""

from __future__ import annotations

import http.client
import random
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the web app is not installed: pip install 'discreet-privacy[serve]'")
pytest.importorskip("argon2", reason="the web app is not installed: pip install 'discreet-privacy[serve]'")

import serving
from discreet import Ledger
from discreet.ledger.amount import Amount

CRASHES, ANALYSTS = 6, 6
EPSILON = 0.02
Answer = tuple[str, str, Any]  # whose token, the question, what was answered


def crowd(folder: Path, tokens: dict[str, str], crash: int, after: float) -> tuple[list[Answer], list[str]]:
    """Analysts ask, each a question of its own after another, until the server is killed: what they got, what went wrong."""
    process, address = serving.start(folder)
    got: list[Answer] = []
    wrong: list[str] = []
    enough = threading.Event()

    def work(name: str, token: str) -> None:
        with serving.Analyst(address, token) as one:
            for number in range(10_000):
                query = f"SELECT ward, COUNT(*) AS n_{crash}_{number} FROM visits WHERE age > {int(name[1:])} GROUP BY ward"
                try:
                    status, found = one.ask(query, EPSILON)
                except (OSError, http.client.HTTPException, ValueError):
                    return  # the server is gone
                if status != 200:
                    wrong.append(f"{status} {found}")
                    return
                got.append((token, query, found))
                enough.set()

    threads = [threading.Thread(target=work, args=pair) for pair in tokens.items()]
    for thread in threads:
        thread.start()
    assert enough.wait(serving.PATIENCE), "nobody was answered"
    threading.Event().wait(after)
    process.kill()
    process.wait()
    for thread in threads:
        thread.join(serving.PATIENCE)
    return got, wrong


def charges(folder: Path) -> dict[str, Any]:
    with Ledger(folder / "ledger.db") as ledger:
        ledger.verify()
        for name in (*ledger.accounts(serving.SOURCE), None):
            assert ledger.balance(serving.SOURCE, name).holds(Amount(0, 0, 0)), "never more than the budget"
        return {entry.id: entry for entry in ledger.history(serving.SOURCE) if entry.kind == "reserve"}


def test_a_killed_server_loses_nothing_and_gives_nothing_away(tmp_path: Path) -> None:
    draw = random.Random(7)
    tokens = serving.prepare(tmp_path, ANALYSTS, epsilon=30.0, rows=2_000)
    answers: list[Answer] = []
    for crash in range(CRASHES):
        got, wrong = crowd(tmp_path, tokens, crash, draw.uniform(0.0, 0.5))
        assert wrong == []
        answers += got
        paid = charges(tmp_path)
        entries = [found["entry"] for _, _, found in answers]
        assert len(set(entries)) == len(entries), "every answer has a charge of its own"
        assert set(entries) <= set(paid), "no answer without a durable charge"
        lost = len(paid) - len(entries)
        assert 0 <= lost <= ANALYSTS * (crash + 1), "each crash cuts off at most one question of each"
    before = charges(tmp_path)
    with serving.running(tmp_path) as (_, address):
        for token, query, found in answers:
            with serving.Analyst(address, token) as one:
                status, again = one.ask(query, EPSILON)
                assert status == 200
                assert again["entry"] == found["entry"], "what was answered is answered again from the ledger, free"
                assert again["columns"] == found["columns"]
                assert one.call(f"/releases/{found['release']}")[0] == 200, "and its release is still there"
    assert charges(tmp_path) == before
    log = (tmp_path / "server.log").read_text()
    assert "Traceback" not in log
