"""What every object with a secret in it has in common: it is not pickled, not copied, and does not show itself."""

from __future__ import annotations

from typing import Any

from discreet.errors import InvalidValue

__all__ = ["Private"]


class Private:
    """Pickling, copying and printing would carry the secret out of the process, or start it a second life."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        name = type(self).__name__
        raise InvalidValue(f"A {name} holds a secret: it is not pickled, not copied and never sent. {self._instead()}")

    def __getstate__(self) -> Any:
        return self.__reduce__()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def _instead(self) -> str:
        return "Send what its methods return."
