"""The privacy section of a model card: Markdown under a YAML head, as Hugging Face reads it."""

from __future__ import annotations

import json
import math
from typing import Any

from discreet.audit import Appraisal
from discreet.audit.appraisal import CONFIDENCE
from discreet.figures import down, percent_up, rate, up
from discreet.report import tables, text
from discreet.report.assessment import LEVELS, Assessment, Ceiling, ReleaseLike, assess
from discreet.report.markdown import md


def card(release: ReleaseLike, *, confidence: float = CONFIDENCE) -> str:
    """A model card with the section `Privacy`: a YAML head with the tags and numbers, then the guarantee in full words.

    Append it to a card of your own, or give it to `huggingface_hub.ModelCard`.

    >>> from discreet.core import Claim, Game, Laplace, Release, record
    >>> claim = Claim(game=Game(record(), {"weights"}), event=Laplace(2.0))
    >>> "epsilon: 0.5" in card(Release(value=0, source="people", claims=(claim,)))
    True
    """
    (assessment,) = assess(release, confidence=confidence)
    return render(assessment, confidence)


def render(assessment: Assessment, confidence: float) -> str:
    return f"---\n{_yaml(_head(assessment, confidence))}---\n\n{_section(assessment, confidence)}"


def _head(assessment: Assessment, confidence: float) -> dict[str, Any]:
    tags = [
        "privacy",
        *(["differential-privacy"] if assessment.bounded else []),
        *(["privacy-audit"] if assessment.floors else []),
    ]
    claims = [_claim(item) for item in assessment.ceilings[:8]]
    attacks = [_attack(item) for item in assessment.floors[:20]]
    privacy: dict[str, Any] = {"verdict": assessment.status, "source": text.short(assessment.release.source)}
    return {"tags": tags, "privacy": {**privacy, "claims": claims, "attacks": attacks}}


def _claim(item: Ceiling) -> dict[str, Any]:
    unit = item.claim.game.unit
    told: dict[str, Any] = {
        "unit": text.unit(unit), "relation": unit.relation, "view": sorted(item.claim.game.view),
        "mechanism": item.mechanism, "sampling": text.sampling(item.claim.event),
        "ceiling": item.curve is not None,
    }  # fmt: skip
    if item.curve is not None:
        delta, epsilon = item.epsilons[0]
        told |= {"epsilon": float(up(epsilon)) if math.isfinite(epsilon) else None, "delta": delta}
    return told


def _attack(item: Appraisal) -> dict[str, Any]:
    rates = {f"tpr_at_{each.level:g}_fpr": float(down(each.rate)) for each in map(item.at, LEVELS)}
    return {
        "name": text.short(item.evidence.attack), "design": item.evidence.design, "targets": len(item.evidence), **rates,
        "epsilon_at_least": float(down(item.epsilon)), "delta": item.delta, "confidence": item.confidence,
        "verdict": item.outcome,
    }  # fmt: skip


def _section(assessment: Assessment, confidence: float) -> str:
    lines = ["## Privacy", "", f"**{assessment.status}.** {md(assessment.sentence)}", ""]
    for item in assessment.ceilings[:8]:
        lines += [md(item.guarantee), ""]
        lines += [f"- Provided that: {md(text)}" for text in tables.assumptions(item.claim.assumptions)]
        if item.curve is not None:
            believed = "; ".join(f"{rate(prior)} becomes at most {percent_up(after)}" for prior, after in item.beliefs)
            whose = " of the machine" if item.machine else ""
            except_for = f"except with probability {text.small(item.rare)}"
            lines += [f"- Belief{whose} that the unit is inside, {except_for}: {believed}"]
        lines += [""]
    if not assessment.bounded and not assessment.open:
        lines += ["Nothing is claimed: there is no ceiling on what this model gives away.", ""]
    table = tables.evidence(assessment, confidence)
    if table.rows:
        lines += [f"| {' | '.join(map(md, table.heads))} |", f"|{'---|' * len(table.heads)}"]
        lines += [f"| {' | '.join(map(md, row))} |" for row in table.rows]
        lines += ["", tables.evidence_note(confidence, [assessment.delta]), ""]
    else:
        lines += ["No attack was run against it.", ""]
    lines += ["Not tried:", "", *(f"- {md(text)}" for text in assessment.not_tried), ""]
    return "\n".join(lines)


def _yaml(value: Any, depth: int = 0) -> str:
    """Plain data as YAML. Every text is written as JSON writes it, which YAML reads as the same text, whatever it holds."""
    pad = "  " * depth
    if isinstance(value, dict):
        return "".join(f"{pad}{name}:{_inner(item, depth)}" for name, item in value.items())
    return "".join(f"{pad}-{_inner(item, depth, first=True)}" for item in value)


def _inner(value: Any, depth: int, *, first: bool = False) -> str:
    if isinstance(value, dict) and value:
        text = _yaml(value, depth + 1)
        return f" {text.lstrip()}" if first else f"\n{text}"
    if isinstance(value, list) and value:
        return f"\n{_yaml(value, depth + 1)}"
    text = json.dumps(value)
    if isinstance(value, float) and "e" in text and "." not in text:
        text = text.replace("e", ".0e")  # YAML 1.1 reads 1e-05 as text
    return f" {text}\n"
