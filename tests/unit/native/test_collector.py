"""No reference cycle is collected while the collector is paused, and afterwards it is as before, errors or not."""

from __future__ import annotations

import gc
import weakref

import pytest

from discreet.native.collector import gc_paused


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def eager():
    """Python collects at every chance."""
    threshold, was = gc.get_threshold(), gc.isenabled()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*threshold)
    (gc.enable if was else gc.disable)()


def collected() -> bool:
    """Whether an unreachable cycle is gone after a while."""
    enabled = gc.isenabled()
    gc.disable()  # a cycle that survives a collection moves to an older generation, which is collected seldom
    cycle = weakref.ref(Cycle())
    if enabled:
        gc.enable()
    _ = [[] for _ in range(1000)]
    return cycle() is None


def test_cycles_are_kept():
    gc.enable()
    assert collected()
    with gc_paused():
        assert not collected()
    assert collected()


@pytest.mark.parametrize("enabled", [True, False])
def test_after_an_error_all_is_as_before(enabled):
    (gc.enable if enabled else gc.disable)()
    with pytest.raises(RuntimeError), gc_paused():
        raise RuntimeError("a model that cannot be recorded")
    assert gc.isenabled() is enabled
