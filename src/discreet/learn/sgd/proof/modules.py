"""Modules, modes and runs: what is found beside a model in the process it is in."""

from __future__ import annotations

import gc
import importlib.util
import sys
import types
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from discreet.learn.sgd.proof.objects import foreign, foreign_class, foreign_function, of_place


def runs() -> tuple[type, ...]:
    kind = getattr(sys.modules.get("discreet.learn.sgd.run"), "Run", None)
    return () if kind is None else (kind,)


def of_user(module: Any) -> bool:
    """Whether a module is one of variables in Python, and no installed package's; what extensions make up is their own."""
    if type(module) is not types.ModuleType or foreign(module.__name__):
        return False
    return isinstance(getattr(module, "__file__", None), str) or module.__name__ == "__main__"


def own_file(name: str) -> bool:
    """Whether a module that is not imported yet would come from a file that is no installed package's."""
    parent = name.rpartition(".")[0]
    if parent and parent not in sys.modules:
        return own_file(parent)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    file = None if spec is None else spec.origin
    return isinstance(file, str) and file not in ("built-in", "frozen") and not of_place(file)


def modes() -> list[Any]:
    """What torch asks about every operation: contexts that somebody entered."""
    return [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]


def beside(contexts: bool = True) -> str | None:
    """Something of the user's that Python or torch would call during a step, and let see what is computed there."""
    if contexts and any(not foreign_class(type(mode)) for mode in modes()):
        return "a context that is asked about every operation"
    if any(map(_of_user, torch._C._autograd._top_saved_tensors_default_hooks(False) or ())):
        return "a context that is given what autograd keeps"
    if any(map(_of_user, (sys.gettrace(), sys.getprofile(), *gc.callbacks))):
        return "a function that Python calls beside the code that runs (sys.settrace, sys.setprofile, gc.callbacks)"
    return None


def _of_user(it: Any) -> bool:
    if isinstance(it, types.MethodType):
        return _of_user(it.__func__)
    if isinstance(it, types.FunctionType):
        return not foreign_function(it)
    return it is not None and not foreign_class(type(it))


def everywhere() -> list[Any]:
    """Hooks that torch calls for all modules, and active modes."""
    from torch.nn.modules import module

    return [*modes(), *(it for name, it in vars(module).items() if name.startswith("_global_") and isinstance(it, dict))]
