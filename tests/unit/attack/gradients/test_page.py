"""The page for the owner of the data, and the command that writes it."""

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch import nn

from discreet.attack.gradients import Inversion
from discreet.attack.gradients.layout import Layout
from discreet.attack.gradients.page import page
from discreet.cli import app
from discreet.errors import InvalidValue


def inversion(rows: torch.Tensor, layout: Layout | None = None) -> Inversion:
    return Inversion(rows, None, torch.ones(len(rows)), torch.ones(len(rows), dtype=torch.bool), "closed", 0.0, 0.1, (), layout)


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_stand_beside_the_recovered_ones(channels):
    images = torch.randint(0, 256, (2, channels, 5, 7)) / 255
    made = page(inversion(images.flip(0).double()), images)
    shown = [base64.b64decode(data) for data in re.findall(r"base64,([^\"]+)", made)]
    pixels = [np.asarray(Image.open(io.BytesIO(data))).reshape(5, 7, channels) for data in shown]
    for index, image in enumerate(images):
        expected = (image.permute(1, 2, 0) * 255).round().numpy()
        assert np.array_equal(pixels[2 * index], expected)
        assert np.array_equal(pixels[2 * index + 1], expected)
    assert "owner of the data alone" in made


def test_wrong_cells_are_marked_and_text_is_escaped():
    layout = Layout.of({"a": ["<b>", "y"], "n": (0.0, 1.0)})
    truth, found = torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([[1.0, 0.0, 0.9]])
    made = page(inversion(found.double(), layout), truth)
    assert made.count("class=wrong") == 1
    assert "&lt;b&gt;" in made
    assert "<b>" not in made


def test_originals_of_another_shape_are_refused():
    with pytest.raises(InvalidValue, match="originals must hold rows of the shape"):
        page(inversion(torch.zeros(1, 3)), torch.zeros(1, 4))
    with pytest.raises(InvalidValue, match="2 originals cannot"):
        page(inversion(torch.zeros(1, 3)), torch.zeros(2, 3))


RECIPE = """from torch import nn
from discreet.models import Recipe
recipe = Recipe(lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), epochs=1)
"""


def test_the_command_writes_the_page(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model, row = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), torch.rand(1, 4)
    made = torch.autograd.grad(nn.functional.cross_entropy(model(row), torch.tensor([1])), list(model.parameters()))
    torch.save(model.state_dict(), "model.pt")
    torch.save({name: -0.1 * value for (name, _), value in zip(model.named_parameters(), made)}, "update.pt")
    Path("recipe.py").write_text(RECIPE)
    Path("columns.toml").write_text("".join(f"{name} = [0.0, 1.0]\n" for name in "abcd"))
    np.savez("mine.npz", rows=row.numpy())
    words = "attack gradients update.pt --weights model.pt --recipe recipe.py --rows 1 --schema columns.toml -o found".split()  # noqa: SIM905
    words += ["--epochs", "1", "--learning-rate", "0.1", "--batch-size", "1"]
    done = CliRunner().invoke(app, [*words, "--originals", "mine.npz"])
    assert done.exit_code == 0, done.output
    text = Path("found/page.html").read_text()
    assert "1 of 1 rows exactly" in text
    assert "class=wrong" not in text
    Path("bad.npz").write_text("no array")
    refused = CliRunner().invoke(app, [*words, "--originals", "bad.npz"])
    assert refused.exit_code != 0
    assert "with the array rows" in refused.output
    both = CliRunner().invoke(app, [*words, "--text", "4"])
    assert "one of them" in both.output
