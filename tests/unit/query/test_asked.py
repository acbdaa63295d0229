"""Questions of the kinds that analysts of other systems ask are answered; what cannot be is refused with the rewrite.

That answers are right is in test_after.py and test_sql.py, and that neighbours stay alike in tests/adversary/sql.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benches import bench

ASKED = bench("sql_asked")


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, int]]:
    return ASKED.ours()  # type: ignore[no-any-return]


def test_every_question_is_answered_or_told_how(found: dict[str, dict[str, int]]) -> None:
    assert {kind: counts["answered"] for kind, counts in found.items()} == {
        kind: counts["asked"] for kind, counts in found.items()
    }
    assert sum(counts["asked"] for counts in found.values()) >= 240


def test_a_question_that_is_refused_counts_as_refused() -> None:
    with ASKED.discreet.connect(ASKED.tables(), unit=ASKED.discreet.record(), schema=ASKED.SCHEMA) as db:
        assert ASKED.answered(db, ASKED.Question("SELECT COUNT(*) FROM people")) == ""
        assert "needs bounds" in ASKED.answered(db, ASKED.Question("SELECT SUM(sex) FROM people"))


def test_their_queries_are_read_from_a_checkout(tmp_path: Path) -> None:
    folder = tmp_path / "sql/tests/query/queries"
    files = {
        "run/run.sql": "SELECT COUNT(*) AS n\nFROM Telemetry.Crashes;\n-- SELECT 1;\nSELECT a FROM b;",
        "run/run_fail.sql": "SELECT SUM(x) FROM no;",
        "parse/p.sql": "SELECT SUM(x) FROM no;",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (tmp_path / "sql/tests/test_a.py").write_text(
        'q = "SELECT COUNT(*) AS n FROM Telemetry.Crashes"\nr = f"SELECT SUM(age) FROM PUMS.{name}"\n"SELECT the top 3"'
    )
    assert [text for _, text in ASKED.theirs(tmp_path)] == [
        "SELECT COUNT(*) AS n FROM Telemetry.Crashes", "SELECT SUM(age) FROM PUMS.PUMS"
    ]  # fmt: skip
    counts = ASKED.smartnoise(tmp_path)
    assert (counts["asked"], counts["answered"]) == (2, 2)
