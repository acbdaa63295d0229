"""privacy.toml: what is read, and what is refused with its line and the nearest word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from discreet.errors import InvalidDocument
from discreet.report.gate import Policy
from discreet.report.gate.policy import LARGEST
from discreet.report.gate.rules import Area, ClaimedEpsilon, Rate, Require, ShownEpsilon, Unrefuted

WHOLE = """\
strict = true
refute = { confidence = 0.99 }

[[rule]]
on = "attack.*"
tpr = { at_fpr = 0.001, max = 0.01, confidence = 0.9 }
auc = { max = 0.6 }

[[rule]]
name = "what lira shows"
on = "attack.lira*"
epsilon = { at_delta = 1e-5, max = 3 }

[[rule]]
on = "claim"
[rule.epsilon]
at_delta = 1e-6
max = 3.0
unit = "user"
relation = "add_remove"
view = ["weights", "answers"]

[[rule]]
on = "release"
require = [
  "claim.unit",
  "evidence.design != post_hoc",
]
"""


def test_every_rule_of_a_policy_is_read() -> None:
    policy = Policy.from_toml(WHOLE, "p.toml")
    rate, area, floor, ceiling, unit, design, unrefuted = policy.rules
    assert rate == Rate(name="attack.*/tpr-at-0.001", line=6, attack="*", limit=0.01, confidence=0.9, fpr=0.001)
    assert area == Area(name="attack.*/auc", line=7, attack="*", limit=0.6, confidence=0.95)
    assert floor == ShownEpsilon(name="what lira shows", line=12, attack="lira*", limit=3.0, confidence=0.95, delta=1e-5)
    assert ceiling == ClaimedEpsilon(
        name="claim/user/add_remove/answers+weights/epsilon-at-1e-06", line=16, delta=1e-6, limit=3.0, unit="user",
        relation="add_remove", view=frozenset({"weights", "answers"}),
    )  # fmt: skip
    assert isinstance(unit, Require)
    assert isinstance(design, Require)
    assert (unit.line, design.line, str(design.part)) == (26, 27, "evidence.design != post_hoc")
    assert unrefuted == Unrefuted(name="claims-hold", line=2, confidence=0.99)
    assert (policy.name, policy.strict) == ("p.toml", True)
    assert all(str(rule) for rule in policy.rules)


def test_names_do_not_change_when_rules_come_and_go() -> None:
    rule = '[[rule]]\non = "attack.{}"\nauc = {{ max = 0.6 }}\n'
    few, many = rule.format("b"), rule.format("a") + rule.format("b") + rule.format("b")
    assert [each.name for each in Policy.from_toml(few).rules[:1]] == ["attack.b/auc"]
    assert [each.name for each in Policy.from_toml(many).rules[:3]] == ["attack.a/auc", "attack.b/auc", "attack.b/auc (2)"]


def ruled(line: str, on: str = "attack.*") -> str:
    return f'# first\n[[rule]]\non = "{on}"\n{line}\n'


REFUSED = [
    ("", "has no [[rule]]"),
    ("# nothing\n", "has no [[rule]]"),
    ("rule = []", "has no [[rule]]"),
    ("rule = 3", "line 1: rules are written [[rule]]"),
    ('[rule]\non = "claim"', "line 1: rules are written [[rule]]"),
    ("rule = [3]", "line 1: a rule must be a table"),
    ("[[rul]]", "line 1: unknown key 'rul' in a policy (did you mean rule?)"),
    ("strict = 1\n[[rule]]", "line 1: strict must be true or false; got 1"),
    ("\nrefute = 3", "line 2: refute must be a table"),
    ("[refute]\nconfidance = 0.9\n[[rule]]", "line 2: unknown key 'confidance' in refute (did you mean confidence?)"),
    ("refute = { confidence = 1 }\n[[rule]]", "line 1: confidence must be above 0 and below 1"),
    ("[[rule]]", "line 1: a rule lacks on"),
    ('[[rule]]\non = "attack"', "line 2: on must be one of attack.*, claim, release (did you mean attack.*?)"),
    ('[[rule]]\non = "clam"', "(did you mean claim?); got 'clam'"),
    ("[[rule]]\non = 3", "line 2: on says what a rule looks at"),
    ('[[rule]]\non = "claim"', "line 1: a rule on claim checks nothing"),
    ('[[rule]]\non = "claim"\ntpr = {}', "line 3: tpr is no rule for claim; a rule on claim has epsilon"),
    ('[[rule]]\non = "claim"\nname = ""\nepsilon = {}', "line 3: name must be a non-empty string"),
    ('[[rule]]\non = "claim"\nname = "a\\nb"\nepsilon = {}', "line 3: a name is one line"),
    (ruled("tprr = { max = 1 }"), "line 4: unknown key 'tprr' in a rule (did you mean tpr?)"),
    (ruled("tpr = 0.01"), "line 4: tpr must be a table"),
    (ruled("tpr = { at_fpr = 0.001, maxx = 0.01 }"), "line 4: unknown key 'maxx' in tpr (did you mean max?)"),
    (ruled("tpr = { at_fpr = 0.001 }"), "line 4: tpr lacks max"),
    (ruled("tpr = { max = 0.01 }"), "line 4: tpr lacks at_fpr: it has no default"),
    (ruled("tpr = { at_fpr = 0, max = 0.01 }"), "line 4: at_fpr must be above 0 and below 1; got 0"),
    (ruled("tpr = { at_fpr = -0.1, max = 0.01 }"), "line 4: at_fpr must be above 0"),
    (ruled("tpr = { at_fpr = nan, max = 0.01 }"), "line 4: at_fpr must be finite"),
    (ruled("tpr = { at_fpr = 0.001, max = inf }"), "line 4: max must be finite"),
    (ruled("tpr = { at_fpr = 0.001, max = 2 }"), "line 4: max must be above 0 and below 1"),
    (ruled('tpr = { at_fpr = "0.001", max = 0.01 }'), "line 4: at_fpr must be a number; got '0.001'"),
    (ruled("tpr = { at_fpr = true, max = 0.01 }"), "line 4: at_fpr must be a number; got True"),
    (ruled("tpr = { at_fpr = 1979-05-27, max = 0.01 }"), "line 4: at_fpr must be a number"),
    (ruled("tpr = { at_fpr = 0.01, max = 0.01 }"), "line 4: max must be above at_fpr, 0.01: guessing alone"),
    (ruled("[rule.tpr]\nat_fpr = 0.001\nmax = 0.01\nconfidence = 1.5"), "line 7: confidence must be above 0 and below 1; got"),
    (ruled("auc = { max = 0.5 }"), "line 4: max must be above 0.5: guessing alone"),
    (ruled("auc = { at_fpr = 0.1, max = 0.6 }"), "line 4: unknown key 'at_fpr' in auc"),
    (ruled("epsilon = { at_delta = 1, max = 3 }"), "line 4: at_delta must be at least 0 and below 1; got 1"),
    (ruled("epsilon = { at_delta = 0, max = -3 }"), "line 4: max must be 0 or above; got -3"),
    (ruled("epsilon = { at_delta = 0, max = 3, unit = 'user' }"), "line 4: unknown key 'unit' in epsilon"),
    (ruled(f"epsilon = {{ at_delta = 0, max = {'9' * 400} }}"), "line 4: max must fit a float"),
    (ruled(f"epsilon = {{ at_delta = 0, max = {'9' * 5000} }}"), "is not valid TOML"),
    (ruled("epsilon = { at_delta = 0, max = 3, unit = '' }", "claim"), "line 4: unit must be a non-empty string"),
    (ruled("epsilon = { at_delta = 0, max = 3, relation = 'add' }", "claim"), "line 4: relation must be one of add_remove"),
    (ruled("epsilon = { at_delta = 0, max = 3, view = 'weight' }", "claim"), "(did you mean weights?); got 'weight'"),
    (ruled("epsilon = { at_delta = 0, max = 3, view = [['weights']] }", "claim"), "line 4: view must be one of"),
    (ruled("require = 'claim'", "release"), "line 4: require must list parts"),
    (ruled("require = []", "release"), "line 4: require must list parts"),
    (ruled("require = [\n'claim',\n3]", "release"), "line 6: a part is written as text"),
    (ruled("require = [\n'claim',\n'clam']", "release"), "line 6: 'clam' is no part of a release (did you mean claim?)"),
    (ruled("require = ['claim.unti']", "release"), "claim has no 'unti' (did you mean unit?); it has unit, relation"),
    (ruled("require = ['evidence.design == posthoc']", "release"), "one of paired, canary, post_hoc (did you mean post_hoc?)"),
    (ruled("require = ['evidence.lira == 3']", "release"), "evidence.lira cannot be compared with a value"),
    (ruled("require = ['controls.neutral']", "release"), "controls has no 'neutral'"),
    (ruled("require = ['entry.x']", "release"), "entry has no 'x'"),
    (ruled("require = ['facts']", "release"), "facts must name one"),
    (ruled("require = ['== 3']", "release"), "is not a part"),
    (ruled("require = ['']", "release"), "is not a part"),
    ("[[rule]\n", "is not valid TOML"),
    ("\x00", "is not valid TOML"),
    ("a = " + "[" * 5000, "is not valid TOML"),
    ('a = 1\na = 2', "is not valid TOML"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), REFUSED, ids=[str(place) for place in range(len(REFUSED))])
def test_what_is_wrong_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(InvalidDocument, match=re.escape(told)) as caught:
        Policy.from_toml(text, "privacy.toml")
    assert str(caught.value).startswith("privacy.toml")
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


def test_a_name_is_taken_once() -> None:
    rule = '[[rule]]\nname = "a"\non = "attack.*"\nauc = { max = 0.6 }\n'
    with pytest.raises(InvalidDocument, match=r"line 6: the name 'a' is taken"):
        Policy.from_toml(rule + rule)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"a" * (10 << 20), "is larger than 1 MiB"),
        (b"", "has no [[rule]]"),
        ("\ufeff[[rule]]".encode(), "is not valid TOML"),
    ],
)
def test_files_that_are_no_policy(data: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "privacy.toml"
    file.write_bytes(data)
    with pytest.raises(InvalidDocument, match=re.escape(told)):
        Policy.read(file)


@pytest.mark.parametrize("path", ["/nowhere/privacy.toml", "/", "a\0b"])
def test_files_that_are_not_there(path: str) -> None:
    with pytest.raises(InvalidDocument, match=r"cannot be read|is not the name of a file"):
        Policy.read(path)


def test_the_largest_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "privacy.toml"
    start = '[[rule]]\non = "attack.*"\nauc = { max = 0.6 }\n'
    file.write_text(start + "#" * (LARGEST - len(start)))
    assert len(Policy.read(file).rules) == 2
