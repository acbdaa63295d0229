"""The demo's two models, one that memorised its patients and one trained privately, and the same attack on both."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from discreet.attack.membership import Recipe, groups_of, membership
from discreet.attack.membership.summary import settings
from discreet.core import Claim, Game, NonPrivate, Release, record
from discreet.core.facts import made
from discreet.demo.hospital import DELTA, DIAGNOSES, LABS, LEVEL, PATIENTS, SEED, SOURCE, Cohort
from discreet.errors import BudgetExceeded
from discreet.learn import train
from discreet.models import Trainer

if TYPE_CHECKING:
    from discreet.attack.membership import MembershipResult
    from discreet.learn import Run
    from discreet.ledger import Ledger

EPSILON = 2.0
RATE, STEPS = 0.1, 200  # public: everyone knows that there are about 4,000 patients
ATTACKS = ("bayes_lira", "loss")
SHADOWS = 16
MOST = 10  # records named as the most exposed
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Model:
    """One of the two models: its release, its accuracy on patients and on strangers, and what the attack reached."""

    release: Release[Any]
    accuracy: tuple[float, float]
    tpr: float  # true-positive rate of the first attack at LEVEL
    refusal: str | None = None


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(LABS, 128), nn.Tanh(), nn.Linear(128, len(DIAGNOSES)))


OVERFIT = Recipe(network, epochs=100, learning_rate=3e-3)


def overfit(patients: Cohort, strangers: Cohort, ledger: Ledger, folder: Path, progress: Progress | None) -> Model:
    """Trained until it has memorised its patients. Nothing is claimed about it, so no budget can pay for it."""
    model = Trainer(OVERFIT).one(patients.labs, patients.diagnosis)
    evidence = _attacked(model, OVERFIT, patients, strangers, progress)
    nothing = Claim(game=Game(record(), {"weights"}), event=NonPrivate())
    refusal = None
    try:
        ledger.reserve(SOURCE, nothing)
    except BudgetExceeded as error:
        refusal = str(error)
    release: Release[nn.Module] = Release(value=model, source=SOURCE, claims=(nothing,), facts={"made": made()})
    folder.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), folder / "model.safetensors")
    return _with_evidence(release, "Diagnosis model, overfit", model, evidence, patients, strangers, refusal)


def private(patients: Cohort, strangers: Cohort, ledger: Ledger, folder: Path, progress: Progress | None) -> Model:
    """The same network, trained privately from the budget; the attacker trains the shadow models the same way."""
    run = _run(patients.labs, patients.diagnosis, ledger=ledger, source=SOURCE)
    for _ in run:
        pass
    release = run.release(folder)

    def fit(X: Any, y: Any) -> Callable[[Any], Any]:
        shadow = _run(X, y)
        for _ in shadow:
            pass
        return lambda inputs: _predict(shadow.model, inputs)

    evidence = _attacked(run.model, Recipe(fit, kind="fit"), patients, strangers, progress)
    return _with_evidence(release, "Diagnosis model, trained privately", run.model, evidence, patients, strangers)


def with_control(model: Model, overfit: Model) -> Model:
    """Add the positive control: the same attack detects the patients of the overfit model, so its silence here is evidence."""
    controls = [
        {"name": f"{evidence.attack} on the overfit model", "kind": "positive", "auc": evidence.auc(), "found": True,
         "tpr": {str(LEVEL): evidence.tpr(LEVEL)}}
        for evidence in overfit.release.evidence[:1]
    ]  # fmt: skip
    return replace(model, release=replace(model.release, facts={**model.release.facts, "controls": controls}))


def _run(X: Any, y: Any, **paid: Any) -> Run:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.4, momentum=0.9)
    return train(
        model, optimizer, (torch.as_tensor(X), torch.as_tensor(y)), nn.CrossEntropyLoss(reduction="none"), unit=record(),
        epsilon=EPSILON, delta=DELTA, rate=RATE, steps=STEPS, clip_norm=1.0, divisor=RATE * PATIENTS, **paid,
    )  # fmt: skip


def _attacked(model: Any, recipe: Recipe, patients: Cohort, strangers: Cohort, progress: Progress | None) -> MembershipResult:
    both = [(cohort.labs, cohort.diagnosis) for cohort in (patients, strangers)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about recipes unlike the model: these are like it
        return membership(model, recipe, *both, attacks=ATTACKS, shadows=SHADOWS, progress=progress)


def _predict(model: nn.Module, X: Any) -> Any:
    with torch.no_grad():
        return model(torch.as_tensor(X)).numpy()


def _with_evidence(
    release: Release[Any], title: str, model: nn.Module, evidence: MembershipResult, patients: Cohort, strangers: Cohort,
    refusal: str | None = None,
) -> Model:  # fmt: skip
    """The release with its evidence, and the facts that a report shows."""
    accuracy = [float((_predict(model, cohort.labs).argmax(1) == cohort.diagnosis).mean()) for cohort in (patients, strangers)]
    first = evidence[ATTACKS[0]]
    names = np.concatenate([patients.diagnosis, strangers.diagnosis])
    members = np.flatnonzero(first.inside)
    facts = {
        **release.facts, "title": title,
        "quality": {"accuracy on its patients": accuracy[0], "accuracy on strangers": accuracy[1]},
        "groups": [
            {"by": "diagnosis", "group": DIAGNOSES[group.group], "n": group.records, "tpr": {str(LEVEL): group.rate},
             "low": group.low, "high": group.high}
            for group in groups_of(first, names, fpr=LEVEL)
        ],
        "exposed": [
            {"index": int(i), "score": float(first.score[i])} for i in members[np.argsort(-first.score[members])][:MOST]
        ],
        "seeds": {"table": SEED, "shadows": 0}, "attack_settings": settings(evidence),
    }  # fmt: skip
    attacked = replace(release.add(*evidence.values()), facts=facts)
    return Model(attacked, (accuracy[0], accuracy[1]), first.tpr(LEVEL), refusal)
