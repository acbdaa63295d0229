"""Attribute inference: the posterior against a slow one, population knowledge against memory, and the command."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from discreet import report
from discreet.attack import AttributeInference, infer
from discreet.audit import epsilon_at_least
from discreet.cli import app
from discreet.core import Release
from discreet.errors import InvalidValue

GENES = {"AA": 0.3, "AG": 0.5, "GG": 0.2}


def cohort(count: int, seed: int = 0) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 90, count).astype(float)
    gene = rng.choice(list(GENES), count, p=list(GENES.values()))
    return {"age": age, "gene": gene}, dosing({"age": age, "gene": gene}) + rng.normal(0, 3, count)


def dosing(table: Any) -> Any:
    effect = np.select([table["gene"] == "AA", table["gene"] == "AG"], [-10.0, -4.0], 0.0)
    return 40 - 0.1 * np.asarray(table["age"], float) + effect


def test_the_posterior_is_bayes_rule_over_all_that_is_unknown() -> None:
    people, dose = cohort(30)
    ages = {30.0: 0.2, 60.0: 0.5, 80.0: 0.3}
    attack = AttributeInference("gene", GENES, error=3.0, unknown={"age": ages})
    found = attack.posterior(dosing, {"sex": ["f"] * 30}, dose)
    for person in range(30):
        weight = dict.fromkeys(GENES, 0.0)
        for (gene, share), (age, other) in product(GENES.items(), ages.items()):
            said = float(dosing({"age": np.array([age]), "gene": np.array([gene])})[0])
            weight[gene] += share * other * float(np.exp(-((dose[person] - said) ** 2) / 18))
        assert found[person] == pytest.approx(np.array(list(weight.values())) / sum(weight.values()))
    known = AttributeInference("gene", GENES, error=3.0)
    assert (known.guess(dosing, people, dose) == people["gene"]).mean() > 0.7


def test_frequencies_within_a_group_and_what_fits_nothing() -> None:
    by = {"race": {"x": {"AA": 1.0}}}
    attack = AttributeInference("gene", GENES, error=1.0, by=by)
    flat = lambda table: np.zeros(len(table["race"]))  # noqa: E731
    assert attack.posterior(flat, {"race": ["x", "y"]}, [0.0, 0.0])[0].tolist() == [1.0, 0.0, 0.0]
    far = attack.posterior(flat, {"race": ["x", "y"]}, [1e9, 1e9])  # no value explains it: frequencies decide
    assert far[1] == pytest.approx(list(GENES.values()))


def test_a_classifier_is_asked_for_the_outcome_that_happened() -> None:
    attack = AttributeInference("gene", {"AA": 0.5, "GG": 0.5}, classes=("ill", "well"))

    def ill(table: Any) -> Any:
        p = np.where(table["gene"] == "AA", 0.9, 0.2)
        return np.stack([p, 1 - p], axis=1)

    assert attack.posterior(ill, {"age": [1, 2]}, ["ill", "well"])[:, 0] == pytest.approx([9 / 11, 1 / 9])


def test_a_model_of_the_population_tells_as_much_of_people_outside() -> None:
    people, dose = cohort(4000)
    inside = np.random.default_rng(1).random(4000) < 0.5
    found = infer(AttributeInference("gene", GENES, error=3.0), dosing, people, dose, inside, design="canary")
    assert found.risk.members > found.prior + 0.15
    assert found.risk.low == 0
    assert epsilon_at_least(found.evidence, delta=1e-6, confidence=0.95) < 0.3


def test_a_model_that_remembers_is_told_from_one_that_knows_the_population() -> None:
    """It has learned every member by heart: their dose with the true gene, and with no other."""
    people, dose = cohort(2000)
    inside = np.random.default_rng(1).random(2000) < 0.5

    def remembers(table: Any) -> Any:
        told = np.where((table["gene"] == people["gene"]) & inside, dose, dosing(table))
        return np.where((table["gene"] != people["gene"]) & inside, 1e3, told)

    found = infer(AttributeInference("gene", GENES, error=3.0), remembers, people, dose, inside, design="canary")
    assert found.risk.members == 1.0
    assert found.risk.low > 0.8
    assert epsilon_at_least(found.evidence, delta=1e-6, confidence=0.95) > 3
    page = report.html(Release(value=None, source="clinic", claims=(), facts={"inference": [found.to_json()]}))
    assert "What a model tells of a hidden column" in page
    assert "100" in page


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"values": {"AA": 1.0}, "error": 1.0}, "values that it can have"),
        ({"values": GENES}, "how the model is wrong"),
        ({"values": GENES, "error": 1.0, "classes": ("a",)}, "One of the two"),
        ({"values": GENES, "error": -1.0}, "error"),
    ],
)
def test_what_an_attack_needs(how: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        AttributeInference("gene", **how)


def test_a_control_group_is_needed_and_every_value_listed() -> None:
    people, dose = cohort(20)
    attack = AttributeInference("gene", GENES, error=3.0)
    with pytest.raises(InvalidValue, match="honest baseline"):
        infer(attack, dosing, people, dose, np.ones(20, bool))
    with pytest.raises(InvalidValue, match="does not list"):
        infer(AttributeInference("gene", {"AA": 1, "XX": 1}, error=1.0), dosing, people, dose, np.arange(20) % 2 == 0)


@pytest.mark.parametrize("kind", ["regression", "logistic"])
def test_the_command_attacks_what_fit_wrote(kind: str, tmp_path: Path) -> None:
    people, dose = cohort(6000)
    inside = np.random.default_rng(2).random(6000) < 0.5
    target = dose if kind == "regression" else np.where(dose > 30, "high", "low")
    whole = {**people, "dose": target, "member": inside.astype(int)}
    parquet.write_table(pa.table(whole), tmp_path / "people.parquet")
    members = {name: np.asarray(column)[inside] for name, column in whole.items() if name != "member"}
    parquet.write_table(pa.table(members), tmp_path / "members.parquet")
    (tmp_path / "columns.toml").write_text('age = [20, 90]\ngene = ["AA", "AG", "GG"]\n')
    about = ["--bounds", "0", "60"] if kind == "regression" else ["--classes", "low,high"]
    made = ["fit", kind, tmp_path / "members.parquet", "--target", "dose", "--columns", tmp_path / "columns.toml", *about]
    made += ["--epsilon", "5", "--delta", "1e-6", "-o", tmp_path / "model.json"]
    run = CliRunner()
    assert run.invoke(app, list(map(str, made))).exit_code == 0
    asked = [
        "attack",
        "attribute",
        tmp_path / "model.json",
        tmp_path / "people.parquet",
        "--hidden",
        "gene",
        "--inside",
        "member",
    ]
    done = run.invoke(app, [*map(str, asked), "-o", str(tmp_path / "out.json"), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["inference"]
    assert found["members"] > found["baseline"] + 0.02
    assert found["low"] == 0
    kept = Release.load(tmp_path / "out.json")
    assert kept.claims
    assert kept.evidence[0].design == "post_hoc"
    assert "What a model tells of a hidden column" in report.html(kept)
    refused = run.invoke(app, [str(word) if word != "gene" else "age" for word in asked])
    assert refused.exit_code == 2
    assert "categories" in refused.output
