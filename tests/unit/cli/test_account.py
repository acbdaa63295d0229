"""`discreet account`: numbers, JSON, plots, calibration and wrong use."""

from __future__ import annotations

import json
import math
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from discreet.accounting import Gaussian, Poisson, PoissonReplace, Pure, Repeat, Shuffled, curve
from discreet.charts import sketch
from discreet.cli import app


def run(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["account", *args], input=stdin)


def data(*args: str) -> dict[str, Any]:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_sgd_tells_what_the_curve_says() -> None:
    event = Repeat(Poisson(0.01, Gaussian(1.1)), 100)
    found = data("sgd", "--noise", "1.1", "--rate", "0.01", "--steps", "100", "--delta", "1e-5", "--delta", "1e-7")
    assert found["event"] == event.to_json()
    assert found["epsilon"] == [{"delta": delta, "epsilon": curve(event).epsilon(delta)} for delta in (1e-5, 1e-7)]
    assert [item["false_positives"] for item in found["power"]] == [0.001, 0.01]
    assert [item["prior"] for item in found["posterior"]] == [0.01, 0.1, 0.5]


def test_the_relation_decides_the_event_and_is_told(tmp_path: Path) -> None:
    args = ("sgd", "--noise", "1", "--rate", "0.01", "--steps", "1000", "--delta", "1e-5")
    removed, replaced, blank = (data(*args, "--relation", each) for each in ("add_remove", "replace", "zero_out"))
    assert replaced["event"] == Repeat(PoissonReplace(0.01, Gaussian(1.0)), 1000).to_json()
    assert removed["event"] == blank["event"] == Repeat(Poisson(0.01, Gaussian(1.0)), 1000).to_json()
    assert [round(each["epsilon"][0]["epsilon"], 2) for each in (removed, replaced)] == [1.83, 2.84]
    assert (removed["relations"], replaced["relations"]) == (["add_remove", "zero_out"], ["replace"])
    assert "unit      added or removed or blanked out\n" in run(*args).stdout
    (tmp_path / "mixed.json").write_text(json.dumps(Poisson(0.1, Shuffled(Pure(1.0), 3)).to_json()))
    assert "unit      none: its parts are for different relations" in run("event", str(tmp_path / "mixed.json")).stdout


def test_the_text_says_the_same() -> None:
    text = run("laplace", "--noise", "1", "--delta", "0").stdout
    assert "what ran  Laplace(noise_multiplier=1.0)" in text
    assert "epsilon   1 at delta 0\n" in text
    assert "50 % becomes at most 73.2 %" in text
    assert "●" in text
    assert "\x1b" not in text


def test_infinity_is_null(tmp_path: Path) -> None:
    file = tmp_path / "event.json"
    file.write_text('{"kind": "non_private"}')
    assert data("event", str(file))["epsilon"][0]["epsilon"] is None
    assert "epsilon   ∞ at delta 1e-5" in run("event", str(file)).stdout


def test_times_repeat() -> None:
    assert data("gaussian", "--noise", "2", "--times", "3")["event"] == Repeat(Gaussian(2.0), 3).to_json()


@pytest.mark.parametrize("command", [["gaussian"], ["laplace"], ["sgd", "--rate", "0.1", "--steps", "50"]])
def test_calibration_stays_within_the_target(command: list[str]) -> None:
    found = data(*command, "--epsilon", "1.5", "--delta", "1e-6")
    assert 1.45 < found["epsilon"][0]["epsilon"] <= 1.5


def test_a_plot_is_a_picture_with_words(tmp_path: Path) -> None:
    result = run("gaussian", "--noise", "1", "--plot", str(tmp_path / "out.svg"), "--json")
    json.loads(result.stdout)
    assert "out.svg" in result.stderr
    root = ET.parse(tmp_path / "out.svg").getroot()
    assert [node.tag.split("}")[1] for node in root][:2] == ["title", "desc"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["gaussian"], "either --noise, or --epsilon"),
        (["gaussian", "--noise", "1", "--epsilon", "1"], "either --noise, or --epsilon"),
        (["gaussian", "--epsilon", "1"], "exactly one --delta"),
        (["gaussian", "--noise", "0"], "noise_multiplier must be above 0; got 0"),
        (["gaussian", "--noise", "nan"], "must be finite"),
        (["gaussian", "--noise", "x"], "not a valid float"),
        (["gaussian", "--noise", "1", "--delta", "1"], "delta must be at least 0 and below 1"),
        (["gaussian", "--noise", "1", "--times", "0"], "times must be at least 1"),
        (["gaussian", "--noise", "1", "--plot", "x.png"], "something.svg"),
        (["gaussian", "--noise", "1", "--plot", "/nowhere/x.svg"], "cannot be written"),
        (["gaussian", "--epsilon", "-1", "--delta", "1e-6"], "epsilon"),
        (["sgd", "--noise", "1", "--steps", "10"], "--rate"),
        (["sgd", "--noise", "1", "--rate", "2", "--steps", "10"], "rate must be between 0 and 1; got 2"),
        (["event", "/nowhere.json"], "cannot be read"),
    ],
)
def test_wrong_use_is_one_clear_paragraph(args: list[str], said: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "os.system"}', "\x00"])
def test_bad_events_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "event.json").write_text(text)
    result = run("event", str(tmp_path / "event.json"))
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert result.stdout == ""


def test_a_billion_repeats_are_answered() -> None:
    assert data("gaussian", "--noise", "1e4", "--times", str(10**9))["epsilon"][0]["epsilon"] > 0


def test_the_sketch_never_leaves_its_frame() -> None:
    for power in (lambda level: 1.0, lambda level: level, lambda level: 0.0, math.sqrt):
        lines = sketch(lambda levels, power=power: [power(level) for level in levels]).splitlines()
        assert len(lines) == 15
        assert max(map(len, lines)) <= 60


def test_an_event_that_would_take_minutes_is_refused_at_once(tmp_path: Path) -> None:
    """A stranger may have written it: a sample of thirty sampled mechanisms took 15 seconds of CPU."""
    inner = [
        {"kind": "poisson", "rate": 0.01 + i / 1e3, "event": {"kind": "laplace", "noise_multiplier": 1.0 + i}}
        for i in range(50)
    ]
    (tmp_path / "event.json").write_text(
        json.dumps({"kind": "poisson", "rate": 0.1, "event": {"kind": "sequence", "events": inner}})
    )
    began = time.process_time()
    result = run("event", str(tmp_path / "event.json"))
    assert time.process_time() - began < 2
    assert result.exit_code == 2
    assert "Compose it from fewer" in result.stderr
