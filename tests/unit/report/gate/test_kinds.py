"""The kind of every attack that this product runs, as a policy requires it: exactly one each, and none is forgotten."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from tests.unit.report.gate.test_rules import evidence

import discreet
from discreet.attack.text import ATTACKS as TEXT
from discreet.core import Release
from discreet.report.gate.parts import KINDS, Part

OTHERS = {
    "join on quasi-identifiers": "linkage",
    "scoreboard of sparse ratings": "linkage",
    "reconstruction (x)": "reconstruction",
    "gradient inversion (x)": "reconstruction",
    "text extraction": "extraction",
    "attribute inference": "attribute",
    "reading the class": "attribute",
}
MEMBERSHIP = {
    "bayes_lira", "lira_offline", "rmia", "calibrated", "shokri", "loss", "confidence", "entropy", "label", "noise",
    "boundary", "quantile", "gradient", "whitebox", "mislabelled canaries", "canary exposure", "client canaries",
    "gradient canaries", "gradient canary", "density ratio", "shadow generators", "distance to closest record", "noisy counts",
    "text x", "x x", "zlib", "min_k", "min_k_plus", "reference", "readout", "differencing",
}  # fmt: skip
ELSEWHERE = {"attribute inference of kind": "attribute", "inference of kind": "attribute", "property inference": "property",
             "model inversion": "reconstruction", "canaries in one fit": "membership",
             "lira": "membership", "lira_fixed": "membership"}  # fmt: skip


def text(node: ast.AST | None) -> str | None:
    if isinstance(node, ast.IfExp):
        node = node.body
    if isinstance(node, ast.BoolOp):
        node = node.values[-1]
        return text(node)
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)  # type: ignore[misc]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def named(item: ast.ClassDef) -> list[str | None]:
    """What an attack is called: by the class, by a default, or in its construction."""
    found = []
    for node in ast.walk(item):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts))
                found += [text(value) for place, value in pairs if ast.unparse(place) in ("name", "self.name")]
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "name":
            found.append(text(node.value))
        if isinstance(node, ast.FunctionDef):
            arguments = zip(node.args.kwonlyargs, node.args.kw_defaults)
            found += [text(value) for argument, value in arguments if argument.arg == "name"]
    return found


def produced() -> set[str]:
    """Every name that an attack of the product, or a piece of its evidence, has in the sources."""
    found: list[str | None] = []
    for file in Path(discreet.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Evidence":
                found += [text(given.value) for given in node.keywords if given.arg == "attack"]
            if isinstance(node, ast.ClassDef):
                methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                bases = {ast.unparse(base).split("[")[0] for base in node.bases}
                if methods & {"score", "posterior", "signal"} or any("Attack" in base for base in bases):
                    found += named(node)
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NAME":
                found.append(text(node.value))
    return {name for name in found if name}


def holds(kind: str, attack: str) -> bool:
    made: Release[Any] = Release(value=1, source="people", claims=(), evidence=(evidence(0.0, 10, attack=attack),))
    return Part.parse(f"evidence.{kind}").find(made)[0]


def test_no_attack_was_forgotten() -> None:
    """A new attack has to be entered here, with its kind."""
    assert produced() == {*OTHERS, *MEMBERSHIP}


@pytest.mark.parametrize(
    "attack", [*OTHERS, *sorted(MEMBERSHIP), *ELSEWHERE, *(f"text {name}" for name in sorted(each.name for each in TEXT))]
)
def test_every_attack_is_of_one_kind(attack: str) -> None:
    kind = {**OTHERS, **ELSEWHERE}.get(attack, "membership")
    assert [each for each in KINDS if holds(each, attack)] == [kind]


def test_attribute_inference_is_no_evidence_of_membership() -> None:
    names = [f"attribute inference of column {number}" for number in range(7)]
    found = tuple(evidence(0.0, 10, attack=name) for name in names)
    made: Release[Any] = Release(value=1, source="people", claims=(), evidence=found)
    assert not Part.parse("evidence.membership").find(made)[0]
    there, told = Part.parse("evidence.attribute").find(made)
    assert there
    assert told.endswith("column 4 and 2 more.")
