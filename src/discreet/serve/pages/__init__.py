"""The pages, one file each, and the table of all doors."""

from discreet.serve.doors import Door
from discreet.serve.pages import attacks, audit, console, entry, me, people, policy, releases, sources

DOORS: tuple[Door, ...] = (
    *entry.DOORS,
    *sources.DOORS,
    *releases.DOORS,
    *console.DOORS,
    *attacks.DOORS,
    *policy.DOORS,
    *people.DOORS,
    *me.DOORS,
    *audit.DOORS,
)
