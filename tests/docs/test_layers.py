"""Imports by string point downward too: lint-imports sees import statements only.

A call of `import_module`, `__import__` or `find_spec` whose argument begins with "discreet." is an import that no contract
checks. Its target must be in a layer below the module that calls it, or in the same package.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

import pytest
from snippets import ROOT

SOURCE = ROOT / "src/discreet"
BY_NAME = {"import_module", "__import__", "find_spec", "run_module", "resolve_name"}


def layers() -> dict[str, int]:
    """Every package and its height, from the contract that lint-imports keeps."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [item for item in contracts if item["type"] == "layers"]
    lines = contract["layers"]
    return {name: len(lines) - place for place, line in enumerate(lines) for name in re.findall(r"\w+", line)}


def strings(node: ast.AST) -> Iterator[str]:
    """Names under discreet that an expression mentions; of an f-string its constant beginning counts."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and re.match(r"discreet\.\w*", part.value):
            yield part.value


def imports_by_string(text: str) -> Iterator[tuple[int, str]]:
    """The line and the target of every import by string; "discreet." alone means that the rest is worked out."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in BY_NAME:
                yield from ((node.lineno, target) for argument in node.args for target in strings(argument))


def upward(package: str, text: str) -> list[str]:
    """Imports by string of another package that is not in a lower layer."""
    heights = layers()
    targets = [(line, target.split(".")[1]) for line, target in imports_by_string(text)]
    return [
        f"line {line}: discreet.{target}"
        for line, target in targets
        if target != package and heights.get(target, len(heights)) >= heights[package]
    ]


MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")  # the public names, above all layers


def test_no_module_imports_upward_by_string() -> None:
    faults = {}
    for path in MODULES:
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        faults[str(path.relative_to(ROOT))] = upward(package, path.read_text())
    assert not {path: found for path, found in faults.items() if found}
    assert len(MODULES) > 300


def test_every_package_is_in_a_layer_and_charts_are_where_the_design_has_them() -> None:
    heights = layers()
    packages = {
        path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert packages - {"__init__"} <= set(heights)
    assert (
        heights["query"]
        > heights["models"]
        == heights["charts"]
        > heights["audit"]
        == heights["ledger"]
        > heights["accounting"]
    )
    assert heights["accounting"] > heights["core"] > heights["errors"]


@pytest.mark.parametrize(
    ("package", "code"),
    [
        ("core", 'import_module("discreet.audit")'),
        ("core", 'importlib.import_module("discreet.report.gate").assert_below'),
        ("ledger", '__import__("discreet.charts")'),
        ("ledger", 'import_module(f"discreet.{name}")'),
        ("audit", 'import_module("discreet.ledger")'),
        ("accounting", 'find_spec("discreet.cli.account")'),
    ],
)
def test_an_import_upward_would_be_noticed(package: str, code: str) -> None:
    assert upward(package, code)
    assert not upward("cli", 'import_module(f"discreet.cli.{name}")')
    assert not upward("report", 'import_module("discreet.core")')


def test_core_holds_no_registry_and_no_display() -> None:
    """Nothing in core is filled by an upper layer, draws, compiles or converts tables."""
    text = "\n".join(path.read_text() for path in sorted((SOURCE / "core").glob("*.py")))
    for word in ("def register", "global ", "_repr_html_", "<svg", "subprocess", "gc.", "to_pandas", "import_module"):
        assert word not in text, f"core has {word!r}"
