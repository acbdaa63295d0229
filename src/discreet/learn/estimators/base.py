"""The base of every private estimator: the parameters that decide privacy, and the method that charges them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets

from discreet.core import Release, check
from discreet.core.facts import made
from discreet.core.protocols import Mechanism
from discreet.errors import InvalidValue
from discreet.learn.estimators import rows
from discreet.learn.estimators.exact import Floats
from discreet.ledger import LedgerLike
from discreet.ledger.seam import release

log = logging.getLogger("discreet.learn")

UNNAMED = "training data"  # the source of a release that no ledger pays for
OBSERVED = "observed"


class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose `fit` makes one release, `release_`, paid for before a row is used."""

    epsilon: float
    delta: float
    ledger: LedgerLike | None
    source: str | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = True
        return tags

    def _spend(self, mechanism: Mechanism[Any, Any], data: Any) -> Release[Any]:
        """Run the mechanism, paid for from the ledger that this estimator names."""
        asked = (float(self.epsilon), float(self.delta))
        if self.ledger is None:
            if self.source is not None:
                raise InvalidValue(
                    f"source {check.shown(self.source)} has its budget in a ledger; say which: ledger='ledger.db'."
                )
            return release(mechanism, data, source=UNNAMED, asked=asked, facts={"title": type(self).__name__, "made": made()})
        if self.source is None:
            raise InvalidValue("A ledger keeps budgets of sources; say which one pays: source='people'.")
        facts = {"title": f"{type(self).__name__} from {self.source}", "made": made()}
        return release(mechanism, data, source=self.source, ledger=self.ledger, asked=asked, facts=facts)

    def _no_weights(self, params: dict[str, Any]) -> None:
        """Sample weights change how far one row moves a fit, and nothing here accounts for that."""
        params = {name: value for name, value in params.items() if value is not None}
        if params:
            raise InvalidValue(
                f"{type(self).__name__}.fit takes no {', '.join(sorted(params))}: a weight changes how far one row moves the "
                "fit. Leave it out; nothing was spent."
            )


def known_classes(classes: Any, labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64], tuple[str, ...]]:
    """The sorted classes, each label's index among them (-1: none), and the claim's assumptions about how they were known."""
    if isinstance(classes, str) and classes == OBSERVED:
        return *_observed(labels), ("which classes occur among the labels is public",)
    if classes is None or isinstance(classes, (str, bytes)) or not isinstance(classes, (Sequence, np.ndarray)):
        raise InvalidValue(
            f"classes must list the labels that can occur, such as classes=[0, 1], since those that do occur are private; got "
            f"{check.shown(classes)}. If they are public knowledge, say classes='observed'."
        )
    known = np.unique(np.asarray(classes))
    if len(known) < 2 or len(known) != len(classes):
        raise InvalidValue(f"classes must list two or more different labels; got {check.shown(classes)}.")
    return known, rows.places(labels, known), ()


def _observed(column: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The classes that occur, which were declared to be public, as may be errors about them."""
    present = rows.there(column)
    labels = np.array(column[present].tolist()) if column.dtype.kind == "O" else column[present]
    check_classification_targets(labels)
    known, among = np.unique(labels, return_inverse=True)
    if len(known) < 2:
        raise InvalidValue("The labels hold only one class; a classifier needs two or more. Name them: classes=[0, 1].")
    places = np.full(len(column), -1, np.int64)
    places[present] = among
    return known, places


def labelled(
    classes: Any, X: Floats, y: NDArray[Any]
) -> tuple[NDArray[Any], tuple[Floats, NDArray[np.int64]], tuple[str, ...]]:
    """The classes, the rows whose label is one of them, with its index, and the claim's assumptions."""
    known, places, public = known_classes(classes, y)
    usable = places >= 0
    if not usable.all():
        log.warning("some labels are none of the classes; their rows contribute nothing")
    return known, (X[usable], places[usable]), public


def too_long(features: NDArray[np.float64], norm: float) -> None:
    """Log for the owner that rows were clipped."""
    with np.errstate(over="ignore", invalid="ignore"):
        if (np.square(features).sum(axis=1) > (norm * (1 + 1e-9)) ** 2).any():
            log.warning("some rows are longer than norm = %g; they were cut to that length", norm)
