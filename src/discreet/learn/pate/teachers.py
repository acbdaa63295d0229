"""Teachers: models that share no unit, and the counts of their votes. They belong to the owner and are never released."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Unit, check
from discreet.errors import InvalidValue
from discreet.learn.estimators.rows import places
from discreet.models import Recipe, Trainer
from discreet.noise import uniform

Array = NDArray[Any]
Ints = NDArray[np.int64]

log = logging.getLogger("discreet.learn")

ABSTAINS = -1


class Teachers:
    """`teachers` many models of the private rows, each unit with one of them, and what they vote on queries.

    `teacher` is a scikit-learn classifier, a function that makes a torch module, or a `Recipe` of one. Each unit is given to a
    teacher drawn at random, whatever its rows hold. `groups` says whose each row is, where the unit has a key. Torch teachers
    are trained as one job, on `teacher_rows` rows each: the first of their own, over and over where there are fewer.

    A teacher that cannot be trained or queried, such as one without rows, abstains: an error would depend on the rows.
    """

    def __init__(
        self, teacher: Any, X: Any, y: Any, *, teachers: int, classes: Array, unit: Unit, groups: Any = None,
        teacher_rows: int | None = None,
    ) -> None:  # fmt: skip
        self._recipe = teacher if isinstance(teacher, Recipe) else Recipe(teacher)
        if self._recipe.kind not in ("torch", "estimator"):
            raise InvalidValue("A teacher is a scikit-learn classifier, or a function that makes a torch module.")
        if (self._recipe.kind == "torch") != (teacher_rows is not None):
            raise InvalidValue(
                "teacher_rows is the public number of rows that each torch teacher takes, since all are trained as one job and "
                f"the number of private rows must not decide its shape; got {teacher_rows} for teachers of kind "
                f"{self._recipe.kind}."
            )
        self._each = None if teacher_rows is None else check.whole("teacher_rows", teacher_rows)
        self._count, self._classes = check.whole("teachers", teachers, least=2), classes
        rows, labels = np.asarray(X), np.asarray(y)
        if labels.ndim != 1 or len(rows) != len(labels):
            raise InvalidValue(f"X and y must hold one label for each row; got {rows.shape} and {labels.shape}.")
        self.unit = unit
        self._X, self._y = rows, places(labels, classes)
        self._owner = _owners(unit, groups, len(rows))
        self._of: Ints | None = None
        self._models: list[Any] | None = None

    def votes(self, queries: Array) -> Ints:
        """How many teachers say which class, [queries, classes]. It is private: for a mechanism, never for release."""
        if self._of is None:
            self._of = np.asarray(uniform(self._count, size=int(self._owner.max(initial=-1)) + 1))[self._owner]
        labels = self._of_torch(queries) if self._recipe.kind == "torch" else self._of_estimators(queries)
        return np.stack([(labels == place).sum(axis=0) for place in range(len(self._classes))], axis=1).astype(np.int64)

    def _rows_of(self) -> list[Ints]:
        assert self._of is not None
        usable = np.flatnonzero(self._y >= 0)
        order = usable[np.argsort(self._of[usable], kind="stable")]
        return np.split(order, np.searchsorted(self._of[order], np.arange(1, self._count)))

    def _of_estimators(self, queries: Array) -> Ints:
        if self._models is None:
            self._models = [self._taught(i, rows) for i, rows in enumerate(self._rows_of())]
        return np.stack([_predictions(model, queries, i) for i, model in enumerate(self._models)])

    def _taught(self, seed: int, rows: Ints) -> Any:
        """One teacher, from its own rows alone; None where it cannot be trained."""
        from sklearn.base import clone

        X, y = self._X[rows], self._y[rows]
        if not len(y) or (y == y[0]).all():
            return int(y[0]) if len(y) else None
        model = clone(self._recipe.build)
        if "random_state" in model.get_params():
            model.set_params(random_state=seed)
        with _own_randomness(seed):
            try:
                return model.fit(X, y)
            except Exception as error:
                log.warning("a teacher could not be trained (%s); it abstains", type(error).__name__)
                return None

    def _of_torch(self, queries: Array) -> Ints:
        """All as one job, with the same shapes, steps and batches whatever any teacher holds. Row 0 is no row of anybody."""
        size = self._each
        assert size is not None
        parts = self._rows_of()
        rows = [np.resize(part, size) if len(part) else np.full(size, -1) for part in parts]
        X = np.concatenate(
            [np.zeros((1, *self._X.shape[1:]), np.float32), *(self._X[part].astype(np.float32) for part in rows)]
        )
        y = np.concatenate([[len(self._classes) - 1], *(self._y[part] for part in rows)]).astype(np.int64)
        for i, part in enumerate(parts):
            if not len(part):
                X[1 + i * size : 1 + (i + 1) * size], y[1 + i * size : 1 + (i + 1) * size] = 0, 0
        inside = np.zeros((self._count, len(y)), np.bool_)
        for i in range(self._count):
            inside[i, 1 + i * size : 1 + (i + 1) * size] = True
        scores = Trainer(self._recipe).many(X, y, inside, query=np.asarray(queries, np.float32)).scores
        labels = scores[:, :, : len(self._classes)].argmax(axis=2).astype(np.int64)
        labels[[not len(part) for part in parts]] = ABSTAINS
        return labels


def _owners(unit: Unit, groups: Any, rows: int) -> Ints:
    """The number of the unit that owns each row."""
    if unit.key is None and unit.rows == 1:
        if groups is not None:
            raise InvalidValue("groups says whose each row is, and this unit is one row. Leave it out, or say unit=user(...).")
        return np.arange(rows)
    if groups is None:
        raise InvalidValue(f"This unit is {unit}: say whose each row is, groups=[...], so that one teacher gets all of them.")
    owners = np.asarray(groups)
    if owners.shape != (rows,):
        raise InvalidValue(f"groups must say whose each of {rows} rows is; got {owners.shape}.")
    return np.asarray(np.unique(owners.astype(str), return_inverse=True)[1], np.int64)


def _predictions(model: Any, queries: Array, seed: int) -> Ints:
    if model is None or isinstance(model, int):
        return np.full(len(queries), ABSTAINS if model is None else model)
    with _own_randomness(seed):
        try:
            return np.asarray(model.predict(queries), np.int64).reshape(len(queries))
        except Exception as error:
            log.warning("a teacher could not be asked (%s); it abstains", type(error).__name__)
            return np.full(len(queries), ABSTAINS)


@contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """Seed the global generators for one teacher, so that its draws do not affect the next teacher."""
    before = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
