"""`discreet audit recipe.py`: one training run with canaries bounds epsilon from below."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from discreet.attack.membership.canaries import inject_canaries, score_canaries
from discreet.audit import epsilon_at_least
from discreet.cli import app
from discreet.core import Claim, Game, NonPrivate, Pure, Release, record
from discreet.models import Recipe

LEAKY = """
from sklearn.neighbors import KNeighborsClassifier
from discreet.models import Recipe
recipe = Recipe(KNeighborsClassifier(1))
"""
MEMORY = """
import numpy as np
from discreet.models import Recipe

def fit(X, y):
    known = {(row.tobytes(), int(label)) for row, label in zip(X, y)}
    return lambda asked: np.array([[float((row.tobytes(), c) in known) for c in range(3)] for row in asked])

recipe = Recipe(fit, kind="fit")
"""
BLIND = """
import numpy as np
from discreet.models import Recipe
recipe = Recipe(lambda X, y: lambda asked: np.zeros((len(asked), 3)), kind="fit")
"""


def run(*args: object) -> Result:
    return CliRunner().invoke(app, ["audit", *map(str, args)])


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", X=draw.normal(size=(600, 4)), y=draw.integers(0, 3, 600))
    for name, text in (("memory", MEMORY), ("blind", BLIND)):
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def asked(ground: Path, recipe: str, *more: object) -> Result:
    return run(ground / f"{recipe}.py", "--data", ground / "rows.npz", "--canaries", 300, "--delta", 1e-5, *more)


def test_a_model_that_remembers_is_caught(ground: Path) -> None:
    result = asked(ground, "memory", "--json", "-o", ground / "release.json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["canaries"] == 300
    assert found["auc"] == 1.0
    assert 3.0 < found["epsilon_at_least"] <= found["most_that_so_many_canaries_can_show"] + 1e-9
    assert "is not (epsilon, 1e-05)-private" in result.stderr
    release = Release.load(ground / "release.json")
    assert release.evidence[0].design == "canary"
    assert set(release.evidence[0].run.tolist()) == {0}
    assert release.claims[0].event == NonPrivate()
    assert "epsilon at least" in asked(ground, "memory").stdout


def test_controls_stand_beside_the_bound(ground: Path) -> None:
    """The negative control guesses coins that nothing depends on: at 1 - 1e-7 it is found in at most 1e-7 of audits."""
    result = asked(ground, "blind", "--json", "--delta", 0, "--confidence", 1 - 1e-7, "-o", ground / "release.json")
    assert result.exit_code == 0, result.stderr
    beside = json.loads(result.stdout)["controls"]
    assert [(each["kind"], each["found"]) for each in beside] == [("positive", True), ("negative", False)]
    facts = Release.load(ground / "release.json").facts
    assert facts.to_json()["controls"] == beside
    assert "by fair coins" in facts["attack_settings"]["canaries"]
    assert set(facts["hashes"]) == {"blind.py", "rows.npz"}
    assert json.loads(asked(ground, "blind", "--json", "--no-controls").stdout)["controls"] == []
    told = asked(ground, "memory")
    assert "positive control  canaries of an overfit control: found" in told.stdout
    refused = run(ground / "release.json", "--no-controls")
    assert refused.exit_code == 2
    assert "--no-controls belongs to the audit of a recipe" in refused.stderr


def test_a_model_that_learns_nothing_is_not(ground: Path) -> None:
    """All scores are alike, so guesses are coins: at 1 - 1e-7 a bound above 0.05 is a false alarm of at most 1e-7."""
    result = asked(ground, "blind", "--json", "--confidence", 1 - 1e-7)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["epsilon_at_least"] == 0.0
    assert "No epsilon is refuted" in result.stderr


def test_a_false_claim_is_refuted_with_three(ground: Path) -> None:
    game = Game(record(), {"weights"})
    for name, event in (("small", Pure(1.0)), ("large", Pure(50.0))):
        Release(value=1, source="rows", claims=(Claim(game=game, event=event),)).save(ground / f"{name}.json")
    result = asked(ground, "memory", "--claim", ground / "small.json")
    assert result.exit_code == 3, result.stderr
    assert "refuted" in result.stdout
    assert asked(ground, "memory", "--claim", ground / "large.json").exit_code == 0


def test_canaries_are_mislabelled_and_their_coins_fair() -> None:
    X, y = np.zeros((20_000, 1), np.float32), np.arange(20_000) % 4
    rows = inject_canaries(X, y, 10_000)
    changed = np.flatnonzero(rows.y != y)
    assert np.array_equal(changed, rows.canaries)
    assert rows.inside[np.setdiff1d(np.arange(20_000), changed)].all()
    assert abs(int(rows.inside[changed].sum()) - 5_000) < 300  # six standard deviations: a false alarm in 2e-9
    assert not np.array_equal(rows.canaries, inject_canaries(X, y, 10_000).canaries)


def told_by(honesty: float) -> Recipe:
    """Says of every row whether it was inside, and the truth with this probability."""
    draw = np.random.default_rng(5)

    def fit(inputs: np.ndarray, labels: np.ndarray):
        there = {row.tobytes() for row in inputs}

        def predict(rows: np.ndarray) -> np.ndarray:
            member = np.array([row.tobytes() in there for row in rows])
            said = np.where(draw.random(len(rows)) < honesty, member, ~member)
            return np.stack([np.zeros(len(rows)), np.where(said, 1.0, -1.0)], 1)

        return predict

    return Recipe(fit, kind="fit")


def test_bounds_of_a_recipe_that_reveals_a_known_amount() -> None:
    """Randomised response with epsilon 1 is not refuted (a false alarm in 1e-7); a twin that is right in 95 % of cases is."""
    X = np.random.default_rng(0).normal(size=(4_000, 1)).astype(np.float32)
    rows = inject_canaries(X, (np.arange(4_000) == 0).astype(int), 2_000, seed=1)
    fair, _ = score_canaries(told_by(np.e / (1 + np.e)), rows, seed=3)
    assert 0.5 < epsilon_at_least(fair, 0.0, 1 - 1e-7) <= 1.0
    twin, _ = score_canaries(told_by(0.95), rows, seed=3)
    assert 1.5 < epsilon_at_least(twin, 0.0, 1 - 1e-7) <= np.log(19)


def test_wrong_use(ground: Path) -> None:
    result = run(ground / "memory.py")
    assert result.exit_code == 2
    assert "give --data, --canaries and --delta" in result.stderr
    assert "give at most 300" in run(
        ground / "memory.py", "--data", ground / "rows.npz", "--canaries", 301, "--delta", 0
    ).stderr.replace("rows give", "give")
    assert run(ground / "memory.py", "--data", ground / "rows.npz", "--canaries", 300, "--delta", 2).exit_code == 2
    Release(value=1, source="rows", claims=()).save(ground / "release.json")
    told = run(ground / "release.json", "--canaries", 5)
    assert told.exit_code == 2
    assert "--canaries belongs to the audit of a recipe" in told.stderr
    np.savez(ground / "one.npz", X=np.zeros((40, 1)), y=np.zeros(40, int))
    assert "another class" in run(ground / "memory.py", "--data", ground / "one.npz", "--canaries", 20, "--delta", 0).stderr
    (ground / "nan.py").write_text(BLIND.replace("np.zeros((len(asked), 3))", "np.full((len(asked), 3), np.nan)"))
    assert "training diverged" in asked(ground, "nan").stderr


def test_neighbours_remember(ground: Path) -> None:
    pytest.importorskip("sklearn")
    (ground / "leaky.py").write_text(LEAKY)
    result = asked(ground, "leaky", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["epsilon_at_least"] > 1.0
