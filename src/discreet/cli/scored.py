"""The models and tables of `discreet crypto`: what `discreet fit` or `crypto.convert` wrote, and rows with names."""

from __future__ import annotations

import csv
from types import SimpleNamespace
from typing import Any

from discreet.errors import InvalidDocument, InvalidValue


def served_model(place: str) -> Any:
    """The model for ciphertexts in a file; what `discreet fit` wrote is converted."""
    from discreet import crypto
    from discreet.core.document import read_json

    document = read_json(place)
    if _is_model(document):
        return crypto.Model.load(place)
    if not isinstance(document, dict) or "claims" not in document:
        raise InvalidDocument(
            f"{place} is no model for ciphertexts. Name what discreet fit wrote, or what crypto.convert(fitted).save(...) did."
        )
    return _converted(place)


def _is_model(document: Any) -> bool:
    from discreet.crypto.model import FORMAT

    return isinstance(document, dict) and document.get("format") == FORMAT


def _converted(place: str) -> Any:
    """The linear model of a release, by its coefficients and what it says of encoded rows."""
    from discreet import crypto
    from discreet.learn.estimators.saved import load_fit

    fitted = load_fit(place)
    said: dict[str, Any] = {"decision_function" if fitted.classes else "predict": fitted.of_rows}
    if fitted.kind == "logistic":
        said["predict_proba"] = fitted.shares
    if fitted.classes:
        said["classes_"] = fitted.classes
    model = SimpleNamespace(coef_=fitted.coef, intercept_=fitted.intercept, margin=fitted.margin, **said)
    return crypto.convert(model, names=fitted.features.names)


def encoded(table: str, place: str) -> tuple[list[str] | None, Any]:
    """The names and rows of a table as the model in a file takes them, by the names of its columns."""
    from discreet.core.document import read_json
    from discreet.crypto.names import same_columns

    model = served_model(place)
    if not _is_model(read_json(place)):
        from discreet.learn.estimators.saved import load_fit
        from discreet.models.tables import read_table

        return list(model.names), load_fit(place).features(read_table(table))
    names, rows = numbers(table)
    if model.names is None or sorted(names) != sorted(model.names):
        same_columns(model.names, tuple(names))
        return names, rows
    order = [names.index(name) for name in model.names]
    return list(model.names), [[row[at] for at in order] for row in rows]


def numbers(table: str) -> tuple[list[str], list[list[float]]]:
    """The names and rows of a CSV file of numbers."""
    try:
        with open(table, newline="", encoding="utf-8-sig") as file:
            names, *rows = list(csv.reader(file)) or [[]]
    except (UnicodeDecodeError, csv.Error):
        raise InvalidValue(f"{table} is not a CSV file in UTF-8. Name a table of numbers, not ciphertexts or keys.") from None
    try:
        found = [[float(cell) for cell in row] for row in rows]
    except ValueError:
        raise InvalidValue(f"{table} has a cell that is no number. Write a line of names, and numbers below.") from None
    if not found or any(len(row) != len(names) for row in found):
        raise InvalidValue(f"{table} needs a line of names and rows of as many numbers each.")
    return [name.strip() for name in names], found
