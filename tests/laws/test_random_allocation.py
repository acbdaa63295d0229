"""Laws of random allocation, whatever a step is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.accounting import (
    DiscreteGaussian,
    Gaussian,
    Laplace,
    Poisson,
    Pure,
    RandomAllocation,
    RandomizedResponse,
    Repeat,
    curve,
    renyi,
)

noise = st.floats(0.3, 50)
step = st.one_of(
    noise.map(Gaussian),
    noise.map(Laplace),
    st.floats(0.01, 3).map(Pure),
    st.builds(RandomizedResponse, st.floats(0.01, 3), st.integers(2, 20)),
    st.builds(DiscreteGaussian, noise, st.integers(1, 4)),
    st.builds(Poisson, st.floats(0.01, 1), noise.map(Gaussian)),
)
bins = st.integers(2, 300)
few = settings(max_examples=15, deadline=None)
SLACK = 5e-3  # grids differ: equal things agree to this


@few
@given(step, bins, st.sampled_from([1, 7]), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_allocation_never_hurts_and_more_bins_help(what, places, passes, small):
    alone, among, more = (
        curve(Repeat(event, passes)).epsilon(small)
        for event in (what, RandomAllocation(what, places), RandomAllocation(what, 2 * places))
    )
    assert among <= alone * (1 + SLACK)
    assert more <= among * (1 + SLACK)


@few
@given(noise, bins, st.floats(1.1, 100))
def test_renyi_never_exceeds_that_of_the_step(sigma, places, order):
    assert 0 <= renyi(RandomAllocation(Gaussian(sigma), places), order) <= renyi(Gaussian(sigma), order)


@few
@given(step, bins, st.floats(0, 3))
def test_both_directions_add_up_to_a_pair(what, places, x):
    """Curves of pairs fall, and stay between 0 and 1."""
    found = curve(RandomAllocation(what, places))
    one, two = found.delta(x), found.delta(x + 0.1)
    assert 1 >= one >= two >= 0
