"""What is known of a release beside its document: the ledger that paid, and who signed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.report.gate.finding import Finding

if TYPE_CHECKING:
    from discreet.core import Release
    from discreet.ledger import LedgerLike, Payment
    from discreet.report.signature import Signed

PARTS = ("ledger", "ledger.head", "signature")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """What a ledger says of the entry that a release names, and what signatures show; None where there is nothing to ask."""

    payment: Payment | None = None
    head: Signed | None = None
    signature: Signed | None = None

    def find(self, part: str) -> tuple[bool, str]:
        """Whether a part that a policy requires is there, and a sentence that says so."""
        match part:
            case "ledger":
                return self._paid()
            case "ledger.head":
                return self._covered()
        return _shown(self.signature, "the release", "the release did not come from a file, so no signature is beside it.")

    def _paid(self) -> tuple[bool, str]:
        if self.payment is None:
            return False, "no ledger was given, so no entry of one can be looked at (--ledger)."
        if self.payment.fault is not None:
            return False, f"{self.payment.fault}."
        if self.payment.entry is None:
            return False, "no ledger entry paid for it."
        return True, f"{self.payment} paid for these claims."

    def _covered(self) -> tuple[bool, str]:
        """A signature of a ledger's head covers what was written up to the entry that it names, and nothing later."""
        signed = None if self.head is None else self.head.entry
        if signed is not None and self.payment is not None:
            late = [entry.id for entry in self.payment.entries if entry.number > int(signed.partition("-")[0])]
            if late:
                return False, f"entry {late[0]} was paid after the signed head: sign again. Entry {signed} was signed."
        return _shown(
            self.head, f"the ledger up to entry {signed}", "no signature of the ledger's last entry was given (--head)."
        )


NOTHING = Proofs()


def _shown(signed: Signed | None, what: str, none: str) -> tuple[bool, str]:
    if signed is None:
        return False, none
    return signed.fault is None, f"{what} is as {signed.key} signed it." if signed.fault is None else f"{signed.fault}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Genuine:
    """A release is what it says it is, by its ledger and by its signature where they are at hand. Every policy asks this."""

    name: str = "as-it-says"
    line: int = 1

    def judge(self, release: Release[Any], proofs: Proofs = NOTHING) -> Iterator[Finding]:
        paid = proofs.payment
        if paid is not None and (paid.entry is not None or paid.fault is not None):
            yield self._finding("entry", *proofs.find("ledger"))
        for part, signed in (("signature", proofs.signature), ("ledger.head", proofs.head)):
            if signed is not None and signed.there:
                yield self._finding(part, *proofs.find(part))

    def _finding(self, where: str, there: bool, message: str) -> Finding:
        return Finding(rule=self.name, where=where, outcome="holds" if there else "failed", message=message, line=self.line)

    def __str__(self) -> str:
        return "what the release says agrees with the ledger that paid for it, and with its signature"


GENUINE = Genuine()


def shared_entries(releases: Iterable[tuple[str, Release[Any]]]) -> list[str]:
    """A sentence for each entry that several releases name, with different values or values that are not in the document.

    Each release comes with the name of its file. One may have been made from the other, which is fine, and no ledger can tell.
    """
    from discreet.core import ExternalValue
    from discreet.ledger.chain import canonical

    values: dict[str, dict[str, str]] = {}
    for file, release in releases:
        value = file if isinstance(release.value, ExternalValue) else canonical(release.to_json()["value"])
        for name in release.entries:
            values.setdefault(name, {}).setdefault(value, file)
    return [
        f"Entry {name} is named by releases with different values: {', '.join(files.values())}. It paid for one answer: the "
        "others must have been made from that answer alone, which no ledger can tell."
        for name, files in values.items()
        if len(files) > 1
    ]


def proofs_of(
    release: Release[Any], path: str | os.PathLike[str] | None, *, ledger: LedgerLike | None = None,
    head: Signed | None = None, keys: Sequence[str] = (),
) -> Proofs:  # fmt: skip
    """All that can be asked about a release; `path` is its file or folder, `keys` are the public keys that count."""
    from discreet.ledger import opened
    from discreet.report.signature import check_release

    signature = None if path is None or not Path(path).exists() else check_release(path, keys)
    with opened(ledger) as held:
        return Proofs(payment=None if held is None else held.payment(release), head=head, signature=signature)
