"""The scattering transform against sums written out, and what its theory promises."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.errors import InvalidValue
from discreet.learn.features import Scattering, normalise, scatter
from discreet.learn.features.scatter import morlet


def slow_wavelet(height: int, width: int, scale: int, angle: float, slant: float) -> np.ndarray:
    """A Morlet wavelet pixel by pixel, with its copies one period and two periods away."""
    sigma, frequency = 0.8 * 2**scale, 3 * math.pi / 4 / 2**scale
    bell, wave = np.zeros((height, width)), np.zeros((height, width), dtype=complex)
    for y in range(height):
        for x in range(width):
            for copy_y in range(-2, 3):
                for copy_x in range(-2, 3):
                    v, u = y + copy_y * height, x + copy_x * width
                    along = u * math.cos(angle) + v * math.sin(angle)
                    across = -u * math.sin(angle) + v * math.cos(angle)
                    weight = math.exp(-(along**2 + slant**2 * across**2) / (2 * sigma**2))
                    bell[y, x] += weight
                    wave[y, x] += weight * complex(math.cos(frequency * along), math.sin(frequency * along))
    return (wave - bell * wave.sum() / bell.sum()) * slant / (2 * math.pi * sigma**2)


def slow_bell(height: int, width: int, sigma: float) -> np.ndarray:
    out = np.zeros((height, width))
    for copy_y in range(-2, 3):
        for copy_x in range(-2, 3):
            v, u = np.mgrid[:height, :width]
            out += np.exp(-((v + copy_y * height) ** 2 + (u + copy_x * width) ** 2) / (2 * sigma**2)) / (2 * math.pi * sigma**2)
    return out


def convolved(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Around the torus, shift by shift."""
    out = np.zeros(image.shape, dtype=complex)
    for y in range(kernel.shape[0]):
        for x in range(kernel.shape[1]):
            out += kernel[y, x] * np.roll(image, (y, x), (0, 1))
    return out


def thin(kernel: np.ndarray, resolution: int) -> np.ndarray:
    """A filter for images of which every 2^resolution-th pixel is left."""
    return kernel[:: 2**resolution, :: 2**resolution] * 4**resolution


def slow_scattering(image: np.ndarray, scales: int, angles: int) -> np.ndarray:
    margin = 2**scales
    padded = np.pad(image, margin, mode="reflect")
    height, width = padded.shape
    wavelets = {
        (j, a): slow_wavelet(height, width, j, math.pi * a / angles, 4 / angles) for j in range(scales) for a in range(angles)
    }
    phi = slow_bell(height, width, 0.8 * 2 ** (scales - 1))

    def averaged(layer: np.ndarray, resolution: int) -> np.ndarray:
        skip = 2 ** (scales - resolution)
        return convolved(layer, thin(phi, resolution)).real[::skip, ::skip][1:-1, 1:-1]

    def waved(layer: np.ndarray, j: int, a: int, resolution: int) -> np.ndarray:
        skip = 2 ** (j - resolution)
        return np.abs(convolved(layer, thin(wavelets[j, a], resolution)))[::skip, ::skip]

    first = {key: waved(padded, *key, 0) for key in wavelets}
    out = [averaged(padded, 0)] + [averaged(layer, j) for (j, _), layer in first.items()]
    for j in range(scales):
        for k in range(j + 1, scales):
            for a in range(angles):
                out += [averaged(waved(first[j, a], k, b, j), k) for b in range(angles)]
    return np.stack(out)


@pytest.mark.parametrize(("size", "scales", "angles"), [((12, 8), 2, 4), ((8, 8), 1, 8), ((16, 16), 3, 2)])
def test_equals_the_sums_written_out(size: tuple[int, int], scales: int, angles: int) -> None:
    images = np.random.default_rng(0).normal(size=(2, *size))
    fast = Scattering(size, scales=scales, angles=angles)(torch.from_numpy(images).float()).numpy()
    for image, found in zip(images, fast):
        np.testing.assert_allclose(found, slow_scattering(image, scales, angles), atol=3e-6)


def test_shapes_of_the_usual_images() -> None:
    assert scatter(torch.zeros(3, 28, 28)).shape == (3, 81, 7, 7)
    assert scatter(torch.zeros(2, 3, 32, 32)).shape == (2, 243, 8, 8)
    assert scatter(torch.zeros(0, 28, 28)).shape == (0, 81, 7, 7)
    assert Scattering((32, 32), scales=3)(torch.zeros(32, 32)).shape == (217, 4, 4)
    assert not list(Scattering((28, 28)).parameters())
    assert not Scattering((28, 28)).state_dict()


