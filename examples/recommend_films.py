"""A private recommender: noisy item effects are released once, predictions are made from one's own ratings."""

import numpy as np

import discreet
from discreet.accounting import curve
from discreet.learn import Recommender

random = np.random.default_rng(0)
USERS, FILMS, EACH = 4000, 40, 12
films = [f"film {i}" for i in range(FILMS)]
who = np.repeat(np.arange(USERS), EACH)
film = np.concatenate([random.permutation(FILMS)[:EACH] for _ in range(USERS)])
good, generous = random.normal(0, 0.6, FILMS), random.normal(0, 0.4, USERS)
taste = np.where(random.random(USERS) < 0.5, 1, -1)[who] * np.where(film % 2 == 0, 1, -1)  # even films or odd ones
stars = np.clip(np.round(3 + good[film] + generous[who] + 0.7 * taste + random.normal(0, 0.5, len(who))), 1, 5)
test = random.random(len(who)) < 0.1
train = {"user": who[~test], "item": np.array(films)[film[~test]], "rating": stars[~test]}

for unit in (discreet.record(), discreet.user("user", rows=None)):
    for method in ("effects", "knn"):
        how = {"items": films, "bounds": (1, 5), "unit": unit, "method": method}
        model = Recommender(epsilon=8.0, delta=1e-6, **how).fit(train)
        off = []
        for person in range(300):
            mine = dict(zip(np.array(films)[film[(who == person) & ~test]], stars[(who == person) & ~test]))
            asked = (who == person) & test
            if asked.any():
                off += list(model.predict(mine, np.array(films)[film[asked]].tolist()) - stars[asked])
        proven = curve(model.release_.claims[0].event).epsilon(1e-6)
        print(f"{unit.name:7} {method:8} RMSE {np.sqrt(np.mean(np.square(off))):.3f}, epsilon {proven:.2f}")
print("next for the last one asked:", model.recommend(mine, 3))
