"""One ledger file under two names, or exchanged while it is open: two logs and two locks would spend a budget twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from discreet import Ledger, record
from discreet.core import Claim, Game, Pure
from discreet.errors import InvalidValue, LedgerError
from discreet.ledger import place, sqlite

WHOLE = Claim(game=Game(record(), {"answers"}), event=Pure(1.0))
HALF = Claim(game=Game(record(), {"answers"}), event=Pure(0.5))
TERMS: dict[str, Any] = {"unit": record(), "epsilon": 1.0, "delta": 1e-6}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="names of files are those of POSIX systems")


@pytest.fixture(params=["in groups", "one by one"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "one by one":
        monkeypatch.setattr(sqlite, "fcntl", None)
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.open("people", **TERMS)
    return path


def test_a_file_with_two_names_is_refused_under_both_and_used_again_under_one(path: Path) -> None:
    other = path.with_name("other.db")
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(LedgerError, match=r"has 2 names \(hard links\).*remove the other names"):
            Ledger(name)
    assert not list(path.parent.glob("other.db-*"))
    other.unlink()
    with Ledger(path) as ledger:
        ledger.reserve("people", WHOLE)


def test_a_name_given_after_opening_spends_nothing_twice(path: Path) -> None:
    with Ledger(path) as ledger:
        charge = ledger.reserve("people", HALF)
        os.link(path, path.with_name("other.db"))
        with pytest.raises(LedgerError, match="has 2 names"):
            Ledger(path.with_name("other.db"))
        for use in (
            lambda: ledger.reserve("people", HALF), charge.started, lambda: charge.cancel("withdrawn"), ledger.verify,
            lambda: ledger.open("more", **TERMS), lambda: ledger.share("people", "ann", 0.5, by="owner"),
        ):  # fmt: skip
            with pytest.raises(LedgerError, match="has 2 names"):
                use()
        path.with_name("other.db").unlink()
        with charge:
            ledger.reserve("people", HALF)
        ledger.verify()
        assert ledger.left("people") == 0


def test_another_process_is_refused_under_another_name(path: Path) -> None:
    """As found: one process had charged all of it, and the other was told that all of it was left."""
    with Ledger(path) as ledger:
        os.link(path, path.with_name("other.db"))
        code = "import sys; from discreet import Ledger; Ledger(sys.argv[1]).left('people')"
        ran = subprocess.run([sys.executable, "-c", code, path.with_name("other.db")], capture_output=True, text=True)
        assert ran.returncode == 1
        assert "LedgerError" in ran.stderr
        assert ledger.left("people") == 1.0


def test_a_symbolic_link_is_no_second_name(path: Path) -> None:
    path.with_name("link.db").symlink_to(path)
    with Ledger(path.with_name("link.db")) as one, Ledger(path) as two:
        one.reserve("people", HALF)
        assert two.left("people") == 0.5


@pytest.mark.parametrize("name", ["ledger.db", "our ledger\\2026.db"])
def test_a_file_that_is_mounted_is_refused(name: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = path.rename(path.with_name(name))
    told = str(where).replace("\\", "\\134").replace(" ", "\\040")
    table = tmp_path / "mountinfo"
    table.write_text(f"36 35 0:22 / / rw - ext4 /dev/sda rw\n98 36 0:22 /srv/l.db {told} rw,noatime - ext4 /dev/sda rw\n")
    monkeypatch.setattr(place, "MOUNTS", str(table))
    with pytest.raises(LedgerError, match=r"is mounted by itself.*Mount the folder"):
        Ledger(where)
    with Ledger(tmp_path / "new.db") as ledger:  # beside it
        ledger.open("people", **TERMS)
    monkeypatch.setattr(place, "MOUNTS", str(tmp_path / "none"))
    with Ledger(where) as ledger:  # where nothing tells
        ledger.reserve("people", HALF)


_MOUNTED = """
import sys
from discreet import Ledger
from discreet.errors import LedgerError
try:
    Ledger(sys.argv[1])
except LedgerError as error:
    print(error)
"""


def test_a_bind_mount_of_the_file_is_refused(path: Path) -> None:
    """As a container sees it: docker -v ledger.db:/data/ledger.db."""
    inside = path.parent / "inside.db"
    inside.touch()
    script = 'mount --bind "$1" "$2" && "$3" -c "$4" "$2"'
    words = ["unshare", "-m", "sh", "-c", script, "sh", str(path), str(inside), sys.executable, _MOUNTED]
    try:
        ran = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if ran.returncode:
        pytest.skip(f"nothing may be mounted here: {ran.stderr.strip()[:80]}")
    assert "is mounted by itself" in ran.stdout


@pytest.mark.parametrize("moved", ["removed", "replaced"])
def test_a_ledger_that_is_moved_away_while_it_is_open_takes_no_charge(path: Path, moved: str) -> None:
    shutil.copy(path, path.with_name("backup.db"))
    with Ledger(path) as ledger:
        ledger.reserve("people", HALF)
        if moved == "removed":
            path.unlink()
        else:
            path.with_name("backup.db").replace(path)
        for use in (lambda: ledger.reserve("people", HALF), ledger.verify):
            with pytest.raises(LedgerError, match="moved or replaced while it was open"):
                use()


def test_a_backup_beside_the_log_of_another_copy_gives_no_second_budget(path: Path, tmp_path: Path) -> None:
    """As found: the source was in the table and not in its index, so it was opened, and charged, again."""
    path = tmp_path / "found.db"
    early = Ledger(path)
    early.open("people", **TERMS)
    shutil.copy(path, tmp_path / "backup.db")  # from before the log was written to the file
    early.reserve("people", HALF)
    early.close()
    with Ledger(path) as ledger:
        shutil.copy(tmp_path / "backup.db", tmp_path / "moved.db")
        ledger.reserve("people", Claim(game=WHOLE.game, event=Pure(0.4)))
        (tmp_path / "moved.db").replace(path)
        with pytest.raises(LedgerError, match="moved or replaced"):
            ledger.reserve("people", Claim(game=WHOLE.game, event=Pure(0.1)))
        with Ledger(path) as again:
            for use in (
                lambda: again.open("people", **TERMS), lambda: again.reserve("people", WHOLE), lambda: again.left("people"),
            ):  # fmt: skip
                with pytest.raises(LedgerError, match="tables do not find it"):
                    use()


def test_a_source_that_was_opened_and_is_in_no_table_is_not_opened_again(path: Path) -> None:
    with Ledger(path) as ledger:
        link = ledger._store._link  # type: ignore[attr-defined]
        ledger.open("sales", by_period=True, **TERMS)
        ledger.renew("sales", period="2026-11", by="office", reason="new rows")
        link.execute("DELETE FROM account WHERE source IN ('people', 'sales@2026-11')")
        link.execute("DELETE FROM source WHERE name IN ('people', 'sales@2026-11')")
        for use in (
            lambda: ledger.open("people", **TERMS), lambda: ledger.reserve("people", WHOLE),
            lambda: ledger.renew("sales", period="2026-11", by="office", reason="new rows"),
        ):  # fmt: skip
            with pytest.raises(LedgerError, match=r"Entry \d opened the source .*tables do not find it"):
                use()
        with pytest.raises(InvalidValue, match="has no source 'peoples'"):
            ledger.reserve("peoples", WHOLE)
