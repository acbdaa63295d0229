"""The history of a gate: what is kept of each version, what a damaged file does, and how a report shows it."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from discreet import report
from discreet.accounting import curve
from discreet.audit import appraise
from discreet.cli import app
from discreet.core import Claim, Evidence, Game, Gaussian, NonPrivate, Release, record
from discreet.errors import InvalidValue
from discreet.figures import percent_down, percent_up, up
from discreet.report.assessment import assess
from discreet.report.history import Trend, append, judgement, read
from discreet.report.model import build
from discreet.report.page import render

GAME = Game(record(), {"scores"})


def version(folder: Path, number: int, gap: float, noise: float | None = 2.0, title: str = "Readmission") -> Path:
    random, inside = np.random.default_rng(number), np.arange(4000) % 2 == 0
    seen = Evidence(
        game=GAME, attack="lira", score=random.normal(size=4000) + gap * inside, inside=inside, run=np.zeros(4000, int),
        design="post_hoc",
    )  # fmt: skip
    claim = Claim(game=GAME, event=NonPrivate() if noise is None else Gaussian(noise))
    made = Release(
        value=number, source="people", claims=(claim,), evidence=(seen,), facts={"title": title, "version": f"v{number}"}
    )
    return Path(made.save(folder / f"v{number}.json"))


def gate(file: Path, folder: Path) -> Result:
    (folder / "privacy.toml").write_text('[[rule]]\non = "release"\nrequire = ["evidence"]\n')
    quiet: dict[str, str | None] = {"GITHUB_ACTIONS": None, "GITHUB_STEP_SUMMARY": None}
    history, policy = str(folder / "history.jsonl"), str(folder / "privacy.toml")
    return CliRunner().invoke(app, ["gate", str(file), "--policy", policy, "--history", history], env=quiet)


def test_every_version_is_kept_compared_and_shown(tmp_path: Path) -> None:
    one, two, leaky = version(tmp_path, 1, 0.0, 1.0), version(tmp_path, 2, 0.0, 2.0), version(tmp_path, 3, 2.0, None)
    assert "since" not in gate(one, tmp_path).stderr
    gate(one, tmp_path)  # the same file again is no new version
    assert "since" not in gate(one, tmp_path).stderr
    second = gate(two, tmp_path).stderr
    old, new = (up(curve(Gaussian(noise)).epsilon(1e-5)) for noise in (1.0, 2.0))
    assert f"since v1 {read(tmp_path / 'history.jsonl')[0][0].at[:10]}: ε {old} at δ 1e-5 → {new} at δ 1e-5" in second
    assert "no more than intervals allow for chance" in second
    third = gate(leaky, tmp_path).stderr
    assert "→ none;" in third
    assert "more, beyond both intervals" in third

    past, warnings = read(tmp_path / "history.jsonl")
    assert [each.version for each in past] == ["v1"] * 3 + ["v2", "v3"]
    assert warnings == []
    assert past[-1].verdict == "leaks"  # the rules held: they asked for evidence only
    assert past[-1].outcome == "holds"
    made: Release[int] = Release.load(leaky)
    measured = appraise(made.evidence[0], made.claims).at(0.01)
    assert (past[-1].rate, past[-1].low, past[-1].high) == (measured.rate, measured.low, measured.high)  # one source
    assert past[3].most == curve(Gaussian(2.0)).power(0.01)

    page = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", str(leaky), "--history", str(tmp_path / "history.jsonl"), "-o", str(page)])
    assert done.exit_code == 0, done.output
    text = " ".join(unescape(re.sub(r"<[^>]+>", " ", page.read_text())).replace("\N{NO-BREAK SPACE}", " ").split())
    assert "Earlier versions, as the gate judged them" in text
    assert " leaks holds none " in text
    assert measured.told in text
    assert percent_up(past[3].most) in text
    assert 'class="chart trend"' in page.read_text()
    assert "<script" not in page.read_text()


def test_a_damaged_line_is_said_and_the_others_are_read(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    gate(version(tmp_path, 1, 0.0), tmp_path)
    whole = json.loads(file.read_text())
    wrong = [
        "{", "[]", "null", json.dumps({**whole, "rate": 2}), json.dumps({**whole, "outcome": "fine"}),
        json.dumps({**whole, "low": True}), json.dumps({**whole, "more": 1}), json.dumps({**whole, "verdict": "fine"}),
        json.dumps(whole).replace('"epsilon": ', '"epsilon": -'), "9" * 5000, "[" * 100_000,
    ]  # fmt: skip
    file.write_bytes(file.read_bytes() + "\n".join(wrong).encode() + b'\n\xff\xfe\n{"at": "cut')
    result = gate(version(tmp_path, 2, 0.0), tmp_path)
    assert result.exit_code == 0, result.output
    assert "is damaged in line 2, 3, 4, 5, 6 and 8 more" in result.stderr
    past, (warning,) = read(file)
    assert [each.version for each in past] == ["v1", "v2"]  # what was cut took nothing with it
    page = report.html(version(tmp_path, 2, 0.0), sections=[Trend(past, [warning])])
    assert "is damaged in line" in page


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 10**400), ("epsilon", 10**4000), ("attack", "\ud800"), ("release", "\ud800"), ("low", 0.9), ("high", 1e-9),
        ("rate", None), ("attack", None),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_drawn_is_damaged(tmp_path: Path, name: str, value: object) -> None:
    """An integer beyond floats and half of a character ended with exit code 70; an interval beside its rate was compared."""
    file = tmp_path / "history.jsonl"
    gate(version(tmp_path, 1, 0.5), tmp_path)
    whole = json.loads(file.read_text())
    line = json.dumps({**whole, name: value})
    file.write_text(f"{json.dumps(whole)}\n{line}\n")
    result = gate(version(tmp_path, 2, 0.5), tmp_path)
    assert result.exit_code == 0, result.output
    assert "is damaged in line 2" in result.stderr
    page = tmp_path / "report.md"
    done = CliRunner().invoke(app, ["report", str(tmp_path / "v2.json"), "--history", str(file), "-o", str(page)])
    assert done.exit_code == 0, done.output


def test_what_is_no_history_is_left_as_it_is(tmp_path: Path) -> None:
    """A release, a policy or a ledger that was named by mistake got a line, and was none any more."""
    file = tmp_path / "history.jsonl"
    for content in (version(tmp_path, 1, 0.0).read_bytes(), b'[[rule]]\non = "release"\n', b"SQLite format 3\0\xff\n", b"{"):
        file.write_bytes(content)
        result = gate(version(tmp_path, 2, 0.0), tmp_path)
        assert result.exit_code == 2
        assert "is no history" in result.output
        assert file.read_bytes() == content
    file.write_bytes(b"\n")  # an empty one is as good as none
    assert gate(version(tmp_path, 2, 0.0), tmp_path).exit_code == 0


def test_versions_from_a_pipe_are_told_apart(tmp_path: Path) -> None:
    items = assess([Release.load(version(tmp_path, number, 0.0)) for number in (1, 1, 2)])
    one, again, two = (judgement(item, "holds") for item in items)
    assert one.hash == again.hash != two.hash
    assert one.hash == judgement(assess(version(tmp_path, 1, 0.0))[0], "holds").hash  # as from its file


def test_titles_are_text_and_other_releases_are_left_out(tmp_path: Path) -> None:
    title = "<script>alert(1)</script>\n::error::x"
    result = gate(version(tmp_path, 1, 0.0, title=title), tmp_path)
    result = gate(version(tmp_path, 2, 0.0, title=title), tmp_path)
    assert "\n::error" not in result.stderr
    past, _ = read(tmp_path / "history.jsonl")
    assert "<script>" not in report.html(version(tmp_path, 3, 0.0, title=title), sections=[Trend(past)])
    assert "Earlier versions" not in report.html(version(tmp_path, 3, 0.0), sections=[Trend(past)])


def test_a_place_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="There is no history"):
        read(tmp_path / "none")
    with pytest.raises(InvalidValue, match="cannot be written"):
        append(tmp_path, [])


def test_who_may_not_see_attacks_does_not_see_earlier_ones(tmp_path: Path) -> None:
    """The web app builds pages for analysts with `withheld`; a section of earlier versions keeps to it."""
    gate(version(tmp_path, 1, 2.0, None), tmp_path)
    past, _ = read(tmp_path / "history.jsonl")
    told, withheld = (render(build(version(tmp_path, 2, 0.0), sections=[Trend(past)], withheld=each)) for each in (False, True))
    assert "leaks" in told
    assert percent_down(past[0].rate or 0) in told
    assert "v1" in withheld
    assert percent_down(past[0].rate or 0) not in withheld
    assert "leaks" not in withheld.partition("Earlier versions")[2].partition("</section>")[0]
