"""Process-wide settings of torch and Python that one unit's code could change for the next, and that are restored.

Generators of random numbers are seeded for every unit anew, from seeds that were drawn before the first of them ran.
"""

from __future__ import annotations

import decimal
import gc
import importlib.util
import locale
import os
import random
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from discreet.learn.sgd.proof.objects import foreign, foreign_class, foreign_function, of_place


def _denormal() -> bool:
    return bool((torch.full((1,), 1e-40, dtype=torch.float32) * 1.0)[0] == 0)


def _print_options() -> dict[str, Any]:
    options = torch._tensor_str.PRINT_OPTS
    return {name: getattr(options, name) for name in ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")}


def _set_print_options(saved: dict[str, Any]) -> None:
    for name, value in saved.items():
        setattr(torch._tensor_str.PRINT_OPTS, name, value)


def _autocast() -> tuple[Any, ...]:
    kinds = ("cpu", "cuda")
    return tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)


def _set_autocast(saved: tuple[Any, ...]) -> None:
    for kind, enabled, dtype in saved:
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)


def _set_environment(saved: dict[str, str]) -> None:
    for name in os.environ.keys() - saved.keys():
        del os.environ[name]
    os.environ.update(saved)


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(saved: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(saved[0], warn_only=saved[1])


def _filters() -> list[Any]:
    return list(warnings.filters)


def _set_filters(saved: list[Any]) -> None:
    warnings.filters[:] = saved  # type: ignore[index]
    warnings._filters_mutated() if hasattr(warnings, "_filters_mutated") else None


def _backends() -> tuple[Any, ...]:
    backends = torch.backends
    return (
        backends.mkldnn.enabled, backends.cudnn.enabled, backends.cudnn.benchmark, backends.cudnn.deterministic,
        backends.cuda.flash_sdp_enabled(), backends.cuda.mem_efficient_sdp_enabled(), backends.cuda.math_sdp_enabled(),
        backends.mha.get_fastpath_enabled(), torch.get_float32_matmul_precision(),
    )  # fmt: skip


def _set_backends(saved: tuple[Any, ...]) -> None:
    if saved == _backends():
        return
    torch._C._set_mkldnn_enabled(saved[0])
    torch._C._set_cudnn_enabled(saved[1])
    torch._C._set_cudnn_benchmark(saved[2])
    torch._C._set_cudnn_deterministic(saved[3])
    torch.backends.cuda.enable_flash_sdp(saved[4])
    torch.backends.cuda.enable_mem_efficient_sdp(saved[5])
    torch.backends.cuda.enable_math_sdp(saved[6])
    torch.backends.mha.set_fastpath_enabled(saved[7])
    torch.set_float32_matmul_precision(saved[8])


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _collector() -> tuple[Any, ...]:
    return (*gc.get_threshold(), gc.isenabled())


def _set_collector(saved: tuple[Any, ...]) -> None:
    gc.set_threshold(*saved[:3])
    gc.enable() if saved[3] else gc.disable()


def _decimals() -> tuple[Any, ...]:
    context = decimal.getcontext()
    flags = tuple(flag for mapping in (context.flags, context.traps) for flag in mapping.values())
    return context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, flags


def _set_decimals(saved: tuple[Any, ...]) -> None:
    context = decimal.getcontext()
    context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, flags = saved
    names = [*context.flags]
    for place, name in enumerate(names):
        context.flags[name], context.traps[name] = flags[place], flags[len(names) + place]


def _hooks() -> tuple[Any, ...]:
    return sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook


def _set_hooks(saved: tuple[Any, ...]) -> None:
    sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook = saved


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handlers() -> tuple[Any, ...]:
    """Signal handlers and running timers; only the main thread may change handlers."""
    timers = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF) if hasattr(signal, "getitimer") else ()
    known = tuple((number, signal.getsignal(number)) for number in signal.Signals) if _in_main_thread() else ()
    return known, tuple(timer for timer in timers if signal.getitimer(timer)[0])


def _set_handlers(saved: tuple[Any, ...]) -> None:
    current, running = _handlers()
    for (number, handler), (_, now) in zip(saved[0], current):
        if handler is not now and handler is not None:
            signal.signal(number, handler)
    for timer in set(running) - set(saved[1]):
        signal.setitimer(timer, 0)


