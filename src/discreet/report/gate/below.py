"""`discreet.assert_below(release, …)`: the rules of the gate inside a test."""

from __future__ import annotations

import warnings
from typing import Any

from discreet.core import Release, check
from discreet.errors import InvalidValue, RuleFailed
from discreet.report.gate.finding import Finding, worst
from discreet.report.gate.rules import Area, OnAttacks, Rate, Rule, ShownEpsilon, Unrefuted


def assert_below(
    release: Release[Any], *, tpr: float | None = None, fpr: float | None = None, auc: float | None = None,
    epsilon: float | None = None, delta: float | None = None, attack: str = "*", confidence: float = 0.95, strict: bool = True,
) -> tuple[Finding, ...]:  # fmt: skip
    """For tests: what every attack of that name reached is, at this confidence, below a limit; else `RuleFailed`.

    The limits are a true-positive rate `tpr` at a false-positive rate `fpr`, an area under the curve `auc`, an `epsilon` at a
    `delta`. Ends of intervals are compared, not points, by the rules of `discreet gate`, and as there no attack may do better
    than a claim of the release allows. Where there are too few targets to
    tell, the message says how many would do; with `strict=False` that is a warning. The findings are returned where all hold.
    """
    __tracebackhide__ = True  # pytest shows the line of the test, not this one
    check.open_fraction("confidence", confidence)
    check.word("attack", attack)
    rules = _rules(tpr, fpr, auc, epsilon, delta, {"line": 1, "attack": attack, "confidence": confidence})
    asked: tuple[Rule, ...] = (*rules, Unrefuted(name="claims-hold", line=1))
    findings = tuple(finding for rule in asked for finding in rule.judge(release))
    failures = [each for each in findings if worst([each], strict=strict) in ("failed", "refuted")]
    if failures:
        raise RuleFailed("\n".join(f"{finding.where}: {finding.outcome}: {finding.message}" for finding in failures))
    for finding in findings:
        if finding.outcome == "inconclusive":
            warnings.warn(f"{finding.where}: {finding.message}", UserWarning, stacklevel=2)
    return findings


def _rules(
    tpr: float | None, fpr: float | None, auc: float | None, epsilon: float | None, delta: float | None, common: dict[str, Any]
) -> list[OnAttacks]:
    for one, other in ((("tpr", tpr), ("fpr", fpr)), (("epsilon", epsilon), ("delta", delta))):
        if (one[1] is None) != (other[1] is None):
            raise InvalidValue(f"{one[0]} and {other[0]} go together; give both, such as tpr=0.01, fpr=0.001.")
    rules: list[OnAttacks] = []
    if tpr is not None and fpr is not None:
        limit, level = check.open_fraction("tpr", tpr), check.open_fraction("fpr", fpr)
        if limit <= level:
            raise InvalidValue(f"tpr must be above fpr, {level:g}: guessing alone reaches that; got {limit:g}.")
        rules.append(Rate(name="tpr", limit=limit, fpr=level, **common))
    if auc is not None:
        if check.open_fraction("auc", auc) <= 0.5:
            raise InvalidValue(f"auc must be above 0.5: guessing alone reaches that; got {auc:g}.")
        rules.append(Area(name="auc", limit=auc, **common))
    if epsilon is not None and delta is not None:
        limit = check.nonnegative("epsilon", epsilon)
        rules.append(ShownEpsilon(name="epsilon", limit=limit, delta=check.small_fraction("delta", delta), **common))
    if not rules:
        raise InvalidValue("assert_below needs a limit: tpr with fpr, auc, or epsilon with delta.")
    return rules
