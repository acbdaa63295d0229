"""Private synthetic tables: counts are selected and measured inside the engine, and rows are sampled from a model of them.

Names are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.synth.adaptive import Aim
    from discreet.synth.constraints import Forbidden, Implies, Ordered
    from discreet.synth.explanation import Explanation, explain
    from discreet.synth.fidelity import Association, Distance, Fidelity, NoisyDistances, measure_fidelity, release_fidelity
    from discreet.synth.linked import LinkedSynthesis, explain_linked, fit_linked
    from discreet.synth.linked_model import LinkedModel, LinkedSample
    from discreet.synth.methods import Independent, Tree
    from discreet.synth.model import Model, Sample
    from discreet.synth.oneshot import Junction
    from discreet.synth.schema import Column, Schema
    from discreet.synth.stored import load, save
    from discreet.synth.synthesis import Synthesis, fit
    from discreet.synth.usefulness import Usefulness, train_on_synthetic

_HOME = {
    "Aim": "adaptive", "Forbidden": "constraints", "Implies": "constraints", "Ordered": "constraints",
    "Column": "schema", "Explanation": "explanation", "Independent": "methods", "Junction": "oneshot", "Model": "model",
    "Sample": "model", "Schema": "schema", "Synthesis": "synthesis", "Tree": "methods", "explain": "explanation",
    "LinkedModel": "linked_model", "LinkedSample": "linked_model", "LinkedSynthesis": "linked", "explain_linked": "linked",
    "fit": "synthesis", "fit_linked": "linked", "load": "stored", "save": "stored",
    "Association": "fidelity", "Distance": "fidelity", "Fidelity": "fidelity", "NoisyDistances": "fidelity",
    "Usefulness": "usefulness", "measure_fidelity": "fidelity", "release_fidelity": "fidelity",
    "train_on_synthetic": "usefulness",
}  # fmt: skip

__all__ = [
    "Aim", "Association", "Column", "Distance", "Explanation", "Fidelity", "Forbidden", "Implies", "Independent",
    "Junction", "LinkedModel", "LinkedSample", "LinkedSynthesis", "Model", "NoisyDistances", "Ordered", "Sample", "Schema",
    "Synthesis", "Tree", "Usefulness", "explain", "explain_linked", "fit", "fit_linked", "load", "measure_fidelity",
    "release_fidelity", "save", "train_on_synthetic",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"discreet.synth has no {name!r}; it has {', '.join(__all__)}.")
    return getattr(import_module(f"discreet.synth.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
