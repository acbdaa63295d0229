"""`discreet attack inversion`."""

from __future__ import annotations

import json

import joblib
import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

from discreet.cli import app


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inversion")
    rng = np.random.default_rng(0)
    pictures, who = rng.random((60, 8, 6, 1)), np.arange(60) % 3
    joblib.dump(LogisticRegression().fit(pictures.reshape(60, -1), who), folder / "model.joblib")
    np.savez(folder / "public.npz", pictures=rng.random((40, 8, 6, 1)))
    return folder


def ran(*words):
    return CliRunner().invoke(app, ["attack", "inversion", *[str(word) for word in words]])


@pytest.mark.parametrize("access", ["scores", "labels"])
def test_pictures_of_a_classifier(files, tmp_path, access):
    done = ran(
        files / "model.joblib", "--trust-pickle", "--shape", "8,6,1", "--classes", "0,2", "--public", files / "public.npz",
        "--access", access, "--steps", 60, "-o", tmp_path / "found", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["classes"] == [0, 2]
    found = np.load(tmp_path / "found" / "pictures.npz")["pictures"]
    model = joblib.load(files / "model.joblib")
    assert model.predict(found.reshape(2, -1)).tolist() == [0, 2]
    assert (tmp_path / "found" / "pictures.png").read_bytes().startswith(b"\x89PNG")
    words = ["report", str(tmp_path / "found" / "release.json"), "-o", str(tmp_path / "page.html")]
    assert CliRunner().invoke(app, words).exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert "nothing was tried" not in page
    assert "Pictures that were recovered" in page
    assert "data:image/png;base64," in page


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--shape", "8,6", "--classes", "0"), "height, width and channels"),
        (("--shape", "8,6,1", "--classes", "a"), "whole numbers"),
        (("--shape", "8,6,1", "--classes", "7"), "class 7 among them"),
        (("--shape", "8,6,1", "--classes", "0", "--access", "gradients"), "needs a torch module"),
        (("--shape", "6,8,1", "--classes", "0", "--public", "public.npz"), "--shape says"),
    ],
)
def test_what_cannot_be_is_said(files, tmp_path, words, says):
    given = [files / word if str(word).endswith(".npz") else word for word in words]
    done = ran(files / "model.joblib", "--trust-pickle", *given, "-o", tmp_path / "found")
    assert done.exit_code == 2
    assert says in done.output
