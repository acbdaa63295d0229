"""The web app: budgets, releases, a console for private SQL, attacks and policy, for a team with roles.

`discreet serve` starts it. `AppState` holds what one server works with, `make_app` returns the ASGI application, `Users` keeps
the accounts that may log in. Names are imported on first use: the web framework is an extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.serve.app import make_app
    from discreet.serve.settings import Settings, read_config
    from discreet.serve.state import AppState
    from discreet.serve.users import Users

__all__ = ["AppState", "Settings", "Users", "make_app", "read_config"]

_MODULES = {"AppState": "state", "Settings": "settings", "Users": "users", "make_app": "app", "read_config": "settings"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"discreet.serve has no {name!r}; it has {', '.join(__all__)}.")
    try:
        return getattr(import_module(f"discreet.serve.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("discreet"):
            raise
        from discreet.errors import MissingExtra

        raise MissingExtra(error.name, "serve", "The web app") from None


def __dir__() -> list[str]:
    return sorted(__all__)
