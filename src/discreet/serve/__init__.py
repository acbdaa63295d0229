"""The web app: budgets, releases, a console for private SQL, attacks and policy, for a team with roles.

`discreet serve` starts it. `House` is what one server works with, `make_app` the ASGI application, `People` who may come in.
Names are loaded when first used: the web framework is an extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.serve.app import make_app
    from discreet.serve.house import House
    from discreet.serve.people import People
    from discreet.serve.settings import Settings, read_config

__all__ = ["House", "People", "Settings", "make_app", "read_config"]

_HOMES = {"House": "house", "People": "people", "Settings": "settings", "make_app": "app", "read_config": "settings"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"discreet.serve has no {name!r}; it has {', '.join(__all__)}.")
    try:
        return getattr(import_module(f"discreet.serve.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("discreet"):
            raise
        from discreet.errors import MissingExtra

        raise MissingExtra(error.name, "serve", "The web app") from None


def __dir__() -> list[str]:
    return sorted(__all__)
