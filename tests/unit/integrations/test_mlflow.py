"""A release beside an MLflow run. Parts of it need pip install 'discreet-privacy[mlflow]'."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet.core import Claim, Evidence, Game, Gaussian, NonPrivate, Release, record, user
from discreet.errors import InvalidValue, MissingExtra
from discreet.integrations.mlflow import log, metrics, tags

GAME = Game(record(), {"scores"})


def made(*attacks: str, claims: tuple[Claim, ...] = (Claim(game=GAME, event=Gaussian(1.0)),)) -> Release[Any]:
    random = np.random.default_rng(0)
    inside = np.arange(2000) % 2 == 0
    score = random.normal(size=2000) + inside
    run = np.zeros(2000, int)
    found = [Evidence(game=GAME, attack=each, score=score, inside=inside, run=run, design="post_hoc") for each in attacks]
    return Release(value=1, source="people", claims=claims, evidence=tuple(found), entry="1-abc")


def test_claims_become_tags() -> None:
    found = dict(tags(made(), 1e-5))
    assert found == {
        "discreet.source": "people", "discreet.entry": "1-abc", "discreet.epsilon": "4.378", "discreet.delta": "1e-05",
        "discreet.unit": "record", "discreet.relation": "add_remove", "discreet.view": "scores",
    }  # fmt: skip
    others = (Claim(game=GAME, event=NonPrivate()), Claim(game=Game(user("id", rows=3), {"answers"}), event=Gaussian(1.0)))
    found = dict(tags(made(claims=others), 1e-5))
    assert (found["discreet.epsilon"], found["discreet.claim_2.unit"]) == ("inf", "user")


def test_floors_become_metrics() -> None:
    release = made("lira", "lira", "reconstruction (linear program)")
    found = dict(metrics(release, 1e-5, 0.95))
    assert found["discreet.lira.auc"] == release.evidence[0].auc() == found["discreet.lira_2.auc"]
    assert "discreet.reconstruction _linear program_.tpr_at_0.001" in found
    low, value, high = (found[f"discreet.lira.tpr_at_0.01{end}"] for end in ("_low", "", "_high"))
    assert low < value < high
    assert found["discreet.lira.epsilon_at_least"] > 0


def test_without_mlflow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'discreet-privacy\[mlflow\]'"):
        log(made(), delta=1e-5)


@pytest.mark.parametrize("asked", [{"delta": 1}, {"delta": -1e-9}, {"delta": 1e-5, "confidence": 1.0}])
def test_what_makes_no_sense_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        log(made(), **asked)


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_a_run_of_mlflow_has_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: pip install 'discreet-privacy[mlflow]'")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # its light edition has no database
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.create_experiment("privacy", artifact_location=(tmp_path / "artifacts").as_uri())
    mlflow.set_experiment("privacy")
    release = made("lira", "reconstruction (linear program)")
    with mlflow.start_run() as run:
        log(release, delta=1e-5)
    kept = mlflow.get_run(run.info.run_id).data
    assert {name: kept.tags[name] for name in dict(tags(release, 1e-5))} == dict(tags(release, 1e-5))
    assert kept.metrics == pytest.approx(dict(metrics(release, 1e-5, 0.95)))
    (document,) = (tmp_path / "artifacts").rglob("release.json")
    assert Release.load(document) == release
    assert json.loads(document.read_text())["source"] == "people"
    (page,) = (tmp_path / "artifacts").rglob("release.html")
    assert "people" in page.read_text(encoding="utf-8")
