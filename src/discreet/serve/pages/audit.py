"""The log: who did what, for owners and officers."""

from __future__ import annotations

from discreet.serve.doors import READERS, Door, Page, Reply, Visit

ON_A_PAGE = 100


def log(visit: Visit) -> Reply:
    """Newest first."""
    before = visit.query.get("before", "")
    who, what = visit.query.get("who", "")[:80], visit.query.get("what", "")[:40]
    notes = visit.house.people.log(
        before=int(before) if before.isdecimal() and len(before) < 18 else None, last=ON_A_PAGE, who=who, what=what
    )
    older = notes[-1]["number"] if len(notes) == ON_A_PAGE else None
    return Page("log.html", {"notes": notes, "older": older, "who": who, "what": what})


DOORS = (Door("/log", log, READERS),)
