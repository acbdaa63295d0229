"""The section on a federated release: who took part, by public counts, how often, and what each party saw of a client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from discreet.report import text
from discreet.report.assessment import Assessment
from discreet.report.section import Section
from discreet.report.tables import Table

PARTIES = {
    "Central": (
        ("the server", "every update as it is: it is trusted"),
        ("another client, or whoever has the model", "the weights of every round; the claim bounds it"),
    ),
    "Local": (
        ("the server", "every update, with the client's own noise; the claim bounds it"),
        ("another client, or whoever has the model", "the weights of every round; the claim bounds it"),
    ),
    "Distributed": (
        ("the server", "the sum of each round, noise in it; the claim bounds it while enough clients are honest"),
        ("another client, or whoever has the model", "the weights of every round; the claim bounds it"),
    ),
    "PrivateSGD": (
        ("the server", "every update, made of noisy steps; the claim bounds what it tells of a row"),
        ("another client, or whoever has the model", "the weights of every round; the claim bounds it"),
    ),
}
COUNTS = "Counts are public numbers of the plan. How many clients really took part is not told where it would be private."


@dataclass(frozen=True)
class FederatedModel:
    """The section on federated releases."""

    name: str = "federated"
    heading: str = "Federated training"

    def section(self, item: Assessment, plots: bool) -> Section | None:
        about: Any = item.facts.get("federated")
        if not isinstance(about, dict) and not hasattr(about, "get"):
            return None
        tables = [("What each party saw", _parties(str(about.get("privacy", ""))))]
        floors = _floors(item)
        if floors is not None:
            tables.append(("What attacks of each party reached", floors))
        return Section(item.title, tuple(_pairs(about)), tuple(tables), (), (COUNTS,))


def _pairs(about: Any) -> list[tuple[str, str]]:
    names = (
        ("strategy", "Strategy"), ("rounds", "Rounds"), ("clients_per_round", "Clients in a round"),
        ("parameters", "Trained parameters"), ("clip_norm", "Clip norm of an update"), ("noise_multiplier", "Noise multiplier"),
    )  # fmt: skip
    return [(label, _shown(about[name])) for name, label in names if name in about]


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return text.short(str(value), 60)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _parties(privacy: str) -> Table:
    return Table(
        ("party", "what it saw"), PARTIES.get(privacy, (("anybody", "what the claims below say, and no more is known"),))
    )


def _floors(item: Assessment) -> Table | None:
    """Evidence by the party that had such a view."""
    rows = [(text.short(each.attack, 60), _party(each.game.view)) for each in item.release.evidence]
    return Table(("attack", "as whom"), tuple(rows[:20])) if rows else None


def _party(view: frozenset[str]) -> str:
    if "updates" in view:
        return "a server that sees every update"
    if "transcript" in view or "aggregate" in view:
        return "a client, or whoever sees the weights of every round"
    return "whoever has the finished model"
