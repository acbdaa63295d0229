"""The kinds of attack that are tried on a finished classifier, beside membership."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.attack.everything.case import Array, Case, Found, Part
from discreet.attack.pictures import thumbnail
from discreet.models import Trainer, predict

MOST_VALUES, MOST_COLUMNS, MOST_CLASSES = 8, 5, 20  # of a hidden column; columns asked about; classes recreated
QUERIES = 2_000_000  # of one theft
LEAST_SPREAD = 0.2  # between the smallest and the largest share of shadow models


@dataclass(frozen=True)
class Recreate:
    """Pictures of the classes, under a prior learned from non-members; a judge made of non-members says whom they show."""

    name: str = "model inversion"
    view: frozenset[str] = frozenset({"labels"})

    def lacks(self, case: Case) -> str | None:
        if case.picture is None:
            return "rows are no pictures; say their shape if they are."
        if case.others.dtype.kind == "O" or case.others.min() < 0 or case.others.max() > 1:
            return "pictures must have values within 0 and 1."
        return None

    def run(self, case: Case) -> Found:
        from discreet.attack.inversion import ClassInversion, PicturePrior

        shape = case.picture
        assert shape is not None
        public, labels = _pictures(case.others, case, shape), np.asarray(case.nonmembers[1])
        known = [place for place in range(case.classes) if (labels == place).any()][:MOST_CLASSES]
        attack = ClassInversion(PicturePrior.learned(public), seed=case.seed)

        def ask(pictures: Array) -> Array:
            return case.asked(_rows(pictures, case))

        if case.module is not None:
            found = attack.from_gradients(case.module, known)
        else:
            found = attack.from_labels(ask, known) if case.access == "labels" else attack.from_scores(ask, known)
        means = np.stack([public[labels == place].mean(axis=0) for place in known])
        blind = np.repeat(public.mean(axis=0)[None], len(known), axis=0)
        risk, _ = found.compared(lambda seen: _alike(seen, means, public), np.arange(len(known)), blind,
                                 confidence=case.confidence)  # fmt: skip
        picture = thumbnail([found.pictures, means])
        told = {name: value for name, value in risk.to_json().items() if name != "name"}
        return Found({"recreated": [{
            "method": found.method, "prior": "non-members", "classes": len(known), "queries": found.queries,
            "judge": "nearest class mean of non-members", **told, **({} if picture is None else {"picture": picture}),
        }]})  # fmt: skip


@dataclass(frozen=True)
class Steal:
    """The parameters, exactly, by what the model is: a linear model, a tree, or a ReLU network of one or two hidden layers."""

    name: str = "exact stealing"
    view: frozenset[str] = frozenset({"scores"})

    def lacks(self, case: Case) -> str | None:
        if case.others.ndim != 2 or case.others.dtype.kind == "O":
            return "rows are not flat rows of numbers."
        return (
            None if _kind(case.estimator) else "the model is no linear model, tree, or ReLU network of up to two hidden layers."
        )

    def run(self, case: Case) -> Found:
        from discreet.attack import stealing

        inner, rows = case.estimator, case.others.astype(np.float64)
        kind, model = _kind(inner), _doubled(inner) if predict.is_module(inner) else inner
        oracle, inputs = stealing.Oracle(model, most=QUERIES), rows.shape[1]
        if kind == "linear":
            linear = stealing.steal_linear(oracle, inputs, scale=float(np.abs(rows).mean()) or 1.0, seed=case.seed)
            told = {"parameters": linear.weights.size + linear.offset.size, "error": linear.error}
        elif kind == "tree":
            low, high = rows.min(axis=0) - 0.5, rows.max(axis=0) + 0.5
            told = {"leaves": stealing.steal_tree(oracle, low, high, rows=rows, seed=case.seed).leaves}
        else:
            relu = stealing.steal_relu(oracle, inputs, layers=int(kind[-1]), seed=case.seed)
            told = {"parameters": relu.parameters, "error": relu.error}
        answers = "logits, 64-bit" if predict.is_module(inner) else "scores"
        return Found({"stealing": [{"method": kind.rstrip("12"), "answers": answers, "queries": oracle.queries, **told}]})


@dataclass(frozen=True)
class Copy:
    """A copy learned from answers about half of the non-members, compared on the other half."""

    name: str = "stealing by a learned copy"
    view: frozenset[str] = frozenset({"labels"})

    def lacks(self, case: Case) -> str | None:
        if case.others.dtype.kind == "O":
            return "rows hold text."
        return None if len(case.others) >= 60 else "at least 60 non-members are needed, to ask about and to compare on."

    def run(self, case: Case) -> Found:
        from discreet.attack.stealing import Oracle, steal_approximate

        rows = case.others.reshape(len(case.others), -1)
        order = np.random.default_rng(case.seed).permutation(len(rows))
        pool, held = rows[order[len(rows) // 2 :]], rows[order[: len(rows) // 2]]
        answers = "labels" if case.access == "labels" else "scores"
        copy = steal_approximate(
            Oracle(case.asked), pool, held, budgets=(len(pool),), answers=answers, strategy="random", seed=case.seed,
            confidence=case.confidence,
        )  # fmt: skip
        last = copy.curve[-1]
        return Found({"stealing": [{
            "method": "learned copy", "answers": answers, "queries": last.queries, "agreement": last.share,
            "agreement_low": last.low, "agreement_high": last.high,
        }]})  # fmt: skip


@dataclass(frozen=True)
class Attribute:
    """Each column of few values, inferred from the model and all other columns (Fredrikson et al. 2014)."""

    name: str = "attribute inference"
    view: frozenset[str] = frozenset({"scores"})

    def lacks(self, case: Case) -> str | None:
        if case.picture is not None or case.others.ndim != 2:
            return "rows are pictures, not columns of a table."
        if case.encoded:
            return "a column with a list of values is several inputs of this model, which cannot be guessed one by one."
        return None if _few(case) else f"no column has 2 to {MOST_VALUES} values."

    def run(self, case: Case) -> Found:
        from discreet.attack.inversion import AttributeInference, infer

        X = np.concatenate([case.members[0], case.others])
        y = np.concatenate([case.members[1], case.nonmembers[1]])
        inside = np.arange(len(X)) < len(case.members[1])
        names = [_name(case, place) for place in range(X.shape[1])]
        table = dict(zip(names, X.T))

        def model(people: Mapping[str, Array]) -> Array:
            return case.asked(np.column_stack([people[name] for name in names]))

        facts, evidence = [], []
        for place in _few(case):
            values, counts = np.unique(X[:, place], return_counts=True)  # of both groups: neither is fitted better
            shares = dict(zip(values.tolist(), (counts / len(X)).tolist()))
            attack = AttributeInference(
                names[place], shares, classes=tuple(range(case.classes)), name=f"attribute inference of {names[place]}"
            )
            found = infer(attack, model, table, y, inside, confidence=case.confidence)
            facts.append(found.to_json())
            evidence.append(found.evidence)
        return Found({"inference": facts}, tuple(evidence))


@dataclass(frozen=True)
class Property:
    """What share of the training rows has each property, by shadow models that are trained as one job."""

    name: str = "property inference"
    view: frozenset[str] = frozenset({"scores"})

    def lacks(self, case: Case) -> str | None:
        if case.recipe is None:
            return "models like it must be trained; say how with a recipe."
        if case.others.dtype.kind == "O":
            return "rows hold text."
        if not case.properties:
            return "no property was named: a column with two groups."
        if not any(_range(case, has) for has in case.properties.values()):
            return (
                "shadows need about as many non-members with each property, and without, as there are members: "
                f"there are {len(case.others)} non-members and {len(case.members[1])} members."
            )
        return None

    def run(self, case: Case) -> Found:
        from discreet.attack.inversion import PropertyInference

        assert case.recipe is not None
        facts, X, y = [], case.others, np.asarray(case.nonmembers[1])
        for name, has in case.properties.items():
            ends = _range(case, has)
            if ends is None:
                continue
            attack = PropertyInference(len(case.members[1]), case.shadows, *ends, seed=case.seed)
            probes = X[np.random.default_rng(case.seed).permutation(len(X))[:200]]
            found = attack.infer(case.model, Trainer(case.recipe), X, y, has, probes, confidence=case.confidence)
            facts.append({**found.to_json(name), "shadows": case.shadows})
        return Found({"shares": facts})


PARTS: tuple[Part, ...] = (Recreate(), Attribute(), Property(), Steal(), Copy())


def _pictures(rows: Array, case: Case, shape: tuple[int, int, int]) -> Array:
    rows = np.asarray(rows, np.float64)
    return rows.transpose(0, 2, 3, 1) if rows.ndim == 4 else rows.reshape(-1, *shape)


def _rows(pictures: Array, case: Case) -> Array:
    return pictures.transpose(0, 3, 1, 2) if case.others.ndim == 4 else pictures.reshape(len(pictures), -1)


def _alike(seen: Any, means: Array, public: Array) -> Array:
    """Cosines of pictures with the mean of each class, both less the mean of all."""
    flat = [np.asarray(each, np.float64).reshape(len(each), -1) - public.mean(axis=0).ravel() for each in (seen, means)]
    left, right = (each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-12) for each in flat)
    return np.asarray(left @ right.T)


def _kind(model: Any) -> str:
    """How the model can be stolen exactly: linear, tree, relu1, relu2, or "" where it cannot."""
    if hasattr(model, "tree_") and hasattr(model, "get_n_leaves"):
        return "tree"
    if hasattr(model, "coef_") and hasattr(model, "intercept_"):
        return "linear"
    if not predict.is_module(model):
        return ""
    from torch import nn

    layers = [layer for layer in model.modules() if not list(layer.children()) and not isinstance(layer, nn.Flatten)]
    linear, relu = [isinstance(layer, nn.Linear) for layer in layers], [isinstance(layer, nn.ReLU) for layer in layers]
    wanted = [place % 2 == 0 for place in range(len(layers))]
    if linear != wanted or relu != [not each for each in wanted] or len(layers) not in (1, 3, 5):
        return ""
    return {1: "linear", 3: "relu1", 5: "relu2"}[len(layers)]


def _doubled(module: Any) -> Any:
    from copy import deepcopy

    return deepcopy(module).double().eval()


def _few(case: Case) -> list[int]:
    """Columns of few values, those of fewest first."""
    both = np.concatenate([case.members[0], case.others])
    counts = [(len(set(column.tolist())), place) for place, column in enumerate(both.T)]
    return [place for count, place in sorted(counts) if 2 <= count <= MOST_VALUES][:MOST_COLUMNS]


def _name(case: Case, place: int) -> str:
    return case.names[place] if case.names else f"column {place}"


def _range(case: Case, has: Array) -> tuple[float, float] | None:
    """The widest shares of shadow models that need no row twice, of as many rows as there are members."""
    wanted, marked = len(case.members[1]), np.asarray(has, np.bool_)
    least = max(0.05, 1 - int((~marked).sum()) / wanted)
    most = min(0.95, int(marked.sum()) / wanted)
    return (least, most) if most - least >= LEAST_SPREAD else None
