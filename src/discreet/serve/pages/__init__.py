"""The pages, one file each, and the table of all routes."""

from discreet.serve.pages import attacks, audit, console, entry, me, policy, releases, sources, synthetic, users
from discreet.serve.routes import Route

ROUTES: tuple[Route, ...] = (
    *entry.ROUTES,
    *sources.ROUTES,
    *releases.ROUTES,
    *console.ROUTES,
    *synthetic.ROUTES,
    *attacks.ROUTES,
    *policy.ROUTES,
    *users.ROUTES,
    *me.ROUTES,
    *audit.ROUTES,
)
