"""Rows that are among the members and among the non-members: whether they were inside has no answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from discreet.attack.membership.validation import in_both
from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from discreet.attack.membership.model_audit import Loaded
    from discreet.models.files import Say


def without_shared(loaded: Loaded, say: Say) -> Loaded:
    """What is left where no row of one side is also on the other; how many were left out is told.

    They leave both sides. Without them on one side alone, common rows would be found among the others only, and an attack
    would take being common for having been inside.
    """
    sides = loaded.members, loaded.nonmembers
    shared = in_both(*(np.asarray(part) for side in sides for part in side))
    counts = int(shared[0].sum()), int(shared[1].sum())
    if not any(counts):
        return loaded
    if shared[0].all() or shared[1].all():
        raise InvalidValue("All members, or all nonmembers, are in both files; rows that are on one side only are needed.")
    say(f"Left out because they are in both files: {counts[0]:,} of {len(shared[0]):,} members and {counts[1]:,} of "
        f"{len(shared[1]):,} nonmembers.")  # fmt: skip
    members, nonmembers = (tuple(part[~gone] for part in side) for side, gone in zip(sides, shared))
    kept = ~np.concatenate(shared)
    return replace(
        loaded, members=members, nonmembers=nonmembers, places=loaded.numbers()[kept], shared=counts,
        groups={name: names[kept] for name, names in loaded.groups.items()},
        owners=None if loaded.owners is None else loaded.owners[kept],
    )  # fmt: skip
