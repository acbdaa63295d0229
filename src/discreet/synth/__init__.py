"""Private synthetic tables: counts are chosen and measured inside the engine, and rows are made from a model of them.

Names are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.synth.adaptive import Aim
    from discreet.synth.constraints import Forbidden, Implies, Ordered
    from discreet.synth.explanation import Explanation, explain
    from discreet.synth.methods import Independent, Tree
    from discreet.synth.model import Model, Sample
    from discreet.synth.oneshot import Junction
    from discreet.synth.schema import Column, Schema
    from discreet.synth.synthesis import Synthesis, fit

_HOME = {
    "Aim": "adaptive", "Forbidden": "constraints", "Implies": "constraints", "Ordered": "constraints",
    "Column": "schema", "Explanation": "explanation", "Independent": "methods", "Junction": "oneshot", "Model": "model",
    "Sample": "model", "Schema": "schema", "Synthesis": "synthesis", "Tree": "methods", "explain": "explanation",
    "fit": "synthesis",
}  # fmt: skip

__all__ = [
    "Aim", "Column", "Explanation", "Forbidden", "Implies", "Independent", "Junction", "Model", "Ordered", "Sample",
    "Schema",     "Synthesis", "Tree", "explain", "fit",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"discreet.synth has no {name!r}; it has {', '.join(__all__)}.")
    return getattr(import_module(f"discreet.synth.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
