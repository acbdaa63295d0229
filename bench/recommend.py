"""Private recommenders on MovieLens-100k, and on a generated table of ten million ratings.

    python bench/recommend.py DATA [--splits 3] [--out bench/results/recommend.json]

DATA holds ml-100k/. A tenth of the ratings is held out at random; delta is 1e-5. The curves are RMSE by epsilon for item
effects, kNN and SVD at rating level, and item effects and alternating least squares at user level; beside them the mean of each
item without privacy and without users. Constants of the summaries and of the shrinkage were set on the first split, those of
the least squares on a generated table of another seed, with that split looked at beside it. The attack knows everybody's
ratings and asks who is in the data: the score is how far the released sums lie from what is expected, in the direction in
which that user moves them; a fair coin decides for each user.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from _record import write
from discreet import record, user
from discreet.audit import epsilon_at_least
from discreet.core import Evidence
from discreet.learn import Recommender
from discreet.learn.recommend import Summaries
from discreet.learn.recommend.factors import random_factors, round_sums

DELTA, NONE, PERSON = 1e-5, 1e6, user("user", rows=None)
EPSILONS = (0.1, 0.3, 1.0, 4.0, 10.0, 30.0, 100.0, NONE)
CURVES = (("rating", "effects"), ("rating", "knn"), ("rating", "svd"), ("user", "effects"), ("user", "als"))
UNITS = {"rating": record(), "user": PERSON}


def row(**found: Any) -> dict[str, Any]:
    print(json.dumps(found), flush=True)
    return found


def error(model: Recommender, train: pd.DataFrame, test: pd.DataFrame) -> float:
    own = {who: dict(zip(group.item, group.rating)) for who, group in train.groupby("user")}
    off = [
        model.predict(own.get(who, {}), group.item.tolist()) - group.rating.to_numpy() for who, group in test.groupby("user")
    ]
    return float(np.sqrt(np.mean(np.concatenate(off) ** 2)))


def item_mean(train: pd.DataFrame, test: pd.DataFrame) -> float:
    means = test.item.map(train.groupby("item").rating.mean()).fillna(train.rating.mean())
    return float(np.sqrt(((means - test.rating) ** 2).mean()))


def fitted(train: Any, items: list[int], level: str, epsilon: float, method: str) -> Recommender:
    return Recommender(
        epsilon=epsilon, delta=DELTA, items=items, bounds=(1, 5), unit=UNITS[level], method=method
    ).fit(train)  # fmt: skip


def curves(ratings: pd.DataFrame, items: list[int], splits: int) -> list[dict[str, Any]]:
    out = []
    for split in range(splits):
        held = np.random.default_rng(split).random(len(ratings)) < 0.1
        train, test = ratings[~held], ratings[held]
        out.append(row(part="curve", method="item mean", level="none", split=split, rmse=item_mean(train, test)))
        for level, method in CURVES:
            for epsilon in EPSILONS:
                found = error(fitted(train, items, level, epsilon, method), train, test)
                out.append(row(part="curve", method=method, level=level, split=split, epsilon=epsilon, rmse=found))
    return out


def growth(ratings: pd.DataFrame, items: list[int], splits: int) -> list[dict[str, Any]]:
    """The loss at user-level epsilon 1 when only the first ratings by time are there."""
    out, ordered = [], ratings.sort_values("ts")
    for split in range(splits):
        for share in (0.1, 0.25, 0.5, 1.0):
            some = ordered.iloc[: int(len(ordered) * share)]
            held = np.random.default_rng(split).random(len(some)) < 0.1
            train, test = some[~held], some[held]
            loss = [error(fitted(train, items, "user", epsilon, "effects"), train, test) for epsilon in (1.0, NONE)]
            out.append(row(part="growth", split=split, ratings=len(train), private=loss[0], not_private=loss[1]))
    return out


def linked(ratings: pd.DataFrame, items: list[int], runs: int) -> list[dict[str, Any]]:
    """Who is in the data, by an attacker who knows their ratings."""
    out = []
    who = np.unique(ratings.user)
    place = ratings.user.map({each: i for i, each in enumerate(who)}).to_numpy()
    item, value = ratings.item.to_numpy() - 1, (ratings.rating.to_numpy() - 3) / 2
    rows = [np.flatnonzero(place == each) for each in range(len(who))]
    for epsilon in (1.0, 4.0, 10.0, NONE):
        made, parts = Summaries(len(items), PERSON, epsilon, DELTA, False), []
        expected = made.effect_sums(place, item, value) / 2
        each = [made.effect_sums(np.zeros(len(part), np.int64), item[part], value[part]) for part in rows]
        for run in range(runs):
            inside = np.random.default_rng(run).random(len(who)) < 0.5
            kept = inside[place]
            more = made.run((place[kept], item[kept], value[kept])) - expected
            parts.append((np.stack(each) @ more, inside, np.full(len(who), run)))
        score, inside, number = (np.concatenate(part) for part in zip(*parts))
        game = made.claims()[0].game
        found = Evidence(game=game, attack="sums", score=score, inside=inside, run=number, design="canary")
        floor = epsilon_at_least(found, delta=DELTA, confidence=0.95)
        out.append(row(part="linkage", epsilon=epsilon, auc=found.auc(), epsilon_at_least=floor, targets=len(found)))
    return out


def large(tastes: int, count: int = 10_000_000, users: int = 70_000, items: int = 10_000) -> list[dict[str, Any]]:
    """Ratings drawn by a model of levels and `tastes` factors, popular items first; some users' ratings are held out."""
    rng = np.random.default_rng(0)
    popular = 1 / np.arange(1, items + 1) ** 0.8
    item = rng.choice(items, count, p=popular / popular.sum())
    who = rng.integers(users, size=count)
    level, liked = rng.normal(0, 0.4, users), rng.normal(0, 0.45, items)
    expected = 3.5 + level[who] + liked[item]
    for _ in range(tastes):
        expected += (rng.normal(size=users)[who] * rng.normal(0, 0.35, items)[item]).astype(np.float32)
    rating = np.clip(np.round(expected + rng.normal(0, 0.9, count)), 1, 5)
    held = rng.random(count) < 0.02
    train = {"user": who[~held], "item": item[~held], "rating": rating[~held]}
    asked = who < 1500
    own, test = (
        pd.DataFrame({"user": who[part], "item": item[part], "rating": rating[part]}) for part in (asked & ~held, asked & held)
    )
    out, users_, items_, value = [], train["user"], train["item"], (train["rating"] - 3) / 2
    for method in ("effects", "als") if tastes else ("effects",):
        for epsilon in (1.0, 10.0, NONE):
            began = time.process_time()
            model = fitted(train, list(range(items)), "user", epsilon, method)
            spent = time.process_time() - began
            found = {"ratings": len(value), "rmse": error(model, own, test), "cpu_s": spent}
            out.append(row(part="large", tastes=tastes, method=method, epsilon=epsilon, **found))
    began = time.process_time()
    if tastes:
        round_sums(users_, items_, value, random_factors(items, 6))
    else:
        Summaries(items, PERSON, 10.0, DELTA, False).effect_sums(users_, items_, value)
    out.append(row(part="pass", tastes=tastes, ratings_per_cpu_s=len(value) / (time.process_time() - began)))
    return out


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("data", type=Path)
    asked.add_argument("--splits", type=int, default=3)
    asked.add_argument("--out")
    given = asked.parse_args()
    began = time.process_time()
    ratings = pd.read_csv(given.data / "ml-100k/u.data.gz", sep="\t", names=["user", "item", "rating", "ts"])
    items = list(range(1, 1683))
    results = [
        *linked(ratings, items, 10),
        *curves(ratings, items, given.splits),
        *growth(ratings, items, given.splits),
        *large(tastes=0),
        *large(tastes=4),
    ]
    write(given.out, {"delta": DELTA, "cpu_s": time.process_time() - began, "results": results}, "scikit-learn")


if __name__ == "__main__":
    main()
