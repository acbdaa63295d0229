"""Private learning: models that carry the claim they were trained under."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    raise AttributeError(f"discreet.learn has no {name!r}.")
