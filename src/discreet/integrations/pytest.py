"""pytest: a release as a fixture, and the rules of a privacy.toml as tests.

    pytest --privacy-release out/release.json              # or privacy_release = ["out/release.json"] in pyproject.toml

gives tests a fixture `release` (and `releases`, where several are named), and collects every privacy.toml that pytest comes
across as one test for each rule. pytest loads this file whenever discreet is installed: it does nothing, and loads nothing,
until a release is named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from discreet.core import Release
    from discreet.report.gate import Proofs
    from discreet.report.gate.rules import Rule

__all__ = ["release", "releases"]

POLICY = "privacy.toml"
_LOADED = pytest.StashKey[dict[Path, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("discreet", "privacy of releases")
    group.addoption(
        "--privacy-release", action="append", default=[], metavar="FILE",
        help=f"A release.json for the fixture `release` and for the rules of {POLICY}; may be given several times.",
    )  # fmt: skip
    group.addoption(
        "--privacy-no-strict",
        action="store_true",
        help=f"Rules of {POLICY}: what is inconclusive is skipped, and does not fail.",
    )
    parser.addini("privacy_release", type="paths", default=[], help="As --privacy-release, relative to this file.")


@pytest.fixture(scope="session")
def releases(request: pytest.FixtureRequest) -> tuple[Release[Any], ...]:
    """The releases that --privacy-release, or privacy_release in the configuration, names."""
    named = _named(request.config)
    if not named:
        pytest.fail("No release is named: give --privacy-release FILE, or privacy_release in the configuration.", pytrace=False)
    return tuple(_load(request.config, path) for path in named)


@pytest.fixture(scope="session")
def release(releases: tuple[Release[Any], ...]) -> Release[Any]:
    """The one release that is named."""
    if len(releases) != 1:
        pytest.fail(f"{len(releases)} releases are named; use the fixture `releases`.", pytrace=False)
    return releases[0]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.name == POLICY and _named(parent.config):
        return _PolicyFile.from_parent(parent, path=file_path)
    return None


class _PolicyFile(pytest.File):
    """A privacy.toml: every rule is a test of every release."""

    def collect(self) -> Iterator[pytest.Item]:
        from discreet.errors import InvalidDocument
        from discreet.report.gate import Policy

        try:
            policy = Policy.read(self.path)
        except InvalidDocument as error:
            raise self.CollectError(str(error)) from None
        strict = policy.strict and not self.config.getoption("privacy_no_strict")
        named = _named(self.config)
        for path in named:
            for rule in (*([policy.genuine] if _provable(path) else []), *policy.rules):
                name = rule.name if len(named) == 1 else f"{rule.name} [{path.parent.name}/{path.name}]"
                yield _RuleItem.from_parent(self, name=name, rule=rule, release=path, strict=strict, keys=policy.keys)


class _RuleItem(pytest.Item):
    """One rule on one release."""

    def __init__(self, *, rule: Rule, release: Path, strict: bool, keys: tuple[str, ...], **more: Any) -> None:
        super().__init__(**more)
        self.rule, self.release, self.strict, self.keys = rule, release, strict, keys

    def runtest(self) -> None:
        from discreet.errors import RuleFailed
        from discreet.report.gate import worst

        release = _load(self.config, self.release)
        findings = list(self.rule.judge(release, _proofs(release, self.release, self.keys)))
        bad = [finding for finding in findings if worst([finding], strict=self.strict) in ("failed", "refuted")]
        if bad:
            raise RuleFailed("\n".join(f"{finding.where}: {finding.outcome}: {finding.message}" for finding in bad))
        if not findings:
            pytest.skip("no claim stands beside evidence about the same game: there is nothing to compare")
        unsure = [finding for finding in findings if finding.outcome == "inconclusive"]
        if unsure:
            pytest.skip("; ".join(f"{finding.where}: inconclusive: {finding.message}" for finding in unsure))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from discreet.errors import DiscreetError

        if isinstance(excinfo.value, DiscreetError):
            return f"{self.path.name}, line {self.rule.line}: {self.rule}\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.rule.line - 1, self.name


def _provable(path: Path) -> bool:
    """Whether there is a signature or a ledger to check the release against."""
    document = path / "release.json" if path.is_dir() else path
    return bool(os.environ.get("DISCREET_LEDGER")) or document.with_name(f"{document.name}.sig").is_file()


def _proofs(release: Release[Any], path: Path, keys: tuple[str, ...]) -> Proofs:
    """The signature beside a release, and its entry in the ledger that DISCREET_LEDGER names, as `discreet gate` has them."""
    from discreet.errors import InvalidValue
    from discreet.ledger import Ledger
    from discreet.report.gate import proofs_of

    if not (place := os.environ.get("DISCREET_LEDGER")):
        return proofs_of(release, path, keys=keys)
    if "://" not in place and not os.path.exists(place):
        raise InvalidValue(f"DISCREET_LEDGER names {place}, and there is no ledger.")
    with Ledger(place) as ledger:
        return proofs_of(release, path, ledger=ledger, keys=keys)


def _named(config: pytest.Config) -> list[Path]:
    """The files that are named: on the command line, or else in the configuration."""
    paths = [config.invocation_params.dir / path for path in config.getoption("privacy_release")]
    return paths or list(config.getini("privacy_release"))


def _load(config: pytest.Config, path: Path) -> Release[Any]:
    """The release in a file, or in release.json of a folder; read once."""
    from discreet.core import Release

    loaded = config.stash.setdefault(_LOADED, {})
    if path not in loaded:
        loaded[path] = Release.load(path / "release.json" if path.is_dir() else path)
    release_: Release[Any] = loaded[path]
    return release_
