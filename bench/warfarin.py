"""Model inversion of a warfarin dosing model, and what private models cost and save (Fredrikson et al. 2014).

    python bench/warfarin.py DATA [--runs 20] [--out bench/results/warfarin.json]
    python bench/warfarin.py --plots docs/guides bench/results/warfarin.json

DATA holds warfarin-iwpc/. In each run a fair coin puts each patient into the training half or outside; the dosing regression
(root of the weekly dose on demographics, two drugs and two genes, as the consortium published) is fitted to the members. The
attack knows a patient's other columns and stable dose and guesses a gene. It is compared with the commonest genotype, with a
logistic regression trained for the gene on members and asked about the others ("ideal"), and with the same attack on the
patients outside. It is run with the marginal frequencies of genotypes, as published, and with those within each race.

The trials are simulated, and the simulation is a schema, not medicine: a patient's INR follows dose with a lag of days, to
2.5 where the dose is right; a clinic looks weekly and moves the dose by its rule; each day adds risk by the INR band. Bands and
relative risks are round numbers in the spirit of the literature, from memory. Read differences between models, never levels.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression as Plain
from sklearn.linear_model import LogisticRegression

from _lines import plot
from _record import write
from discreet import record
from discreet.attack import AttributeInference, infer
from discreet.audit import epsilon_at_least
from discreet.learn import LinearRegression

GENES = {"vkorc1": ("A/A", "A/G", "G/G"), "cyp2c9": ("*1/*1", "*1/*2", "*1/*3", "*2/*2", "*2/*3", "*3/*3")}
RACES = ("White", "Asian", "Black or African American", "Unknown")
EPSILONS, DELTA = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0), 1e-6
ROOT_DOSE = (0.0, 12.0)  # public: no weekly dose is above 144 mg
Table = dict[str, Any]


def patients(folder: Path) -> tuple[Table, np.ndarray]:
    """The complete cases: columns, and weekly doses in mg."""
    frame = pd.read_csv(folder / "warfarin-iwpc/warfarin.csv.gz", low_memory=False)
    table = pd.DataFrame({
        "age": pd.to_numeric(frame["Age"].str[:1], errors="coerce"),
        "height": frame["Height (cm)"], "weight": frame["Weight (kg)"], "race": frame["Race"],
        "inducer": frame[["Carbamazepine (Tegretol)", "Phenytoin (Dilantin)", "Rifampin or Rifampicin"]].max(axis=1).fillna(0),
        "amiodarone": frame["Amiodarone (Cordarone)"].fillna(0),
        "vkorc1": frame["VKORC1 -1639 consensus"], "cyp2c9": frame["CYP2C9 consensus"],
        "dose": frame["Therapeutic Dose of Warfarin"],
    }).dropna()  # fmt: skip
    table = table[table["cyp2c9"].isin(GENES["cyp2c9"]) & table["dose"].between(1, 144)]
    return {name: table[name].to_numpy() for name in table if name != "dose"}, table["dose"].to_numpy(float)


def encoded(table: Table, without: str = "") -> np.ndarray:
    """Columns in [0, 1], by public ranges; [rows, features]."""
    parts = [
        np.asarray(table["age"], float) / 9, (np.asarray(table["height"], float).clip(120, 210) - 120) / 90,
        (np.asarray(table["weight"], float).clip(30, 180) - 30) / 150,
        np.asarray(table["inducer"], float), np.asarray(table["amiodarone"], float),
        *(np.asarray(table["race"] == race, float) for race in RACES[1:]),
    ]  # fmt: skip
    for gene, values in GENES.items():
        if gene != without:
            parts += [np.asarray(table[gene] == value, float) for value in values[1:]]
    return np.stack(parts, axis=1)


NORM = 8**0.5  # public: three numbers up to 1, two drugs, one race, two genes


def private(epsilon: float, x: np.ndarray, y: np.ndarray) -> Any:
    return LinearRegression(epsilon=epsilon, delta=DELTA, norm=NORM, bounds=ROOT_DOSE, unit=record()).fit(x, y)


def shares(column: np.ndarray, values: tuple[str, ...]) -> dict[str, float]:
    return {value: float((column == value).mean()) for value in values}


def attacked(
    table: Table, dose: np.ndarray, inside: np.ndarray, gene: str, model: Any, error: float, run: int, by_race: bool
) -> Any:
    by = {"race": {race: shares(table[gene][table["race"] == race], GENES[gene]) for race in RACES}} if by_race else {}
    attack = AttributeInference(gene, shares(table[gene], GENES[gene]), error=error, by=by)
    return infer(
        attack,
        lambda rows: model.predict(encoded(rows)),
        table,
        np.sqrt(dose),
        inside,
        design="canary",
        run=np.full(len(dose), run),
    )


def ideal(table: Table, dose: np.ndarray, inside: np.ndarray, gene: str) -> float:
    """A model trained for the gene on members, asked about the others."""
    x = np.hstack([encoded(table, gene), np.sqrt(dose)[:, None]])
    fitted = LogisticRegression(max_iter=2000, C=10.0).fit(x[inside], table[gene][inside])
    return float(fitted.score(x[~inside], table[gene][~inside]))


DAYS, LAG, TARGET = 90, 4.0, 2.5
BANDS = np.array([1.5, 2.0, 3.0, 4.0, 6.0])
STROKE = np.array([6.0, 3.0, 1.0, 1.0, 1.0, 1.0])  # relative to INR 2 to 3
BLEED = np.array([0.8, 0.9, 1.0, 2.5, 6.0, 15.0])
DEATH = np.array([2.5, 1.5, 1.0, 1.5, 3.0, 8.0])


def trial(start: np.ndarray, right: np.ndarray, random: np.random.Generator) -> dict[str, float]:
    """Ninety days of patients who start at a dose: mean daily relative risks, and the share of days within INR 2 to 3."""
    dose, inr = start.copy(), np.ones(len(start))
    stroke, bleed, death, good = 0.0, 0.0, 0.0, 0.0
    for day in range(1, DAYS + 1):
        goal = 1 + (TARGET - 1) * (dose / right) ** 1.3
        inr += (goal - inr) / LAG
        seen = inr * np.exp(random.normal(0, 0.1, len(inr)))
        if day % 7 == 0:
            dose = dose * np.select([seen < 1.5, seen < 2, seen <= 3, seen <= 4, seen <= 6], [1.15, 1.07, 1.0, 0.93, 0.85], 0.5)
        band = np.digitize(inr, BANDS)
        stroke, bleed, death = stroke + STROKE[band].mean(), bleed + BLEED[band].mean(), death + DEATH[band].mean()
        good += float(((inr >= 2) & (inr <= 3)).mean())
    return {"stroke": stroke / DAYS, "bleeding": bleed / DAYS, "mortality": death / DAYS, "in_range": good / DAYS}


def one(table: Table, dose: np.ndarray, run: int) -> list[dict[str, Any]]:
    inside = np.random.default_rng(run).random(len(dose)) < 0.5
    x, y, out = encoded(table), np.sqrt(dose), []
    models = {"not private": (None, Plain().fit(x[inside], y[inside]))}
    models |= {f"private {epsilon:g}": (epsilon, private(epsilon, x[inside], y[inside])) for epsilon in EPSILONS}
    for name, (epsilon, model) in models.items():
        said = np.clip(model.predict(x), 1.5, 12.0)
        error = float(np.std(said[inside] - y[inside]))
        kinds = {f"{gene}{more}": (gene, bool(more)) for gene in GENES for more in ("", ", frequencies by race")}
        found = {
            kind: attacked(table, dose, inside, gene, model, error, run, by_race) for kind, (gene, by_race) in kinds.items()
        }
        out.append({
            "run": run, "model": name, "epsilon": epsilon, "error_mg": float(np.abs(said**2 - dose)[~inside].mean()),
            "r2": float(1 - np.var(said[~inside] - y[~inside]) / np.var(y[~inside])),
            "trial": trial((said**2)[~inside], dose[~inside], np.random.default_rng(run)),
            "attack": {gene: {**each.to_json(), "evidence_auc": each.evidence.auc()} for gene, each in found.items()},
            "scores": {gene: each.evidence for gene, each in found.items()},
        })  # fmt: skip
    fixed = trial(np.full((~inside).sum(), 35.0), dose[~inside], np.random.default_rng(run))
    out.append({"run": run, "model": "35 mg for everybody", "epsilon": None, "trial": fixed,
                "error_mg": float(np.abs(35 - dose)[~inside].mean())})  # fmt: skip
    for gene in GENES:
        out.append({"run": run, "model": "ideal", "gene": gene, "accuracy": ideal(table, dose, inside, gene)})
    return out


def floors(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All runs' scores of one model together, as evidence: epsilon that the attack alone proves, at confidence .95."""
    from discreet.core import Evidence

    out: dict[str, Any] = {}
    for row in rows:
        for gene, seen in row.pop("scores", {}).items():
            out.setdefault(row["model"], {}).setdefault(gene, []).append(seen)
    for kinds in out.values():
        for gene, seen in kinds.items():
            parts = {name: np.concatenate([getattr(each, name) for each in seen]) for name in ("score", "inside", "run")}
            whole = Evidence(game=seen[0].game, attack=seen[0].attack, design="canary", **parts)
            kinds[gene] = {"auc": whole.auc(), "epsilon_at_least": epsilon_at_least(whole, delta=DELTA, confidence=0.95)}
    return out


