"""A run on disk after each round, so that it can be continued. The file holds the key of a private run: it is its owner's."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from discreet.core.document import write_whole
from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from discreet.federate.rounds import Rounds


class Checkpoint:
    """One file, replaced whole after each round. A round that is taken again was shown to nobody: no noise is seen twice."""

    def __init__(self, path: Path, document: dict[str, Any]) -> None:
        self.path, self.document = path, document
        self._key = b""
        self._entry: str | None = None

    def exists(self) -> bool:
        return self.path.exists()

    def paid(self) -> tuple[bytes, str | None]:
        """The key, and the ledger's entry that paid."""
        kept = self._load()
        return bytes.fromhex(kept["key"]), kept["entry"]

    def begin(self, rounds: Rounds, key: bytes, entry: str | None) -> None:
        """Restore the run from its file; a new run writes its file before the first round."""
        self._key, self._entry = key, entry
        if self.exists():
            rounds.restore(self._load()["state"])
        else:
            self.save(rounds)

    def save(self, rounds: Rounds) -> None:
        kept = {"document": repr(self.document), "key": self._key.hex(), "entry": self._entry, "state": rounds.state()}
        into = io.BytesIO()
        torch.save(kept, into)
        before = os.umask(0o077)
        try:
            write_whole(self.path, into.getvalue())
        finally:
            os.umask(before)

    def _load(self) -> dict[str, Any]:
        try:
            kept = torch.load(self.path, map_location="cpu", weights_only=True)
            same = kept["document"] == repr(self.document)
        except Exception as error:
            raise InvalidValue(f"{self.path} is no checkpoint of a federated run: {type(error).__name__}.") from None
        if not same:
            raise InvalidValue(
                f"{self.path} is of a run with another model, clients, strategy, privacy or number of rounds. Call simulate "
                "with the arguments it began with, or name another file."
            )
        return kept
