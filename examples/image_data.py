"""Images for the other examples: MNIST, Fashion-MNIST or CIFAR-10 from a folder, or made up.

python examples/image_data.py [FOLDER with idx files, or with lossless mosaics of 32 x 32 images and labels.npz]
"""

import argparse
import gzip
import lzma
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


def idx(path: Path) -> Tensor:
    """A file of MNIST's format, compressed."""
    data = {".gz": gzip, ".xz": lzma}[path.suffix].open(path).read()
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3])]
    return torch.frombuffer(bytearray(data[4 + 4 * data[3] :]), dtype=torch.uint8).view(shape)


def tiles(path: Path) -> Tensor:
    """The images of a mosaic, [n, 3, 32, 32]; of an array of the same name, where there is one."""
    if (array := path.with_suffix(".npy")).exists():
        mosaic = torch.from_numpy(np.load(array))
    else:
        from PIL import Image

        mosaic = torch.from_numpy(np.array(Image.open(path)))
    return mosaic.unflatten(0, (-1, 32)).unflatten(2, (-1, 32)).permute(0, 2, 4, 1, 3).flatten(0, 1).contiguous()


def load(folder: Path) -> list[Tensor]:
    """Train images and labels, test images and labels; images are whole numbers 0..255."""
    if (folder / "labels.npz").exists():
        labels = np.load(folder / "labels.npz")
        found = []
        for kind in ("train", "test"):
            parts = sorted(name for name in labels.files if name.startswith(kind))
            found.append(torch.cat([tiles(folder / f"{name.replace('_', '-')}.webp") for name in parts]))
            found.append(torch.cat([torch.from_numpy(labels[name].astype(np.int64)) for name in parts]))
        return found
    names = ("train-images", "train-labels", "t10k-images", "t10k-labels")
    images, y, test, truth = (idx(next(folder.glob(name + "*"))) for name in names)
    return [images, y.long(), test, truth.long()]


def made_up(count: int, size: int = 28, colours: int = 0) -> tuple[Tensor, Tensor]:
    """Noisy bars in ten directions."""
    y, grid = torch.arange(count) % 10, torch.linspace(-1, 1, size)
    angle = y[:, None, None] * torch.pi / 10
    images = torch.exp(-20 * (grid[:, None] * angle.cos() + grid * angle.sin()) ** 2) + 0.3 * torch.rand(count, size, size)
    return (images[:, None].repeat(1, colours, 1, 1) if colours else images), y


def asked(doc: str | None, epsilon: float, rows: int, tests: int, **made: int) -> tuple[bool, float, list[Tensor]]:
    """What the command line of a recipe asks: whether images are real, epsilon, and the images, on the device asked for."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--epsilon", type=float, default=epsilon)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    data = load(given.folder) if given.folder else [*made_up(rows, **made), *made_up(tests, **made)]
    return given.folder is not None, given.epsilon, [part.to(given.device) for part in data]


if __name__ == "__main__":
    found = load(Path(sys.argv[1])) if len(sys.argv) > 1 else [*made_up(100), *made_up(20)]
    print("; ".join(f"{name} {tuple(part.shape)}" for name, part in zip(("images", "labels", "test", "truth"), found)))
