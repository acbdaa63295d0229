"""The privacy section of a model card: Markdown under a YAML head, as Hugging Face reads it."""

from __future__ import annotations

import json
import math
from typing import Any

from discreet.figures import down, percent_up, rate, up
from discreet.report import tables, words
from discreet.report.findings import BELIEF_DELTA, CONFIDENCE, DELTAS, Ceiling, Floor, Found, Given, found_in
from discreet.report.prose import labelled, md
from discreet.report.sentences import label


def card(release: Given, *, confidence: float = CONFIDENCE) -> str:
    """A model card with the section `Privacy`: a YAML head with the tags and numbers, then the guarantee in full words.

    Append it to a card of your own, or give it to `huggingface_hub.ModelCard`.

    >>> from discreet.core import Claim, Game, Laplace, Release, record
    >>> claim = Claim(game=Game(record(), {"weights"}), event=Laplace(2.0))
    >>> "epsilon: 0.5" in card(Release(value=0, source="people", claims=(claim,)))
    True
    """
    (found,) = found_in(release, confidence=confidence)
    return rendered(found, confidence)


def rendered(found: Found, confidence: float) -> str:
    return f"---\n{_yaml(_head(found, confidence))}---\n\n{_section(found, confidence)}"


def _head(found: Found, confidence: float) -> dict[str, Any]:
    tags = ["privacy", *(["differential-privacy"] if found.bounded else []), *(["privacy-audit"] if found.floors else [])]
    claims = [_claim(item) for item in found.ceilings[:8]]
    attacks = [_attack(item, confidence) for item in found.floors[:20]]
    privacy: dict[str, Any] = {"verdict": label(found.status), "source": words.short(found.release.source)}
    return {"tags": tags, "privacy": {**privacy, "claims": claims, "attacks": attacks}}


def _claim(item: Ceiling) -> dict[str, Any]:
    unit = item.claim.game.unit
    told: dict[str, Any] = {
        "unit": words.unit(unit), "relation": unit.relation, "view": sorted(item.claim.game.view),
        "mechanism": words.mechanism(item.claim.event), "sampling": words.sampling(item.claim.event),
        "ceiling": item.curve is not None,
    }  # fmt: skip
    if item.curve is not None:
        epsilon = item.epsilons[0][1]
        told |= {"epsilon": float(up(epsilon)) if math.isfinite(epsilon) else None, "delta": DELTAS[0]}
    return told


def _attack(item: Floor, confidence: float) -> dict[str, Any]:
    rates = {f"tpr_at_{each.level:g}_fpr": float(down(each.rate)) for each in item.rates if each.resolvable}
    return {
        "name": words.short(item.evidence.attack), "design": item.evidence.design, "targets": len(item.evidence), **rates,
        "epsilon_at_least": float(down(item.epsilon)), "delta": DELTAS[0], "confidence": confidence,
        "verdict": label(tables.outcome(item)),
    }  # fmt: skip


def _section(found: Found, confidence: float) -> str:
    lines = ["## Privacy", "", f"**{label(found.status)}.** {md(found.sentence)}", ""]
    for item in found.ceilings[:8]:
        lines += [md(item.guarantee), ""]
        lines += [f"- Provided that: {md(text)}" for text in tables.assumptions(item.claim.assumptions)]
        if item.curve is not None:
            believed = "; ".join(f"{rate(prior)} becomes at most {percent_up(after)}" for prior, after in item.beliefs)
            lines += [f"- Belief that the unit is inside, except with probability {words.small(BELIEF_DELTA)}: {believed}"]
        lines += [""]
    if not found.ceilings:
        lines += ["Nothing is claimed: there is no ceiling on what this model gives away.", ""]
    table = labelled(tables.evidence(found, confidence), -1)
    if table.rows:
        lines += [f"| {' | '.join(map(md, table.heads))} |", f"|{'---|' * len(table.heads)}"]
        lines += [f"| {' | '.join(map(md, row))} |" for row in table.rows]
        lines += ["", tables.evidence_note(confidence), ""]
    else:
        lines += ["No attack was run against it.", ""]
    lines += ["Not tried:", "", *(f"- {md(text)}" for text in found.not_tried), ""]
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
