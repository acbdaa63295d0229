"""Everything one server has: its ledger, users, releases, sources and attacks."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from discreet.errors import InvalidValue
from discreet.ledger import Ledger
from discreet.serve.alone import Alone
from discreet.serve.jobs import Jobs
from discreet.serve.limits import Limit
from discreet.serve.registry import SourceRegistry
from discreet.serve.settings import Settings
from discreet.serve.store import DELTA, ReleaseStore
from discreet.serve.users import Users
from discreet.serve.worker import Task


class AppState:
    """What pages work with. Created once, closed once. `attacks` has a task for each kind of target that can be attacked."""

    def __init__(self, settings: Settings, attacks: Mapping[str, Task] | None = None) -> None:
        self.settings = settings
        _usable(settings.releases)
        users = settings.users
        self._alone = Alone([users.with_name(f"{users.name}.lock"), settings.releases / ".releases.lock"])
        try:
            self.ledger = Ledger(settings.ledger)
            try:
                self.users = Users(settings.users)
            except BaseException:
                self.ledger.close()
                raise
        except BaseException:
            self._alone.close()
            raise
        self.registry = SourceRegistry(self.ledger, settings.sources)
        self.store = ReleaseStore(settings.releases, self._delta_of)
        self.jobs = Jobs(self.store, attacks)
        self.secret = secrets.token_bytes(32)  # proves that a form before the login is ours
        self.by_name = Limit(50, 900.0)  # failed logins: of one name, from anywhere
        self.by_address = Limit(30, 900.0)
        self.by_both = Limit(5, 300.0)
        self.asked = Limit(600, 60.0)  # questions of one person: answers and explanations
        try:
            self._same_units()
        except BaseException:
            self.close()
            raise

    def _delta_of(self, source: str) -> float:
        """The delta of a source's budget, which the ledger counts at."""
        return float(self.ledger.balance(source).delta) if source in self.ledger.sources() else DELTA

    def _same_units(self) -> None:
        """A source is asked for the unit its budget is for; told when the server starts, not with the first question."""
        from discreet.serve.pages.sources import unit_in

        known = set(self.ledger.sources())
        for name, source in self.settings.sources.items():
            if name in known and unit_in(self.ledger, name) != source.unit:
                raise InvalidValue(
                    f"The ledger has a budget of {name} for {unit_in(self.ledger, name)}; the configuration says "
                    f"{source.unit}. Say the ledger's unit there, or open another source."
                )

    def close(self) -> None:
        """Stop what runs, then let go of the files."""
        self.jobs.close()
        self.registry.close()
        self.ledger.close()
        self.users.close()
        self._alone.close()


def _usable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue(
            f"The folder of releases {folder} cannot be made: {error.strerror}. Name another with --releases."
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidValue(
            f"The folder of releases {folder} may not be written, so no answer could be kept. Make it writable, or name "
            "another with --releases."
        )
