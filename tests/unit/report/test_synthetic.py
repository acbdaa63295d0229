"""The section on a synthetic table: the same in every form, absent elsewhere, and safe from names in documents."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from discreet import report
from discreet.core import Claim, Game, Pure, Release, record
from discreet.errors import InvalidValue
from reports import COUNT, evidence, private
from unit.report.test_forms import HOSTILE, SCHEMA, checked

DISTANCES = [{"columns": ["age"], "distance": 0.02}, {"columns": ["age", "ward"], "distance": 0.125, "low": 0.1, "high": 0.2}]
RISK = {"name": "singling out", "attempts": 500, "members": 0.3, "control": 0.2, "baseline": 0.1, "share": 0.125,
        "low": 0.04, "high": 0.2, "confidence": 0.95}  # fmt: skip
FACTS: dict[str, Any] = {
    "title": "Synthetic visits",
    "synthetic": {
        "method": "tree", "epsilon": 1.0, "delta": 1e-9, "rows": 4012.4, "noise": {"columns": 12.5, "choices": 0.1},
        "columns": [{"name": "age", "cells": 33}, {"name": "ward", "cells": 4}],
        "measured": [{"columns": ["age", "ward"], "sigma": 14.25}], "measured_count": 3, "gap": 0.001, "converged": True,
    },
    "fidelity": {"for_release": True, "distances": DISTANCES, "means": {"1": 0.02}},
    "owner_fidelity": {"for_release": False, "distances": DISTANCES, "means": {"1": 0.02}, "association_error": 0.03},
    "risks": [RISK],
    "usefulness": {"label": "ward", "rows": 90, "synthetic_accuracy": 0.8, "real_accuracy": 0.9, "synthetic_auc": 0.81,
                   "real_auc": 0.95},
}  # fmt: skip
SAYS = ("The synthetic table", "tree", "age (33), ward (4)", "14.25", "4,012", "has converged", "Not for release",
        "age × ward: 0.125 (0.100 to 0.200)", "Paid for from the budget", "singling out", "12.5 % (4 % to 20 %)",
        "AUC 0.810 against 0.950", "off by 0.0300", "proves nothing")  # fmt: skip


def made(**facts: Any) -> Release[Any]:
    return Release(value=1, source="visits", claims=(COUNT,), facts={**FACTS, **facts})


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("&#39;", "'")


def test_page_and_markdown_say_the_same() -> None:
    page = report.html(made())
    checked(page)
    for text in (plain(page), plain(report.markdown(made()))):
        for part in SAYS:
            assert part in text, part


def test_the_document_has_the_facts_and_fits_its_schema() -> None:
    document = report.document(made()) if hasattr(report, "document") else json.loads(report.json(made()))
    jsonschema.validate(document, SCHEMA)
    told = document["releases"][0]["synthetic"]
    assert told["risks"][0]["share"] == 0.125
    assert told["owner_fidelity"]["for_release"] is False


def test_a_release_that_is_no_table_has_no_such_section() -> None:
    assert "The synthetic table" not in report.html(private())
    assert "The synthetic table" not in report.markdown(private())


def test_it_says_when_the_estimation_has_not_converged() -> None:
    worse = {**FACTS["synthetic"], "converged": False}
    assert "HAS NOT CONVERGED" in report.html(made(synthetic=worse))


def test_what_was_not_tried_on_a_synthetic_table() -> None:
    game = Game(record(), {"table"})
    table = replace(made(risks=[]), claims=(Claim(game=game, event=Pure(1.0)),))
    said = report.markdown(table)
    for part in ("density ratios, or the generator", "Canaries in one more fit", "Inference of one attribute"):
        assert part in said
    tried = replace(table, facts={**FACTS, "risks": [{**RISK, "name": "inference of age"}]}).add(
        evidence(0.0, attack="density ratio", view="table"),
        evidence(0.0, attack="canaries in one fit", view="table", design="canary"),
    )
    said = report.markdown(tried)
    for part in ("density ratios, or the generator", "Canaries in one more fit", "Inference of one attribute"):
        assert part not in said


def test_names_from_a_document_stay_text() -> None:
    name = HOSTILE.replace("\n", " ")
    strange = {**FACTS["synthetic"], "columns": [{"name": name, "cells": 3}], "measured": [{"columns": [name], "sigma": 1.0}]}
    near = {"for_release": True, "distances": [{"columns": [name], "distance": 0.5}]}
    checked(report.html(made(synthetic=strange, fidelity=near, risks=[{**RISK, "name": name}])))


@pytest.mark.parametrize(
    "wrong",
    [
        {"synthetic": {"method": "tree"}},
        {"fidelity": {"for_release": "yes", "distances": []}},
        {"owner_fidelity": {"for_release": False, "distances": [{"columns": ["a"], "distance": 2.0}]}},
        {"risks": [{"name": "linkability"}]},
        {"usefulness": {"label": "x"}},
    ],
)
def test_facts_of_another_shape_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        made(**wrong)
