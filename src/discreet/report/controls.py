"""Attacks that found nothing in their own positive control: that they are silent elsewhere means nothing."""

from __future__ import annotations

from typing import Any

from discreet.core import Release

BLIND = "found nothing even in its control, where there is something to find, so its silence means nothing"


def blind(release: Release[Any]) -> frozenset[str]:
    """The names of attacks that found nothing where they had to, and never found it there.

    >>> facts = {"controls": [{"name": "loss on an overfit control", "attack": "loss", "kind": "positive", "found": False}]}
    >>> blind(Release(value=1, source="people", claims=(), facts=facts))
    frozenset({'loss'})
    """
    found: dict[str, bool] = {}
    for each in release.facts.get("controls") or ():
        if each.get("kind") == "positive" and "found" in each and isinstance(name := each.get("attack"), str):
            found[name] = found.get(name, False) or bool(each["found"])
    return frozenset(name for name, seen in found.items() if not seen)
