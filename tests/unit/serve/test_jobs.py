"""Attacks: a bounded queue of processes that are followed, cancelled and never believed more than needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discreet.errors import InvalidValue
from discreet.serve import jobs as module
from discreet.serve.jobs import Job, Jobs, _arguments, _heard
from discreet.serve.pages.attacks import NAMES
from discreet.serve.settings import Target
from discreet.serve.shelf import Shelf
from webapp import Served, model, serving

TARGET = Target("readmission", "model", "model", {"weights": "w", "members": "m", "nonmembers": "n", "recipe": "r.py"})
CHOSEN = {"attacks": "loss", "shadows": 4, "seed": 0}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf(tmp_path)
    made.save("model", model())
    return made


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@pytest.fixture
def queue(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """A queue whose command line is a small program: it says its progress and waits, fails, or writes a release."""
    program = shelf.folder / "program.py"
    program.write_text(
        "import sys, time, json, os\n"
        "how, out = sys.argv[1], sys.argv[sys.argv.index('--out') + 1]\n"
        "print('private 12345', file=sys.stderr)\n"
        "print('training shadows: 3 of 4, about 1 s left', file=sys.stderr, flush=True)\n"
        "if how == 'wait': time.sleep(60)\n"
        "if how == 'fail': print('Error: It cannot be done.', file=sys.stderr); sys.exit(2)\n"
        f"os.link({str(shelf.folder / 'model' / 'release.json')!r}, os.path.join(out, 'release.json'))\n"
    )
    real = module.subprocess.Popen
    monkeypatch.setattr(
        module.subprocess, "Popen", lambda command, **how: real([command[0], str(program), *command[3:]], **how)
    )
    monkeypatch.setattr(module, "_arguments", lambda target, chosen: ([chosen["how"]], "made up"))
    made = Jobs(shelf, waiting=2)
    yield made
    made.close()


def test_an_attack_becomes_a_release(queue: Jobs, shelf: Shelf) -> None:
    job = queue.add(TARGET, "ada", {"how": "done"})
    until(lambda: job.over)
    assert (job.state, job.release, job.fault) == ("done", "attack-1-readmission", "")
    found = shelf.load("attack-1-readmission")
    assert found.facts["title"] == "Readmissions, attacked"
    assert not (shelf.folder / ".work" / "1").exists()
    assert "private" not in str(job.to_json())
    assert queue.add(TARGET, "ada", {"how": "done"}).number == 2
    (shelf.folder / ".attacks.json").unlink()
    assert Jobs(shelf)._last() >= 1  # a later server does not use the number again, even if it knows of no attack


def test_an_attack_that_fails_says_why(queue: Jobs, shelf: Shelf) -> None:
    job = queue.add(TARGET, "ada", {"how": "fail"})
    until(lambda: job.over)
    assert (job.state, job.fault, job.release) == ("failed", "It cannot be done.", None)
    assert shelf.names() == ["model"]


def test_a_later_server_lists_the_attacks_of_an_earlier_one(queue: Jobs, shelf: Shelf) -> None:
    ended = [queue.add(TARGET, "ada", {"how": how}) for how in ("done", "fail")]
    until(lambda: all(job.over for job in ended))
    running, waiting = (queue.add(TARGET, "bo", {"how": "wait"}) for _ in range(2))
    until(lambda: running.done == 3)
    later = Jobs(shelf)
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
def test_a_list_that_cannot_be_read_is_no_list(text: str, shelf: Shelf) -> None:
    (shelf.folder / ".attacks.json").write_text(text)
    assert Jobs(shelf).all() == []
    assert shelf.names() == ["model"]


def test_an_attack_runs_where_the_list_cannot_be_written(queue: Jobs, shelf: Shelf) -> None:
    (shelf.folder / ".attacks.json").mkdir()
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
    process = job.process
    assert process is not None
    queue.close()
    assert process.poll() is not None
    assert job.state == "cancelled"


def test_only_progress_and_errors_are_heard() -> None:
    job = Job(1, TARGET, "ada", [], "x")
    for line in ("row 7 of 9: zanzibar", "Error: no", "training shadows: 5 of 64, about 3 s left", "", "Traceback"):
        _heard(job, line)
    assert (job.done, job.of, job.fault) == (5, 64, "no")
    assert "zanzibar" not in job.line


def test_the_command_line_has_files_of_the_owner_alone() -> None:
    made, told = _arguments(TARGET, CHOSEN)
    assert made[:3] == ["attack", "model", "w"]
    assert made[-6:] == ["--attacks", "loss", "--shadows", "4", "--seed", "0"]
    assert told == "loss with 4 shadow models, seed 0"
    table = Target("t", "table", "model", {"file": "f", "quasi": "a,b", "fraction": 0.1})
    assert _arguments(table, {})[0] == ["attack", "table", "f", "--quasi", "a,b", "--fraction", "0.1"]


def test_the_names_are_those_of_the_attacks() -> None:
    from discreet.attack.membership import ATTACKS

    assert tuple(attack.name for attack in ATTACKS) == NAMES


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as made:
        yield made


@pytest.mark.parametrize("wrong", [{"target": "x"}, {"target": ""}, {"attacks": "loss,--out"}, {"shadows": "1"},
                                   {"shadows": "1000"}, {"seed": "-1"}, {"seed": "x"}])  # fmt: skip
def test_only_names_and_numbers_are_chosen(served: Served, wrong: dict[str, str]) -> None:
    fields = {"target": "readmission", "attacks": "loss", "shadows": "4", "seed": "0", **wrong}
    assert served.post("/attacks.json", "olga", fields).status_code == 400
    assert served.house.jobs.all() == []


def test_why_it_failed_is_for_owners(served: Served) -> None:
    made = served.post("/attacks.json", "olga", {"target": "readmission", "attacks": "loss"}).json()
    job = served.house.jobs.find(str(made["number"]))
    until(lambda: job.over, 60)
    assert job.state == "failed"  # its files are not there
    assert "There is no file" in served.get("/attacks/1", "ada").text
    assert "There is no file" not in served.get("/attacks/1", "olga").text
    assert "an owner sees why" in served.get("/attacks/1", "olga").text
    assert served.post("/attacks/1/cancel.json", "olga").status_code == 400
