"""Private learning: models that carry the claim they were trained under.

Names are loaded when first used: `import discreet.learn` does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.learn.estimators import (
        PCA,
        GaussianNB,
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
        KBinsDiscretizer,
        KMeans,
        LinearRegression,
        LinearSVC,
        LogisticRegression,
        OneHotEncoder,
        PrivateSearchCV,
        Ridge,
        StandardScaler,
    )
    from discreet.learn.pate import PATE
    from discreet.learn.recommend import Recommender
    from discreet.learn.sgd.banded import BandMF
    from discreet.learn.sgd.canary import Aligned, Training, replay_run
    from discreet.learn.sgd.clipping import Automatic, Encoded, FixedPoint, Flat, PerLayer
    from discreet.learn.sgd.evaluation import evaluate
    from discreet.learn.sgd.files import read
    from discreet.learn.sgd.gradient_canaries import GradientCanaries, inject_gradient_canaries
    from discreet.learn.sgd.options import Augment, Checkpoint, Performance, Postprocess, StudentNoise
    from discreet.learn.sgd.postprocess import Average, encode, shrink
    from discreet.learn.sgd.projected import projected
    from discreet.learn.sgd.quantile import Adaptive
    from discreet.learn.sgd.run import Run, Step
    from discreet.learn.sgd.sampling import BallsInBins, Poisson
    from discreet.learn.sgd.train import train

__all__ = [
    "PATE", "PCA", "Adaptive", "Aligned", "Augment", "Automatic", "Average", "BallsInBins", "BandMF", "Checkpoint",
    "Encoded", "FixedPoint", "Flat", "GaussianNB", "GradientCanaries", "HistGradientBoostingClassifier",
    "HistGradientBoostingRegressor", "KBinsDiscretizer", "KMeans", "LinearRegression", "LinearSVC", "LogisticRegression",
    "OneHotEncoder", "PerLayer", "Performance", "Poisson", "Postprocess", "PrivateSearchCV",
    "Recommender", "Ridge", "Run", "StandardScaler", "Step", "StudentNoise", "Training", "encode",
    "evaluate", "inject_gradient_canaries", "projected", "read", "replay_run", "shrink", "train",
]  # fmt: skip

_MODULES = {
    "estimators": (
        "PCA", "GaussianNB", "HistGradientBoostingClassifier", "HistGradientBoostingRegressor", "KBinsDiscretizer",
        "KMeans", "LinearRegression", "LinearSVC", "LogisticRegression", "OneHotEncoder", "PrivateSearchCV", "Ridge",
        "StandardScaler",
    ),
    "pate": ("PATE",),
    "recommend": ("Recommender",),
    "sgd.banded": ("BandMF",),
    "sgd.canary": ("Aligned", "Training", "replay_run"),
    "sgd.clipping": ("Automatic", "Encoded", "FixedPoint", "Flat", "PerLayer"),
    "sgd.evaluation": ("evaluate",),
    "sgd.files": ("read",),
    "sgd.options": ("Augment", "Checkpoint", "Performance", "Postprocess", "StudentNoise"),
    "sgd.gradient_canaries": ("GradientCanaries", "inject_gradient_canaries"),
    "sgd.postprocess": ("Average", "encode", "shrink"),
    "sgd.projected": ("projected",),
    "sgd.quantile": ("Adaptive",),
    "sgd.run": ("Run", "Step"),
    "sgd.sampling": ("BallsInBins", "Poisson"),
    "sgd.train": ("train",),
}  # fmt: skip
_HOME = {name: module for module, names in _MODULES.items() for name in names}

_PACKAGES = ("estimators", "features", "layers", "pate", "recommend", "table")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    from discreet.errors import DiscreetError, MissingExtra

    if name not in _HOME and name not in _PACKAGES:
        raise AttributeError(f"discreet.learn has no {name!r}; it has {', '.join(__all__)}.")
    try:
        if name in _PACKAGES:
            return import_module(f"discreet.learn.{name}")
        return getattr(import_module(f"discreet.learn.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if isinstance(error, DiscreetError) or error.name is None or error.name.startswith("discreet"):
            raise
        extra = "sklearn" if error.name == "sklearn" else "torch"
        raise MissingExtra(error.name, extra, "Private learning") from None


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES])