def mean_of(rows: list[dict[str, Any]], model: str, *path: str) -> float:
    found: list[Any] = [row for row in rows if row["model"] == model]
    for key in path:
        found = [each[key] for each in found]
    return float(np.mean(found))


def plots(results: Path, folder: Path) -> None:
    """Both plots of the study: how often the gene is right, and the simulated risks, by epsilon."""
    rows = json.loads(results.read_text())["results"]
    names = {epsilon: f"private {epsilon:g}" for epsilon in EPSILONS}
    kind = "vkorc1, frequencies by race"
    told = {
        who: [(epsilon, mean_of(rows, name, "attack", gene, side)) for epsilon, name in names.items()]
        for gene, side, who in (
            (kind, "members", "members, frequencies by race"), (kind, "control", "people outside, frequencies by race"),
            ("vkorc1", "members", "members, marginal frequencies"),
            ("vkorc1", "control", "people outside, marginal frequencies"),
        )
    }  # fmt: skip
    levels = {"commonest genotype": mean_of(rows, "not private", "attack", "vkorc1", "baseline")}
    levels["not private, frequencies by race"] = mean_of(rows, "not private", "attack", kind, "members")
    drawn = plot("share of VKORC1 genotypes guessed right", "epsilon of the dosing model", told, levels, 0.3, 0.8)
    (folder / "warfarin-inversion.svg").write_text(drawn)
    usual = {risk: mean_of(rows, "not private", "trial", risk) for risk in ("stroke", "bleeding", "mortality")}
    risks = {
        risk: [(epsilon, mean_of(rows, name, "trial", risk) / usual[risk]) for epsilon, name in names.items()] for risk in usual
    }
    fixed = {f"{risk}, 35 mg for everybody": mean_of(rows, "35 mg for everybody", "trial", risk) / usual[risk]
             for risk in ("bleeding", "mortality")}  # fmt: skip
    drawn = plot("simulated risk against the model without privacy", "epsilon of the dosing model", risks, fixed, 0.9, 1.4)
    (folder / "warfarin-risks.svg").write_text(drawn)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("data", type=Path)
    asked.add_argument("--runs", type=int, default=20)
    asked.add_argument("--out")
    asked.add_argument("--plots", type=Path)
    given = asked.parse_args()
    if given.plots:
        return plots(given.data, given.plots)
    began = time.process_time()
    table, dose = patients(given.data)
    rows: list[dict[str, Any]] = []
    for run in range(given.runs):
        rows += one(table, dose, run)
        print(json.dumps({k: v for k, v in rows[-1].items() if k != "scores"}), time.process_time() - began, flush=True)
    found = floors(rows)
    summary(rows, found)
    spent = {"cpu_s": time.process_time() - began}
    write(given.out, {"delta": DELTA, "patients": len(dose), **spent, "game": found, "results": rows}, "scikit-learn")


def summary(rows: list[dict[str, Any]], found: dict[str, Any]) -> None:
    names = list(dict.fromkeys(row["model"] for row in rows))
    for name in names:
        some = [row for row in rows if row["model"] == name]
        if name == "ideal":
            for gene in GENES:
                print(name, gene, f"{np.mean([row['accuracy'] for row in some if row['gene'] == gene]):.4f}")
            continue
        mean = {key: round(float(np.mean([row["trial"][key] for row in some])), 3) for key in some[0]["trial"]}
        print(f"{name:22} mg {np.mean([row['error_mg'] for row in some]):6.2f}", mean)
        for gene in some[0].get("attack", ()):
            hit = {key: round(float(np.mean([row["attack"][gene][key] for row in some])), 4)
                   for key in ("members", "control", "baseline", "auc_members", "auc_control")}  # fmt: skip
            print(f"   {gene}", hit, found[name][gene])


if __name__ == "__main__":
    main()
