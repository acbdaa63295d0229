"""What was not tried: derived from what an adversary may see and from the attacks that were run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from discreet.core import Evidence, NonPrivate, Release
from discreet.figures import rate

_MODEL = {"labels", "scores", "logits", "weights", "transcript"}
_INSIDE = {"weights", "transcript"}


@dataclass(frozen=True)
class Kind:
    """A kind of attack: who could run it, by what its names are known, and what is said where it was not run."""

    views: frozenset[str]
    names: tuple[str, ...]
    says: str


KINDS = (
    Kind(
        frozenset(_MODEL - {"labels"}),
        ("lira", "bayes_lira", "rmia", "calibrated", "shokri", "quantile", "shadow"),
        "Membership by comparison with models like it (likelihood ratios, RMIA): the strongest known for most models.",
    ),
    Kind(
        frozenset(_MODEL),
        ("label", "noise", "boundary"),
        "Membership from predicted labels alone, by noise or by the distance to the decision boundary.",
    ),
    Kind(
        frozenset(_INSIDE),
        ("gradient", "whitebox", "weights"),
        "Membership with the weights in hand (gradients, a learned white-box attack).",
    ),
    Kind(
        frozenset(_MODEL | {"updates", "aggregate"}),
        ("canary", "canaries", "mislabelled"),
        "Canaries planted in training: the only way to refute a claim about the training itself.",
    ),
    Kind(
        frozenset(_MODEL),
        ("inver", "reconstruct", "extract", "text"),
        "Reconstruction of training data: model inversion, extraction of memorised text or records.",
    ),
    Kind(
        frozenset(_MODEL | {"table"}),
        ("attribute", "inference", "reading the class"),
        "Inference of one attribute of a person whose other attributes are known.",
    ),
    Kind(
        frozenset({"updates", "aggregate"}),
        ("gradient inversion", "inversion"),
        "Inversion of gradients or updates into the rows behind them.",
    ),
    Kind(
        frozenset({"answers", "aggregate"}),
        ("differenc", "averag", "reconstruct", "threshold", "readout"),
        "Differencing, averaging and linear reconstruction of the answers taken together.",
    ),
    Kind(
        frozenset({"table"}),
        ("join", "scoreboard", "link", "uniqueness"),
        "Linkage with other tables: joins on quasi-identifiers, singling out, sparse re-identification.",
    ),
    Kind(frozenset({"ciphertexts"}), ("cipher", "key"), "Distinguishing ciphertexts; reuse of keys or of noise."),
)
SYNTHETIC = (  # for releases that say they are a synthetic table
    Kind(
        frozenset({"table"}),
        ("density", "shadow generators", "noisy counts"),
        "Membership in the table behind it: density ratios, or the generator fitted again with and without a record.",
    ),
    Kind(
        frozenset({"table"}),
        ("canary", "canaries"),
        "Canaries in one more fit: the only way to refute the claim of a synthetic table.",
    ),
)
ALWAYS = (
    "Side channels: timings, error messages, logs, and what the surrounding system shows.",
    "Other releases about the same people that are not in this report.",
)


def not_tried(release: Release[Any]) -> tuple[str, ...]:
    """One sentence for each kind of attack that fits the release and was not run, and for what the samples cannot show."""
    seen = _seen(release)
    run = [(item.attack, item.design) for item in release.evidence]
    run += [(risk["name"], "post_hoc") for risk in release.facts.get("risks", ())]
    run += [("model inversion", "post_hoc") for _ in release.facts.get("recreated", ())]  # leaves no evidence: it has no game
    known = (*KINDS, *(SYNTHETIC if release.facts.get("synthetic") else ()))
    kinds = [kind.says for kind in known if kind.views & seen and not any(_is(*item, kind) for item in run)]
    return (*kinds, *_limits(release), *ALWAYS)


def _is(attack: str, design: str, kind: Kind) -> bool:
    """Whether an attack is of this kind, by the beginnings of the words of its name; canaries are known by their design."""
    if "canary" in kind.names and design != "post_hoc":
        return True
    name = attack.lower()
    parts = re.split(r"[\W_]+", name)
    return any(word in name if " " in word else any(part.startswith(word) for part in parts) for word in kind.names)


def _seen(release: Release[Any]) -> frozenset[str]:
    """All that somebody sees of the release, by its claims or by what was attacked."""
    games = [*(item.game for item in release.claims), *(item.game for item in release.evidence)]
    seen = frozenset(name for game in games for name in game.sees())
    if release.claims and not release.claims_on_value:
        seen |= {"answers"}  # what was decrypted is seen by whoever gets it, with no claim about it
    sums = any("aggregate" in game.view or "updates" in game.view for game in games)
    return seen if sums else seen - {"aggregate"}  # the sums within a training run are told by its own kinds of attack


def _limits(release: Release[Any]) -> list[str]:
    told = []
    claimed = [claim for claim in release.claims if not isinstance(claim.event, NonPrivate)]
    if release.evidence and claimed and all(item.design == "post_hoc" for item in release.evidence):
        told.append("A test that could refute the claim: all evidence is post hoc, so it can only warn.")
    covered = frozenset(name for claim in claimed for name in claim.game.sees())
    attacked = frozenset(name for item in release.evidence for name in item.game.sees())
    if release.evidence and covered & _INSIDE and not attacked & _INSIDE:
        told.append("Attackers who hold the weights: the claim covers them, no attack used them.")
    if release.evidence:
        told.append(_resolution(release.evidence))
    return told


def _resolution(evidence: tuple[Evidence, ...]) -> str:
    """The smallest false-positive rate that the largest sample resolves."""
    from discreet.audit.rates import ENOUGH

    most = max(int((~item.inside).sum()) for item in evidence)
    if most < ENOUGH:
        return "Any low false-positive rate: there are too few non-members to resolve one."
    least = next(level for level in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0) if most * level >= ENOUGH)
    return f"False-positive rates below {rate(least)}: {most:,} non-members cannot resolve them."