def test_whole_numbers_are_fractions_of_255() -> None:
    images = torch.randint(256, (4, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(scatter(images), scatter(images.float() / 255))


def test_chunks_do_not_matter_and_no_example_touches_another() -> None:
    images = torch.rand(70, 28, 28, generator=torch.Generator().manual_seed(1))
    whole = scatter(images)
    assert torch.allclose(whole[41:42], scatter(images[41:42]), atol=1e-5)
    images[3] = float("nan")
    spoiled = scatter(images)
    assert spoiled[3].isnan().all()
    others = [i for i in range(70) if i != 3]
    assert torch.allclose(spoiled[others], whole[others], atol=1e-5)


def test_moves_with_the_image() -> None:
    """A shift by 2^J pixels is a shift by one output pixel, where the image is blank around."""
    image = torch.zeros(1, 48, 48)
    image[0, 18:30, 18:30] = torch.rand(12, 12, generator=torch.Generator().manual_seed(2))
    transform = Scattering((48, 48))
    moved = transform(image.roll((4, -4), (1, 2)))
    assert torch.allclose(moved, transform(image).roll((1, -1), (2, 3)), atol=1e-5)


def test_small_shifts_change_little() -> None:
    """Averaging over 2^J pixels: a shift by one pixel moves the features far less than it moves the pixels."""
    image = torch.zeros(1, 48, 48)
    image[0, 18:30, 18:30] = torch.rand(12, 12, generator=torch.Generator().manual_seed(3))
    transform = Scattering((48, 48))

    def change(f: object) -> float:
        before, after = f(image), f(image.roll(1, 2))  # type: ignore[operator]
        return float((before - after).norm() / before.norm())

    assert change(transform) < change(lambda x: x) / 2


transform_of = functools.cache(Scattering)


@given(st.integers(0, 2**32), st.sampled_from([(28, 28), (16, 20)]))
@settings(max_examples=20, deadline=None)
def test_contracts(seed: int, size: tuple[int, int]) -> None:
    """No two images come further apart than they are on the padded torus (energy is kept or lost, never made)."""
    one, two = torch.rand(2, 1, *size, generator=torch.Generator().manual_seed(seed))
    transform = transform_of(size)
    apart = float((transform(one) - transform(two)).norm()) * 2**transform.scales  # one pixel of 2^J x 2^J is kept
    padded = torch.nn.functional.pad((one - two)[None], (4,) * 4, mode="reflect")
    assert apart <= 1.1 * float(padded.norm())  # 1.1: what keeping few pixels aliases


def test_the_wavelets_tile_the_frequencies() -> None:
    """Littlewood-Paley: together they make no energy, and lose none of the middle frequencies."""
    spectra = torch.stack([morlet((32, 32), j, math.pi * a / 8, 0.5) for j in range(2) for a in range(8)])
    energy = (spectra**2).sum(0)
    both = (energy + energy.flip(0, 1).roll((1, 1), (0, 1))) / 2  # a real image has both halves of the spectrum
    assert both.max() < 1
    frequency = torch.fft.fftfreq(32, dtype=torch.float64) * 2 * math.pi
    radius = (frequency[:, None] ** 2 + frequency**2).sqrt()
    assert both[(radius > 0.8) & (radius < 2.6)].min() > 0.15
    assert both[0, 0] < 1e-20  # every wavelet sums to zero


def test_normalise_is_each_examples_own() -> None:
    features = torch.rand(5, 81, 7, 7, generator=torch.Generator().manual_seed(4))
    found = normalise(features).view(5, 27, -1)
    assert torch.allclose(found.mean(2), torch.zeros(5, 27), atol=1e-5)
    assert torch.allclose(found.var(2, correction=0), torch.ones(5, 27), atol=1e-2)
    assert torch.allclose(normalise(features[2:3]), normalise(features)[2:3], atol=1e-6)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: Scattering((30, 28)), "multiples of 4"),
        (lambda: Scattering((4, 4)), "and larger"),
        (lambda: Scattering((28, 28), angles=0), "angles=0"),
        (lambda: Scattering((28, 28))(torch.zeros(2, 32, 32)), r"of size \(28, 28\); got \(32, 32\)"),
        (lambda: scatter(torch.zeros(28, 28)), r"got \(28, 28\)"),
        (lambda: normalise(torch.zeros(2, 80, 7, 7)), "multiple of groups=27"),
    ],
)
def test_what_does_not_fit_is_refused(ask: object, says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        ask()  # type: ignore[operator]
