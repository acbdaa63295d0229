"""What every private estimator shares: the parameters that decide privacy, and the one way to spend them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from discreet.core import Release, check
from discreet.core.protocols import Mechanism
from discreet.errors import InvalidValue
from discreet.ledger import Ledger
from discreet.ledger.seam import release

log = logging.getLogger("discreet.learn")

UNNAMED = "training data"  # the source of a release that no ledger pays for
OBSERVED = "observed"


class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose `fit` makes one release, `release_`, paid for before a row is used."""

    epsilon: float
    delta: float
    ledger: str | None
    source: str | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def _spend(self, mechanism: Mechanism[Any, Any], data: Any) -> Release[Any]:
        """Run the mechanism, paid for from the ledger that this estimator names."""
        asked = (float(self.epsilon), float(self.delta))
        if self.ledger is None:
            if self.source is not None:
                raise InvalidValue(
                    f"source {check.shown(self.source)} has its budget in a ledger; say which: ledger='ledger.db'."
                )
            return release(mechanism, data, source=UNNAMED, asked=asked)
        if not isinstance(self.ledger, str):
            raise InvalidValue(
                f"ledger must be a file name or a postgresql:// URL, so that copies of this estimator in other processes spend "
                f"from the same one; got {type(self.ledger).__name__}."
            )
        if self.source is None:
            raise InvalidValue("A ledger keeps budgets of sources; say which one pays: source='people'.")
        with Ledger(self.ledger) as ledger:
            return release(mechanism, data, source=self.source, ledger=ledger, asked=asked)

    def _no_weights(self, given: dict[str, Any]) -> None:
        """Sample weights change how far one row moves a fit, and nothing here accounts for that."""
        given = {name: value for name, value in given.items() if value is not None}
        if given:
            raise InvalidValue(
                f"{type(self).__name__}.fit takes no {', '.join(sorted(given))}: a weight changes how far one row moves the "
                "fit. Leave it out; nothing was spent."
            )


def known_classes(classes: Any, found: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64], tuple[str, ...]]:
    """The sorted classes, the place of each label among them, and what the claim must say about how they were known."""
    if isinstance(classes, str) and classes == OBSERVED:
        known, places = np.unique(found, return_inverse=True)
        if len(known) < 2:
            raise InvalidValue("The labels hold only one class; a classifier needs two or more. Name them: classes=[0, 1].")
        return known, places.astype(np.int64), ("which classes occur among the labels is public",)
    if classes is None or isinstance(classes, (str, bytes)) or not isinstance(classes, (Sequence, np.ndarray)):
        raise InvalidValue(
            f"classes must list the labels that can occur, such as classes=[0, 1], since those that do occur are private; got "
            f"{check.shown(classes)}. If they are public knowledge, say classes='observed'."
        )
    known = np.unique(np.asarray(classes))
    if len(known) < 2 or len(known) != len(classes):
        raise InvalidValue(f"classes must list two or more different labels; got {check.shown(classes)}.")
    if not np.isin(found, known).all():
        raise InvalidValue(
            f"Some label is none of the classes {check.shown(known.tolist())}. List every label that can occur; "
            "nothing was spent."
        )
    return known, np.searchsorted(known, found).astype(np.int64), ()


def too_long(features: NDArray[np.float64], norm: float) -> None:
    """Tell the owner, in the log only, that rows were cut."""
    with np.errstate(over="ignore"):
        if (np.square(features).sum(axis=1) > (norm * (1 + 1e-9)) ** 2).any():
            log.warning("some rows are longer than norm = %g; they were cut to that length", norm)
