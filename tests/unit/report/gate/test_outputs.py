"""JUnit, SARIF, Markdown and GitHub's lines: valid, complete, and safe with whatever a release says of itself."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as XML

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from discreet.report.gate import Finding, Judged, Policy
from discreet.report.gate.finding import OUTCOMES, one_line
from discreet.report.gate.outputs import counts, document, junit, markdown, remarks, sarif
from schemas import published

POLICY = Policy.from_toml('[[rule]]\non = "attack.*"\nauc = { max = 0.6 }\n', "ci/privacy.toml")
RULE = POLICY.rules[0].name


@cache
def schema() -> Draft7Validator:
    return Draft7Validator(published("sarif-2.1.0.json"), format_checker=Draft7Validator.FORMAT_CHECKER)


def finding(outcome: str, where: str = "attack.lira", message: str = "AUC is 0.7.", **more: Any) -> Finding:
    return Finding(rule=RULE, where=where, outcome=outcome, message=message, line=3, **more)


ALL = [Judged(file="out/release.json", source="people", findings=tuple(map(finding, OUTCOMES)))]


def test_sarif_is_valid_by_the_published_schema() -> None:
    for judged in (ALL, [], [*ALL, *ALL]):
        for strict in (False, True):
            schema().validate(sarif(judged, POLICY, strict=strict))


def test_the_schema_refuses_what_is_wrong() -> None:
    document = sarif(ALL, POLICY)
    document["runs"][0]["results"][0]["level"] = "bad"
    assert not schema().is_valid(document)
    assert not schema().is_valid({**sarif(ALL, POLICY), "more": 1})


def test_the_document_is_valid_by_our_own_schema() -> None:
    published = json.loads((Path(__file__).parents[4] / "docs/reference/gate.schema.json").read_text())
    Draft202012Validator.check_schema(published)
    ours = Draft202012Validator(published)
    whole = Judged(
        file="a", source="b", findings=(finding("holds", value=float("inf"), low=0.1, high=0.2, limit=3.0, needed=7),)
    )
    for judged in (ALL, [], [whole]):
        for strict in (False, True):
            ours.validate(document(judged, "privacy.toml", strict=strict))
    wrong = document(ALL, "privacy.toml")
    wrong["releases"][0]["findings"][0]["outcome"] = "no ceiling"
    assert not ours.is_valid(wrong)
    assert document([], "p")["outcome"] == "holds"


def test_sarif_tells_what_does_not_hold_and_where() -> None:
    (run,) = sarif(ALL, POLICY, strict=False)["runs"]
    assert [each["level"] for each in run["results"]] == ["warning", "error", "error"]
    assert [each["level"] for each in sarif(ALL, POLICY)["runs"][0]["results"]] == ["error"] * 3
    for each in run["results"]:
        rule = run["tool"]["driver"]["rules"][each["ruleIndex"]]
        assert rule["id"] == each["ruleId"] == "attack.*/auc"
        (place,) = each["locations"]
        assert place["physicalLocation"] == {
            "artifactLocation": {"uri": "ci/privacy.toml", "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": 3},
        }


def test_alerts_are_known_again_when_lines_and_numbers_change() -> None:
    def prints(judged: list[Judged]) -> list[dict[str, str]]:
        return [each["partialFingerprints"] for each in sarif(judged, POLICY)["runs"][0]["results"]]

    later = Finding(rule=RULE, where="attack.lira", outcome="failed", message="AUC is 0.9.", line=30)
    first, same, elsewhere, other = (
        prints([Judged(file=file, source=source, findings=(each,))])[0]
        for file, source, each in (
            ("a.json", "people", finding("failed")),
            ("b.json", "people", later),
            ("a.json", "patients", later),
            ("a.json", "people", finding("failed", where="attack.loss")),
        )
    )
    assert first == same
    assert "primaryLocationLineHash" in first
    assert len({each["discreetFinding/v1"] for each in (first, elsewhere, other)}) == 3


@pytest.mark.parametrize(
    ("path", "uri"), [("/a b/p.toml", "file:///a%20b/p.toml"), ("c d/é.toml", "c%20d/%C3%A9.toml"), ("a\\b.toml", "a/b.toml")]
)
def test_paths_become_addresses(path: str, uri: str) -> None:
    policy = Policy(POLICY.rules, path)
    (result, *_) = sarif(ALL, policy)["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


@pytest.mark.parametrize(("strict", "failures", "skipped"), [(False, 2, 1), (True, 3, 0)])
def test_junit_counts_what_failed(strict: bool, failures: int, skipped: int) -> None:
    root = XML.fromstring(junit([*ALL, *ALL], "privacy.toml", strict=strict))
    assert root.tag == "testsuites"
    assert [root.get(name) for name in ("tests", "failures", "skipped", "errors")] == [
        "8",
        str(2 * failures),
        str(2 * skipped),
        "0",
    ]
    for suite in root:
        assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "4", str(failures))
        assert len({(case.get("classname"), case.get("name")) for case in suite}) >= 1
        assert suite[-1].find("failure") is not None
        assert suite[-1][0].get("type") == "refuted"
        assert "AUC is 0.7." in str(suite[-1][0].text)


def test_the_summary_has_the_worst_first() -> None:
    text = markdown(ALL, "privacy.toml")
    assert text.startswith("## Privacy gate: refuted\n")
    assert text.index("🛑 refuted |") < text.index("❌ failed |") < text.index("❔ inconclusive |") < text.index("✅ holds |")
    assert "1 holds, 1 inconclusive, 1 failed, 1 refuted" in text
    assert counts([finding("holds"), finding("holds")]) == "2 hold"


def test_github_is_told_the_line() -> None:
    lines = list(remarks(ALL, "ci/privacy.toml", strict=False))
    assert [line.partition(" ")[0] for line in lines] == ["::warning", "::error", "::error"]
    assert lines[0] == (
        "::warning file=ci/privacy.toml,line=3,title=inconclusive%3A attack.*/auc::out/release.json: attack.lira: AUC is 0.7."
    )
    assert next(remarks(ALL, "p.toml")).startswith("::error file=p.toml")
    assert "%25" in next(remarks([Judged(file="a", source="b", findings=(finding("failed", message="1 %"),))], "p"))


anything = st.text(max_size=30) | st.sampled_from(
    [
        "a\n::error::b",
        "##[add-mask]x",
        "<script>",
        "|",
        "`",
        "]]>",
        "\x00\x1b[31m",
        "\ud800",
        "&amp;",
        "%0A",
        "\u200b",
        "\u2028x",
    ]
)


@given(anything, anything, anything)
def test_nothing_that_a_release_says_breaks_out(where: str, message: str, source: str) -> None:
    judged = [Judged(file=source, source=source, findings=(finding("failed", where=where, message=message),))]
    (line,) = remarks(judged, "privacy.toml")
    assert len(line.splitlines()) == 1
    assert "##[" not in line
    document = json.dumps(sarif(judged, POLICY))
    schema().validate(json.loads(document))
    (case,) = XML.fromstring(junit(judged, "privacy.toml").encode("utf-8")).iter("testcase")
    assert case.get("name") == f"{RULE}: {one_line(where)}"
    (row,) = [line for line in markdown(judged, "privacy.toml").splitlines() if line.startswith("| ❌")]
    assert row.count(" | ") == 3
    assert "<" not in row.replace("\\<", "")
    markdown(judged, "privacy.toml").encode("utf-8")


def test_findings_are_data() -> None:
    found = finding("holds", value=0.1, high=float("inf")).to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["high"], found["needed"], found["line"]) == (None, None, 3)
    assert str(finding("holds")) == "holds: attack.*/auc, attack.lira: AUC is 0.7."
