"""Rounding allowances against high precision: what is computed differs from the truth by no more than is allowed for it.

Each fast function of `fourier` and `jump` is held against the same quantity in 60 digits, for atoms that are floats, so that
nothing but rounding can differ. All inputs are seeded.
"""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest

from discreet.accounting import compose, fourier, jump
from discreet.accounting.mesh import Fitted

ENDS = 1e-40  # far below every allowance: what 60 digits leave


def some_atoms(seed: int, count: int = 25, rare: float = 1e-9) -> Fitted:
    """Losses over many scales: most near 0, a few far out."""
    rng = np.random.default_rng(seed)
    loss = np.sort(np.concatenate([rng.normal(0, 1e-3, count - 5), rng.uniform(0.5, 3.0, 5)]))
    mass = np.concatenate([rng.uniform(0.5, 1.0, count - 5), rare * rng.uniform(0.5, 1.0, 5)])
    return Fitted(loss, mass / mass.sum(), 0.0, 0.0)


def exact_masses(atoms: Fitted) -> list[mp.mpf]:
    """The masses, the first being what the others leave of 1: by construction masses add up to 1, and floats only nearly."""
    rest = [mp.mpf(float(m)) for m in atoms.mass[1:]]
    return [1 - mp.fsum(rest), *rest]


def exact_moment(atoms: Fitted, at: mp.mpc, upto: float = math.inf) -> mp.mpc:
    """E[e^{at Y}] over losses up to a cut."""
    pairs = zip(atoms.loss.tolist(), exact_masses(atoms))
    return mp.fsum(m * mp.exp(at * mp.mpf(y)) for y, m in pairs if y <= upto)


@pytest.mark.parametrize(("seed", "times"), list(itertools.product(range(3), [3, 10**4, 10**9])))
def test_the_characteristic_function_is_within_its_allowance(seed: int, times: int) -> None:
    atoms, tilt = some_atoms(seed), 3.0
    tilted = fourier.Tilted([(atoms, times)], 1e-12, tilt)
    frequency = np.arange(40) * (4.0 / math.sqrt(tilted.variance) / 40)
    log, error = tilted.transform(frequency)
    with mp.workdps(60):
        whole = exact_moment(atoms, mp.mpf(tilt))
        for w, value, off in zip(frequency.tolist(), log, error):
            if value.real == -math.inf:
                continue
            phase = mp.mpf(w) * times * mp.mpf(float(tilted.weights[0] @ atoms.loss))
            truth = (
                times * mp.log(exact_moment(atoms, mp.mpc(tilt, w)) / whole) - mp.mpf(1e-12) * mp.mpf(w) ** 2 / 2 - 1j * phase
            )
            gap = abs(mp.exp(mp.mpc(value) - truth) - 1)
            assert gap <= math.expm1(off) + 64 * fourier.UNIT * (1 + abs(float(phase))) + ENDS


@pytest.mark.parametrize(("seed", "times"), list(itertools.product(range(3), [3, 10**4, 10**9])))
def test_the_log_moment_is_within_its_allowance(seed: int, times: int) -> None:
    atoms = some_atoms(seed)
    for tilt in (0.01, 3.0, 40.0):
        tilted = fourier.Tilted([(atoms, times)], 1e-12, tilt)
        with mp.workdps(60):
            t = mp.mpf(tilt)
            truth = times * mp.log(exact_moment(atoms, t)) + mp.mpf(1e-12) * t * (1 + t) / 2
            assert abs(tilted.log_moment - truth) <= tilted.error + ENDS


def test_a_tilt_beyond_all_digits_is_allowed_for() -> None:
    """Exponents of 1e19 have no digits left: the allowance is so large that nothing is claimed."""
    _, _, units = fourier.tilted_masses(np.array([-67.0, 67.0]), np.array([1e-29, 1.0]), 1e17)
    assert units * fourier.UNIT > 1


