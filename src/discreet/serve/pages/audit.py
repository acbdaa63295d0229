"""The log: who did what, for owners and officers."""

from __future__ import annotations

from discreet.serve.routes import READERS, Page, Reply, Request, Route, number_in

ON_A_PAGE = 100


def log(request: Request) -> Reply:
    """Newest first."""
    before = number_in(request.query.get("before", ""), most=2**62)
    who, what = request.query.get("who", "")[:80], request.query.get("what", "")[:40]
    notes = request.state.users.log(before=before, last=ON_A_PAGE, who=who, what=what)
    older = notes[-1]["number"] if len(notes) == ON_A_PAGE else None
    return Page("log.html", {"notes": notes, "older": older, "who": who, "what": what})


ROUTES = (Route("/log", log, READERS),)
