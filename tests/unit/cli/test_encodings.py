"""`discreet attack encodings`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.ndimage import gaussian_filter

from discreet.cli import app
from discreet.heuristic import InstaHide


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encodings")
    rng = np.random.default_rng(0)
    rough = gaussian_filter(rng.normal(size=(840, 24, 24, 3)), (0, 2.5, 2.5, 0.8))
    pictures = np.tanh(1.5 * rough / rough.std()).astype(np.float32)
    own, public, known = pictures[:40], pictures[40:440], pictures[440:]
    sent = InstaHide().encode(own, public, repeats=60, rng=rng, labels=np.arange(40) % 4)
    np.savez(folder / "sent.npz", pictures=sent.pictures, labels=sent.labels)
    np.savez(folder / "known.npz", pictures=known)
    np.savez(folder / "own.npz", pictures=own)
    np.savez(folder / "other.npz", X=own)
    return folder


def ran(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_pictures_are_read_and_scored(files, tmp_path):
    done = ran(
        "attack", "encodings", files / "sent.npz", "--public", files / "known.npz", "--private", 40, "--originals",
        files / "own.npz", "-o", tmp_path / "found", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["found"] >= 36
    assert facts["signs_flipped"]
    assert facts["ssim_mean"] > facts["baseline_ssim_mean"]
    assert np.load(tmp_path / "found" / "pictures.npz")["pictures"].shape == (40, 24, 24, 3)
    assert (tmp_path / "found" / "pictures.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("file", "says"),
    [("other.npz", "it lacks pictures"), ("missing.npz", "missing.npz"), ("text.npz", "cannot be read as .npz")],
)
def test_files_that_cannot_be_read_are_named(files, tmp_path, file, says):
    (files / "text.npz").write_text("no archive")
    done = ran("attack", "encodings", files / file, "--public", files / "known.npz", "--private", 40, "-o", tmp_path / "found")
    assert done.exit_code == 2
    assert says in done.output
    assert not (tmp_path / "found").exists()