def _limits() -> tuple[Any, ...]:
    try:
        import resource
    except ImportError:  # not on Windows
        return ()
    kinds = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})
    return tuple((kind, resource.getrlimit(kind)) for kind in kinds)


def _set_limits(saved: tuple[Any, ...]) -> None:
    import resource

    for kind, limit in saved:
        if resource.getrlimit(kind) != limit:
            resource.setrlimit(kind, limit)


def _set_paths(saved: list[str]) -> None:
    sys.path[:] = saved


SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (_deterministic, _set_deterministic),
    (torch.is_grad_enabled, torch._C._set_grad_enabled),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (_denormal, torch.set_flush_denormal),
    (_print_options, _set_print_options),
    (_autocast, _set_autocast),
    (_backends, _set_backends),
    (lambda: dict(os.environ), _set_environment),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (_filters, _set_filters),
    (sys.getswitchinterval, sys.setswitchinterval),
    (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    (_collector, _set_collector),
    (_decimals, _set_decimals),
    (np.geterr, lambda kept: np.seterr(**kept)),
    (np.get_printoptions, lambda kept: np.set_printoptions(**kept)),
    (_umask, os.umask),
    (os.getcwd, os.chdir),
    (_handlers, _set_handlers),
    (_hooks, _set_hooks),
    (lambda: list(sys.path), _set_paths),
    (torch.get_num_threads, torch.set_num_threads),
    (threading.stack_size, threading.stack_size),
    (lambda: locale.setlocale(locale.LC_ALL), lambda kept: locale.setlocale(locale.LC_ALL, kept)),
    (_limits, _set_limits),
)  # fmt: skip


def settings() -> list[Any]:
    return [get() for get, _ in SETTINGS]


def seed_torch(seed: int) -> None:
    """`torch.manual_seed`, without the stack trace that it formats for every kind of device that this torch is not built for.

    >>> seed_torch(7)
    >>> torch.initial_seed()
    7
    """
    own = hasattr(torch, torch._C._get_privateuse1_backend_name())
    if own or torch.backends.mps.is_built() or torch.xpu._is_compiled() or torch.mtia._is_compiled():
        torch.manual_seed(seed)
        return
    if torch.backends.cuda.is_built() and not torch.cuda._is_in_bad_fork():
        torch.cuda.manual_seed_all(seed)
    torch.default_generator.manual_seed(seed)


@contextmanager
def as_it_was(seed: int | None = None) -> Iterator[None]:
    """Restore the process's settings afterwards; generators begin at `seed` and are restored too."""
    before = settings()
    drawn = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=devices, enabled=seed is not None):
            if seed is not None:
                seed_torch(seed)
                random.seed(seed)
                np.random.seed(seed % 2**32)
            yield
    finally:
        for (get, put), saved in zip(SETTINGS, before, strict=True):
            if get() != saved:
                put(saved)
        random.setstate(drawn[0])
        np.random.set_state(drawn[1])


def runs() -> tuple[type, ...]:
    kind = getattr(sys.modules.get("discreet.learn.sgd.run"), "Run", None)
    return () if kind is None else (kind,)


def of_user(module: Any) -> bool:
    """Whether a module is Python code outside installed packages and extensions."""
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
    """The active modes that torch consults for every operation."""
    return [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]


def beside(contexts: bool = True) -> str | None:
    """A user's hook that Python or torch would call during a step with access to its values; None if there is none."""
    if contexts and any(not foreign_class(type(mode)) for mode in modes()):
        return "a context that is asked about every operation"
    if any(map(_of_user, torch._C._autograd._top_saved_tensors_default_hooks(False) or ())):
        return "a context that is given what autograd keeps"
    if any(map(_of_user, (sys.gettrace(), sys.getprofile(), *gc.callbacks))):
        return "a function that Python calls beside the code that runs (sys.settrace, sys.setprofile, gc.callbacks)"
    return None


def _of_user(obj: Any) -> bool:
    if isinstance(obj, types.MethodType):
        return _of_user(obj.__func__)
    if isinstance(obj, types.FunctionType):
        return not foreign_function(obj)
    return obj is not None and not foreign_class(type(obj))


def everywhere() -> list[Any]:
    """Hooks that torch calls for all modules, and active modes."""
    from torch.nn.modules import module

    return [
        *modes(),
        *(value for name, value in vars(module).items() if name.startswith("_global_") and isinstance(value, dict)),
    ]
