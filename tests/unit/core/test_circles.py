"""Nothing that lies in circles is freed while it is kept, whatever happens meanwhile, and all is as before after it."""

from __future__ import annotations

import gc
import weakref

import pytest

from discreet.core import circles


class Circle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def eager():
    """Python sweeps at every chance."""
    threshold, was = gc.get_threshold(), gc.isenabled()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*threshold)
    (gc.enable if was else gc.disable)()


def lost() -> bool:
    """Whether a circle that nobody holds is gone after a while."""
    swept = gc.isenabled()
    gc.disable()  # swept while somebody still holds it, it would be old, and looked at seldom
    circle = weakref.ref(Circle())
    if swept:
        gc.enable()
    _ = [[] for _ in range(1000)]
    return circle() is None


def test_circles_are_kept():
    gc.enable()
    assert lost()
    with circles.kept():
        assert not lost()
    assert lost()


@pytest.mark.parametrize("swept", [True, False])
def test_after_an_error_all_is_as_before(swept):
    (gc.enable if swept else gc.disable)()
    with pytest.raises(RuntimeError), circles.kept():
        raise RuntimeError("a model that cannot be recorded")
    assert gc.isenabled() is swept
