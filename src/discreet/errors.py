"""Every error discreet raises on purpose.

    DiscreetError
    ├── InvalidValue (ValueError)       an argument is outside what makes sense
    │   └── ModelUnreachable            a model behind an interface does not answer, or limits its rate
    ├── InvalidDocument (ValueError)    JSON that is truncated, unknown or hostile
    ├── InvalidQuery (ValueError)       SQL that private SQL does not answer, with the reason and a rewrite
    ├── EngineFailed                    an engine could not run a query; the message hides the reason
    ├── UnsupportedEvent                no theorem here covers this event
    ├── BudgetExceeded                  the budget does not hold what was asked
    ├── LedgerError                     a ledger cannot be opened, written or trusted
    ├── ClaimRefuted                    an audit found more leakage than was claimed
    ├── ProtocolError (RuntimeError)    a party of a secure sum sent what it should not, or too few answered
    ├── RuleFailed (AssertionError)     a release breaks a limit on what attacks may reach
    └── MissingExtra (ImportError)      an optional package is not installed

Each message says what was asked, what was found and what to do. None carries a private value.
"""

from __future__ import annotations

__all__ = [
    "BudgetExceeded",
    "ClaimRefuted",
    "DiscreetError",
    "EngineFailed",
    "EngineUnreachable",
    "InvalidDocument",
    "InvalidQuery",
    "InvalidValue",
    "LedgerError",
    "MissingExtra",
    "ModelUnreachable",
    "ProtocolError",
    "RuleFailed",
    "RunFailed",
    "UnsupportedEvent",
]


class DiscreetError(Exception):
    """The base class of every error that a user of discreet can cause and correct."""


class InvalidValue(DiscreetError, ValueError):
    """An argument is outside what makes sense; the message names it and its allowed range."""


class ModelUnreachable(InvalidValue):
    """A model behind an interface does not answer, or limits its rate; `retry_after` is how many seconds it asks to wait."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InvalidDocument(DiscreetError, ValueError):
    """A document cannot be read; nothing of it was used."""


class InvalidQuery(DiscreetError, ValueError):
    """A query outside what private SQL answers; nothing was read and nothing was spent."""


class EngineFailed(DiscreetError):
    """An engine could not answer; the message hides the reason, which may depend on the data."""

    def __init__(self, name: str, *, charged: bool = True) -> None:
        action = (
            "run the query. The charge stays spent, since the reason may depend on the data" if charged else "copy the table"
        )
        super().__init__(f"{name} could not {action}; the owner of the data sees why with --debug, or as __cause__.")


class EngineUnreachable(DiscreetError):
    """An engine cannot be reached, so the question was not asked; nothing was read and nothing was spent."""

    def __init__(self, name: str, hint: str) -> None:
        super().__init__(f"{name} cannot be reached. Nothing was asked and nothing was spent. {hint}")


class RunFailed(DiscreetError, RuntimeError):
    """Private training failed on its rows; the message says where and not why, since that may depend on the data."""


class UnsupportedEvent(DiscreetError):
    """No theorem in discreet bounds this event in the way that was asked."""


class BudgetExceeded(DiscreetError):
    """The budget does not hold what was asked; nothing was spent."""

    def __init__(self, message: str, *, asked: float, left: float) -> None:
        super().__init__(message)
        self.asked = asked
        self.left = left


class LedgerError(DiscreetError):
    """A ledger cannot be opened, written or trusted; `entry` is the number of the entry at fault, where there is one."""

    def __init__(self, message: str, *, entry: int | None = None) -> None:
        super().__init__(message)
        self.entry = entry


class ClaimRefuted(DiscreetError):
    """An audit found, at its confidence, more leakage than the claim allows."""


class ProtocolError(DiscreetError, RuntimeError):
    """A party of a secure sum sent what it should not, or too few answered; nothing was revealed."""


class RuleFailed(DiscreetError, AssertionError):
    """A release breaks a limit on what attacks may reach, or too few targets can tell; the message has the interval."""


class MissingExtra(DiscreetError, ImportError):
    """An optional package is needed; the message is the command that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        command = f"pip install 'discreet-privacy[{extra}]'"
        super().__init__(f"{purpose} needs {package}, which is not installed. Install it: {command}")
        self.package = package
        self.extra = extra
