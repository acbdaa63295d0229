"""How well people are told apart: ratings known roughly (MovieLens-100k), and uniqueness in samples (Adult, ACS).

    python bench/link.py [--data FOLDER] [--out FILE]

Nobody is identified: the "acquaintance" knows some of a user's own released ratings, made inexact here, and the question is
whether the scoreboard finds the same anonymous user again. Each figure has five seeds.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from _record import write
from discreet.attack import Ratings, Scoreboard, approximate_knowledge, uniqueness
from discreet.audit import roc

SEEDS = range(5)


def spread(values: list[float]) -> dict[str, float]:
    return {"mean": round(statistics.mean(values), 4), "least": round(min(values), 4), "most": round(max(values), 4)}


def movielens(folder: Path) -> list[dict[str, Any]]:
    with gzip.open(folder / "ml-100k/u.data.gz") as file:
        table = np.loadtxt(file, dtype=np.int64)
    data = table[:, 0] - 1, table[:, 1] - 1, table[:, 2], table[:, 3] / 86400
    rows = []
    for days in (3, 14, None):
        for known in (2, 4, 8, 16):
            for wrong in (0, known // 4) if known > 2 else (0,):
                rows.append(rated(data, known, wrong, days))
                print(rows[-1])
    return rows


def rated(data: Any, known: int, wrong: int, days: int | None) -> dict[str, Any]:
    """All 943 users sought, with all released; then with each user released by a coin, to see who is not there."""
    user, item, stars, day = data
    everybody = Ratings(user=user, item=item, rating=stars, day=None if days is None else day)
    right, named, named_right, strangers, area, taken = [], [], [], [], [], []
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        aux = [
            approximate_knowledge(*data, who, count=known, random=random, wrong=wrong, days_off=days or 0) for who in range(943)
        ]
        began = time.process_time()
        found = [everybody.find(each) for each in aux]
        taken.append((time.process_time() - began) / 943 * 1000)
        hit, sure = (np.array([getattr(each, name) for each in found]) for name in ("user", "sure"))
        right.append(float((hit == np.arange(943)).mean()))
        named.append(float(sure.mean()))
        named_right.append(float((hit == np.arange(943))[sure].mean()) if sure.any() else 0.0)
        inside = random.random(943) < 0.5
        kept = inside[user]
        half = Ratings(user=user[kept], item=item[kept], rating=stars[kept], day=None if days is None else day[kept], users=943)
        score = Scoreboard().score(half, aux)
        strangers.append(float((score[~inside] >= 1.5).mean()))
        area.append(roc(score, inside).area())
    return {
        "known": known, "wrong": wrong, "days_off": days if days is not None else "no dates", "best_is_right": spread(right),
        "named": spread(named), "named_and_right_of_named": spread(named_right), "strangers_named": spread(strangers),
        "membership_area": spread(area), "cpu_ms_per_person": round(statistics.median(taken), 3),
    }  # fmt: skip


def tables(folder: Path) -> dict[str, dict[str, Any]]:
    import pandas as pd

    names = [
        "age",
        "workclass",
        "fnlwgt",
        "education",
        "education_num",
        "marital_status",
        "occupation",
        "relationship",
        "race",
        "sex",
        "capital_gain",
        "capital_loss",
        "hours_per_week",
        "native_country",
        "income",
    ]
    adult = pd.read_csv(folder / "adult/adult.data.gz", names=names, skipinitialspace=True)
    acs = pd.read_parquet(folder / "acs/acs_coded.parquet")
    return {
        "Adult, age sex race": (adult, ["age", "sex", "race"]),
        "Adult, age sex race marital education": (adult, ["age", "sex", "race", "marital_status", "education"]),
        "Adult, those and occupation hours country": (
            adult,
            ["age", "sex", "race", "marital_status", "education", "occupation", "hours_per_week", "native_country"],
        ),
        "ACS, area age sex": (acs, ["PUMA", "AGE", "SEX"]),
        "ACS, area age sex race education": (acs, ["PUMA", "AGE", "SEX", "RACE", "EDUC"]),
        "ACS, those and marital citizen income": (
            acs,
            ["PUMA", "AGE", "SEX", "RACE", "EDUC", "MARST", "CITIZEN", "INCTOT"],
        ),
    }  # type: ignore[return-value]


def samples(folder: Path) -> list[dict[str, Any]]:
    """The whole table is the population; a tenth of it is the released sample from which its uniqueness is estimated."""
    rows = []
    for name, (frame, quasi) in tables(folder).items():
        whole = {each: frame[each].to_numpy() for each in quasi}
        truth = uniqueness(whole, quasi)
        estimates: dict[str, list[float]] = {
            "sample_unique": [],
            "pitman": [],
            "zayatz": [],
            "match_right_estimate": [],
            "match_right": [],
        }
        for seed in SEEDS:
            chosen = np.random.default_rng(seed).choice(truth.rows, truth.rows // 10, replace=False)
            found = uniqueness({each: column[chosen] for each, column in whole.items()}, quasi)
            estimates["sample_unique"].append(found.share)
            for method in ("pitman", "zayatz"):
                estimates[method].append(found.population(0.1, method))
            estimates["match_right_estimate"].append(found.match_is_right(0.1))
            estimates["match_right"].append(right_matches(whole, quasi, chosen))
        row = {"table": name, "rows": truth.rows, "population_unique": round(truth.share, 4), "k": truth.k}
        rows.append({**row, **{each: spread(values) for each, values in estimates.items()}})
        print(rows[-1])
    return rows


def right_matches(whole: dict[str, Any], quasi: list[str], chosen: Any) -> float:
    """Of the population people who fit a sample-unique row, the share for whom it is the right one."""
    from discreet.columns import classes

    label, count = classes([whole[each] for each in quasi])
    there, here = np.bincount(label, minlength=count), np.bincount(label[chosen], minlength=count)
    return float((here == 1).sum() / there[here == 1].sum())


def many_users(users: int = 480_000, each: int = 36, items: int = 17_770, sought: int = 100) -> dict[str, Any]:
    """The size of the film prize, made up: how long one person takes to find among 17 million ratings."""
    random = np.random.default_rng(0)
    user = np.repeat(np.arange(users, dtype=np.int64), each)
    item = np.minimum((items * random.random(users * each) ** 3).astype(np.int64), items - 1)  # few items are popular
    stars, day = random.integers(1, 6, users * each), random.uniform(0, 2000, users * each)
    seen = Ratings(user=user, item=item, rating=stars, day=day)
    who = random.choice(users, sought, replace=False)
    rows = []
    for known in (4, 8):
        aux = []
        for person in who:
            mine = slice(person * each, (person + 1) * each)
            aux.append(
                approximate_knowledge(user[mine], item[mine], stars[mine], day[mine], person, count=known, random=random)
            )
        began = time.process_time()
        found = [seen.find(one) for one in aux]
        taken = (time.process_time() - began) / sought * 1000
        right = float(np.mean([one.user == person for one, person in zip(found, who)]))
        rows.append({"known": known, "best_is_right": right, "cpu_ms_per_person": round(taken, 1)})
    return {"users": users, "ratings": users * each, "sought": sought, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared/data")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results") / "link.json")
    given = parser.parse_args()
    found = {"seeds": list(SEEDS), "movielens_100k": movielens(given.data), "uniqueness": samples(given.data)}
    found["made_up_ratings"] = many_users()
    print(found["made_up_ratings"])
    write(given.out, found, "pandas")


if __name__ == "__main__":
    main()
