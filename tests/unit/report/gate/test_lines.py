"""Where keys of a TOML file stand: the same keys that tomllib finds, each with its line."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.report.gate.lines import lines_of

HARD = '''# a comment with = and [[rule]]
title = "a # in [text]" # and after
"quoted key" . 'literal' = 'c:\\'
text = """
[[rule]]
not = "a key" \\"""
"""

[[rule]]
on = "attack.*"   # which
tpr = { at_fpr = 0.001, "max" = 0.01 , nested = { a = [1,
  2], b = '}' } }
[rule.auc]
max = 0.6
[[rule]]
require = [ # parts
  "a]",
  'b',  """c
d""""",
]
epsilon.max = 1979-05-27 07:32:00
[refute]
confidence = +inf
'''


def paths(value: Any, path: tuple[Any, ...] = ()) -> set[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return ({path} if path else set()) | {deep for key, item in inner for deep in paths(item, (*path, key))}


def test_every_key_is_found_and_no_other() -> None:
    assert set(lines_of(HARD)) == paths(tomllib.loads(HARD))


def test_lines_are_those_of_the_keys() -> None:
    found = lines_of(HARD)
    rows = HARD.splitlines()
    for path, line in found.items():
        name = next(part for part in reversed(path) if isinstance(part, str))
        if isinstance(path[-1], str):
            assert name in rows[line - 1], path
    assert found[("rule", 1, "require", 2)] == rows.index('  \'b\',  """c') + 1
    assert found[("rule", 0, "tpr", "nested", "b")] == rows.index("  2], b = '}' } }") + 1
    assert found[("refute", "confidence")] == len(rows)


def test_carriage_returns_count_once() -> None:
    assert lines_of("a = 1\r\n\r\nb = 2\r\n") == {("a",): 1, ("b",): 3}


keys = st.text("ab\"'.\\ é\n=[", min_size=1, max_size=3)
values = st.recursive(
    st.one_of(st.integers(-5, 5), st.booleans(), st.text("a\"'\\\n#]}é ,=", max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + "".join(f"\n  {written(item)}, # ]" for item in value) + "\n]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)} = {written(item)}" for key, item in value.items()) + "}"
    return str(value)


@given(st.dictionaries(keys, values, max_size=4), st.lists(st.dictionaries(keys, values, max_size=3), max_size=3))
def test_any_document_has_the_keys_that_tomllib_finds(top: dict[str, Any], tables: list[dict[str, Any]]) -> None:
    top.pop("a", None)
    lines = [f"{quoted(key)}={written(value)}" for key, value in top.items()]
    for table in tables:
        lines += ["[[ a ]] # x", *(f"{quoted(key)} = {written(value)}" for key, value in table.items())]
    text = "\n".join(lines)
    assert set(lines_of(text)) == paths(tomllib.loads(text))


@pytest.mark.parametrize("text", ["", "a", "[", "[[", "a = ", 'a = "', "a = [", "a = {", "=", "[a", "a = '''", "\\"])
def test_what_is_no_toml_does_no_harm(text: str) -> None:
    assert isinstance(lines_of(text), dict)
