"""Every attack that fits a language model in a folder: membership of texts, extraction, and what it says unprompted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from discreet.attack.everything.run import Everything
from discreet.errors import DiscreetError

HALF = 32
SAMPLES, LENGTH = 60, 48  # texts that the model is let to make, and tokens of each


def everything_of_text(
    folder: str, members: Sequence[str], nonmembers: Sequence[str], *, half: int | None = None, keep: int = 0,
    confidence: float = 0.95, seed: int = 0, say: Callable[[str], None] = lambda _: None,
) -> Everything:  # fmt: skip
    """What a causal model in `folder` tells of texts it was trained on, beside others like them.

    The attacker knows `half` tokens of a text and wants the next ones, as many; by default up to 32, such that nine texts in
    ten are long enough. `keep` puts so many texts that come out into the fact `verbatim`: private.
    """
    from discreet.attack.extraction import extraction, from_folder, generate_and_rank
    from discreet.attack.text import text_membership

    model, encode = from_folder(folder)
    if half is None:
        half = min(HALF, max(1, int(np.quantile([len(encode(text)) for text in (*members, *nonmembers)], 0.1)) // 2))
    say("Now membership of texts.")
    found = text_membership(model, members, nonmembers, encode=encode)
    evidence, facts = list(found.values()), dict[str, Any]()
    tried, left_out = [f"text {name}" for name in found], []
    try:
        say("Now extraction.")
        out = extraction(model, members, nonmembers, prompt=half, suffix=half, encode=encode, confidence=confidence)
        facts["extraction"] = out.to_json()
        evidence.append(out.evidence)
        tried.append("text extraction")
        if keep and (texts := out.extracted(max(out.risks))[:keep]):
            facts["verbatim"] = texts
    except DiscreetError as error:
        left_out.append(f"Extraction: it was tried and gave up: {error}")
    try:
        say("Now texts that the model makes by itself.")
        length = min(LENGTH, model.longest - 1)
        made = generate_and_rank(
            model, members, nonmembers, count=SAMPLES, length=length, run=max(1, length // 2), start=(model.start,),
            encode=encode, seed=seed,
        )  # fmt: skip
        hits = [each for each in made if each.in_corpus and not each.in_control]
        facts["unprompted"] = {"texts": len(made), "tokens": length, "run": max(1, length // 2), "memorised": len(hits)}
        tried.append("unprompted generation")
    except DiscreetError as error:
        left_out.append(f"Unprompted generation: it was tried and gave up: {error}")
    return Everything(facts, tuple(evidence), tuple(tried), tuple(left_out))