def test_masses_of_any_size_are_within_their_allowance() -> None:
    rng = np.random.default_rng(5)
    loss, mass = np.sort(rng.uniform(0, 700, 200)), 10.0 ** -rng.uniform(0, 300, 200)
    for tilt in (0.3, 1.0, 3.0):
        weight, top, units = fourier.tilted_masses(loss, mass, tilt)
        with mp.workdps(60):
            for y, m, value in zip(loss.tolist(), mass.tolist(), weight.tolist()):
                truth = mp.mpf(m) * mp.exp(mp.mpf(tilt) * mp.mpf(y) - mp.mpf(top))
                if truth > mp.mpf(10) ** -17:
                    assert abs(value - truth) <= units * fourier.UNIT * truth


@pytest.mark.parametrize("size", [16, 100, 4096])
def test_plain_sums_are_within_their_allowance(size: int) -> None:
    atoms = some_atoms(9, rare=0.1)
    frequency = np.arange(size) * 0.37
    value, off = fourier.plain_sum(atoms.mass, atoms.loss, frequency, 2.0)
    with mp.workdps(60):
        for k in {0, 1, size // 3, size - 1}:
            truth = exact_moment(atoms, mp.mpc(0, mp.mpf(float(frequency[k])))) - 1
            assert abs(mp.mpc(complex(value[k])) - truth) <= off[k] + ENDS


@pytest.mark.parametrize(("times", "rare"), [(1000, 1e-12), (10**6, 1e-9), (10**8, 1e-30)])
def test_outcomes_with_a_large_loss_are_within_their_allowance(times: int, rare: float) -> None:
    atoms, tilt = some_atoms(4, rare=rare), 2.0
    jumps = jump.Split.at([(atoms, times)], 0.3).jumps(1e-6, tilt)
    assert jumps is not None
    frequency = np.arange(30) * 0.5
    value, off = jumps.transform(frequency)

    def truth(w: float) -> mp.mpc:
        s = mp.mpc(tilt, mp.mpf(w))
        smooth = mp.exp(mp.mpf(1e-6) * s * (1 + s) / 2)
        return smooth * (exact_moment(atoms, s) ** times - exact_moment(atoms, s, 0.3) ** times)

    with mp.workdps(90):
        whole = truth(0.0)
        assert abs(mp.log(whole) - jumps.log_moment) <= jumps.error
        for w, here, slack in zip(frequency.tolist(), value, off):
            centre = mp.expj(mp.mpf(w) * mp.mpf(jumps.small.mean))
            turned = 64 * fourier.UNIT * (1 + abs(w * jumps.small.mean))  # the allowance for phases is made by `wave`
            assert abs(mp.mpc(complex(here)) - truth(w) / whole / centre) <= slack + turned


def test_a_transform_without_its_allowance_is_off_by_more() -> None:
    """The broken twin: ten digits fewer in the masses, and the allowance no longer covers the difference."""
    atoms = some_atoms(1)
    wrong = Fitted(atoms.loss, atoms.mass * (1 + 1e-6 * np.cos(np.arange(len(atoms.mass)))), 0.0, 0.0)
    tilted = fourier.Tilted([(wrong, 10**6)], 1e-12, 3.0)
    with mp.workdps(60):
        truth = 10**6 * mp.log(exact_moment(atoms, mp.mpf(3.0))) + mp.mpf(1e-12) * 6
        assert abs(tilted.log_moment - truth) > tilted.error


def test_a_composition_by_transform_is_within_the_bound_for_its_size() -> None:
    rng = np.random.default_rng(2)
    mass = rng.uniform(size=32)
    mass /= mass.sum()
    from scipy.fft import irfft, rfft

    size, times = 128, 4
    fast = irfft(rfft(mass, size) ** times, size)
    with mp.workdps(40):
        exact = [mp.mpf(1)] + [mp.mpf(0)] * (size - 1)
        for _ in range(times):
            exact = [mp.fsum(exact[j - i] * mp.mpf(float(mass[i])) for i in range(min(j + 1, 32))) for j in range(size)]
        off = mp.sqrt(mp.fsum((mp.mpf(float(a)) - b) ** 2 for a, b in zip(fast, exact)))
    norms = times * math.sqrt(float(mass @ mass))
    assert 0 < off <= compose.rounding(size, times, norms, math.sqrt(float(fast @ fast)))
