"""Attacks: a bounded queue of processes that are followed, cancelled and never believed more than needed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discreet.errors import InvalidValue
from discreet.serve import jobs as module
from discreet.serve.jobs import Job, Jobs, options_of
from discreet.serve.pages.attacks import NAMES
from discreet.serve.settings import Target
from discreet.serve.store import ReleaseStore
from jobtasks import pretend
from webapp import Served, model, serving

TARGET = Target("readmission", "model", "model", {"weights": "w", "members": "m", "nonmembers": "n", "recipe": "r.py"})
CHOSEN = {"attacks": "loss", "shadows": 4, "seed": 0}


@pytest.fixture
def store(tmp_path: Path) -> ReleaseStore:
    made = ReleaseStore(tmp_path)
    made.save("model", model())
    return made


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@pytest.fixture
def queue(store: ReleaseStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """A queue whose attack is a small function: it reports its progress and waits, fails, or writes a release."""
    monkeypatch.setattr(module, "options_of", lambda target, chosen: (chosen, "made up"))
    made = Jobs(store, {"model": pretend}, waiting=2)
    yield made
    made.close()


def test_an_attack_becomes_a_release(queue: Jobs, store: ReleaseStore) -> None:
    job = queue.add(TARGET, "ada", {"how": "done"})
    until(lambda: job.over)
    assert (job.state, job.release, job.fault) == ("done", "attack-1-readmission", "")
    found = store.load("attack-1-readmission")
    assert found.facts["title"] == "Readmissions, attacked"
    assert not (store.folder / ".work" / "1").exists()
    assert "private" not in str(job.to_json())
    assert queue.add(TARGET, "ada", {"how": "done"}).number == 2
    (store.folder / ".attacks.json").unlink()
    assert Jobs(store)._last() >= 1  # a later server does not use the number again, even if it knows of no attack


def test_an_attack_that_fails_says_why(queue: Jobs, store: ReleaseStore) -> None:
    job = queue.add(TARGET, "ada", {"how": "fail"})
    until(lambda: job.over)
    assert (job.state, job.fault, job.release) == ("failed", "It cannot be done.", None)
    assert store.names() == ["model"]


def test_a_later_server_lists_the_attacks_of_an_earlier_one(queue: Jobs, store: ReleaseStore) -> None:
    ended = [queue.add(TARGET, "ada", {"how": how}) for how in ("done", "fail")]
    until(lambda: all(job.over for job in ended))
    running, waiting = (queue.add(TARGET, "bo", {"how": "wait"}) for _ in range(2))
    until(lambda: running.done == 3)
    later = Jobs(store, {"model": pretend})
    told = [(job.number, job.who, job.state, job.fault, job.release) for job in later.all()]
    stopped = "The server was stopped before it ended."
    assert told == [
        (waiting.number, "bo", "failed", stopped, None),
        (running.number, "bo", "failed", stopped, None),
        (2, "ada", "failed", "It cannot be done.", None),
        (1, "ada", "done", "", "attack-1-readmission"),
    ]
    assert later.find("1").to_json() == {**ended[0].to_json(), "line": ""}  # all but its last word
    assert later.add(TARGET, "ada", {"how": "done"}).number == 5
    later.close()


@pytest.mark.parametrize("text", ["", "{", "[{}]", "[1]", '{"number": 1}', '[{"number": "1"}]'])
def test_a_list_that_cannot_be_read_is_no_list(text: str, store: ReleaseStore) -> None:
    (store.folder / ".attacks.json").write_text(text)
    assert Jobs(store).all() == []
    assert store.names() == ["model"]


def test_an_attack_runs_where_the_list_cannot_be_written(queue: Jobs, store: ReleaseStore) -> None:
    (store.folder / ".attacks.json").mkdir()
    job = queue.add(TARGET, "ada", {"how": "done"})
    until(lambda: job.over)
    assert job.state == "done"


def test_attacks_wait_are_cancelled_and_are_few(queue: Jobs) -> None:
    first = queue.add(TARGET, "ada", {"how": "wait"})
    until(lambda: first.done == 3)
    assert first.part == 0.75
    second, third = (queue.add(TARGET, "ada", {"how": "done"}) for _ in range(2))
    with pytest.raises(InvalidValue, match="2 attacks are waiting already"):
        queue.add(TARGET, "ada", {"how": "done"})
    queue.cancel("2")
    assert second.state == "cancelled"
    queue.cancel("1")
    until(lambda: first.over and third.over)
    assert (first.state, third.state) == ("cancelled", "done")
    with pytest.raises(InvalidValue, match="has ended already"):
        queue.cancel("1")
    with pytest.raises(InvalidValue, match="no attack"):
        queue.find("9")


def test_closing_stops_what_runs(queue: Jobs) -> None:
    job = queue.add(TARGET, "ada", {"how": "wait"})
    until(lambda: job.done == 3)
    worker = job.worker
    assert worker is not None
    queue.close()
    assert worker.process.poll() is not None
    assert job.state == "cancelled"
    assert job.fault == ""


def test_what_an_attack_started_stops_with_it(queue: Jobs, tmp_path: Path) -> None:
    note = tmp_path / "child.txt"
    job = queue.add(TARGET, "ada", {"how": "family", "note": str(note)})
    until(lambda: note.exists() and note.read_text() != "")
    queue.cancel("1")
    until(lambda: job.over)
    assert job.state == "cancelled"
    until(lambda: not running(int(note.read_text())))


def running(pid: int) -> bool:
    """Whether a process runs: one that ended and was not yet collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_fault_is_told_by_its_kind(queue: Jobs) -> None:
    job = queue.add(TARGET, "ada", {"how": "break"})
    until(lambda: job.over)
    assert (job.state, job.fault) == ("failed", "This is a fault in discreet (RuntimeError: oops).")


def test_a_process_that_dies_is_a_failed_attack(queue: Jobs) -> None:
    job = queue.add(TARGET, "ada", {"how": "wait"})
    until(lambda: job.done == 3)
    assert job.worker is not None
    job.worker.process.kill()
    until(lambda: job.over)
    assert (job.state, job.fault) == ("failed", "It ended with code -9, and said nothing.")


def test_an_attack_does_not_know_the_ledger(queue: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCREET_LEDGER", "postgresql://secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    job = queue.add(TARGET, "ada", {"how": "environment"})
    until(lambda: job.over)
    assert job.fault == "False 3"


def test_only_progress_and_errors_are_heard() -> None:
    job = Job(1, TARGET, "ada", {}, "x", began=time.time())
    for message in (("row 7 of 9", "zanzibar"), ("failed", "no"), ("progress", 5, 64), ("",), ("Traceback", "zanzibar")):
        job.report(*message)
    assert (job.done, job.of, job.fault) == (5, 64, "no")
    assert "zanzibar" not in job.line
    assert job.line.startswith("training shadows: 5 of 64, about ")


def test_a_server_without_attacks_says_so(store: ReleaseStore) -> None:
    with pytest.raises(InvalidValue, match="started without attacks on a model"):
        Jobs(store).add(TARGET, "ada", CHOSEN)


def test_options_have_files_of_the_owner_alone() -> None:
    options, description = options_of(TARGET, {**CHOSEN, "weights": "/etc/passwd", "out": "/x"})
    assert options == {**TARGET.options, **CHOSEN}
    assert description == "loss with 4 shadow models, seed 0"
    table = Target("t", "table", "model", {"file": "f", "quasi": "a,b", "fraction": 0.1})
    assert options_of(table, {"file": "x"}) == ({"file": "f", "quasi": "a,b", "fraction": 0.1}, "a join on a,b")


def test_the_names_are_those_of_the_attacks() -> None:
    from discreet.attack.membership import ATTACKS

    assert tuple(attack.name for attack in ATTACKS) == NAMES


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as made:
        yield made


@pytest.mark.parametrize("wrong", [{"target": "x"}, {"target": ""}, {"attacks": "loss,--output"}, {"shadows": "1"},
                                   {"shadows": "1000"}, {"seed": "-1"}, {"seed": "x"}])  # fmt: skip
def test_only_names_and_numbers_are_chosen(served: Served, wrong: dict[str, str]) -> None:
    fields = {"target": "readmission", "attacks": "loss", "shadows": "4", "seed": "0", **wrong}
    assert served.post("/attacks.json", "olga", fields).status_code == 400
    assert served.state.jobs.all() == []


def test_why_it_failed_is_for_owners(served: Served) -> None:
    made = served.post("/attacks.json", "olga", {"target": "readmission", "attacks": "loss"}).json()
    job = served.state.jobs.find(str(made["number"]))
    until(lambda: job.over, 60)
    assert job.state == "failed"  # its files are not there
    assert "There is no file" in served.get("/attacks/1", "ada").text
    assert "There is no file" not in served.get("/attacks/1", "olga").text
    assert "an owner sees why" in served.get("/attacks/1", "olga").text
    assert served.post("/attacks/1/cancel.json", "olga").status_code == 400


def test_a_bar_is_not_full_while_the_attack_still_runs(served: Served) -> None:
    """Once every shadow was trained the bar stood at its end, for as long as attacks took; without a count it stood at 0."""
    made = served.post("/attacks.json", "olga", {"target": "readmission", "attacks": "loss"}).json()
    job = served.state.jobs.find(str(made["number"]))
    until(lambda: job.over, 60)
    job.state = "running"
    for done, of, bar, told in (
        (0, 0, '<progress class="bar" aria-label="how far it is: it works">', "training models like it"),
        (1, 4, 'value="0.2500"', "1 of 4 shadow models"),
        (
            4,
            4,
            '<progress class="bar" aria-label="how far it is: it works">',
            "all 4 shadow models are trained; attacking with them",
        ),
    ):
        job.report("progress", done, of)
        page = served.get("/attacks/1", "olga").text
        assert bar in page
        assert told in page
        assert 'hx-trigger="every 1s"' in page
        listed = served.get("/attacks", "olga").text
        assert bar.replace("far it", "far attack 1") in listed


def test_a_list_of_an_earlier_version_is_read(store: ReleaseStore) -> None:
    """It had the description under another name."""
    listed = {"number": 7, "who": "ada", "told": "loss", "state": "done", "done": 4, "of": 4, "fault": "", "asked": 1.0,
              "release": "attack-7-x", "began": 1.0, "ended": 2.0, "target": "x", "kind": "model", "about": "m"}  # fmt: skip
    (store.folder / ".attacks.json").write_text(json.dumps([listed]))
    assert [(job.number, job.description) for job in Jobs(store).all()] == [(7, "loss")]
