"""A page for the owner of the data: recovered images or rows beside the originals. It holds private rows: nobody else's."""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from discreet.attack.gradients.result import Inversion
from discreet.errors import InvalidValue

SCALE = 4  # pixels of the page for one of the image
MOST = 64  # rows that are shown
_STYLE = (
    "body{font:15px/1.5 system-ui;margin:2em;max-width:60em}table{border-collapse:collapse}td,th{padding:.2em .6em;"
    "border-bottom:1px solid #ccc;text-align:left}img{image-rendering:pixelated}.wrong{color:#b00020}"
    ".warn{border:2px solid #b00020;padding:.5em 1em}"
)


def page(found: Inversion, originals: Any) -> str:
    """HTML with each original beside the recovered row that is assigned to it; cells that are wrong are marked.

    >>> row = torch.tensor([[0.5, 0.25]])
    >>> made = Inversion(row.double(), None, torch.ones(1), torch.ones(1, dtype=torch.bool), "closed", 0.0, 0.1)
    >>> "1 of 1 rows exactly" in page(made, row)
    True
    """
    truth = torch.as_tensor(np.asarray(originals))
    if truth.shape[1:] != found.rows.shape[1:]:
        raise InvalidValue(
            f"originals must hold rows of the shape {tuple(found.rows.shape[1:])}; got {tuple(truth.shape[1:])}."
        )
    if len(truth) > len(found):
        raise InvalidValue(f"{len(truth)} originals cannot be put beside {len(found)} recovered rows; give those of the batch.")
    rows = found.matched(truth)
    body = _pictures(truth, rows) if truth.dim() == 4 else _table(found, truth, rows)
    facts = f"{found.method}: {int(found.exact.sum())} of {len(found)} rows exactly, in {found.seconds:.1f} CPU seconds."
    return (
        f'<!doctype html><meta charset="utf-8"><title>What a gradient gave away</title><style>{_STYLE}</style>'
        "<h1>What a gradient gave away</h1>"
        "<p class=warn>This page shows private rows. It is for the owner of the data alone.</p>"
        f"<p>{html.escape(facts)} {html.escape(' '.join(found.notes))}</p>{body}"
    )


def _pictures(truth: Tensor, rows: Tensor) -> str:
    lines = [
        f"<tr><td>{_image(one)}</td><td>{_image(other)}</td><td>{_decibels(one, other)}</td></tr>"
        for one, other in zip(truth[:MOST], rows[:MOST])
    ]
    return f"<table><tr><th>original</th><th>recovered</th><th>PSNR</th></tr>{''.join(lines)}</table>"


def _decibels(one: Tensor, other: Tensor) -> str:
    error = float(((one.double() - other.double()) ** 2).mean())
    return "exact" if error == 0 else f"{-10 * np.log10(error):.1f} dB"


def _image(row: Tensor) -> str:
    pixels = (row.double().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    if pixels.shape[2] not in (1, 3):
        pixels = pixels[:, :, :1]
    data = base64.b64encode(_png(pixels)).decode()
    return f'<img width={SCALE * pixels.shape[1]} height={SCALE * pixels.shape[0]} alt="" src="data:image/png;base64,{data}">'


def _png(pixels: NDArray[np.uint8]) -> bytes:
    """Grey or colour pixels [height, width, 1 or 3] as a PNG file."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in np.ascontiguousarray(pixels))
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def _table(found: Inversion, truth: Tensor, rows: Tensor) -> str:
    if found.layout is None:
        names: Sequence[str] = [str(index) for index in range(truth.flatten(1).shape[1])]
        columns = [{name: part.flatten(1)[:, index].tolist() for index, name in enumerate(names)} for part in (truth, rows)]
    else:
        columns = [found.layout.decoded(part) for part in (truth, rows)]
        names = found.layout.names
    lines = [f"<tr><th></th>{''.join(f'<th>{html.escape(name)}</th>' for name in names)}</tr>"]
    for index in range(min(len(truth), MOST)):
        one, other = ([column[name][index] for name in names] for column in columns)
        marks = ["" if _alike(a, b) else " class=wrong" for a, b in zip(one, other)]
        lines.append(f"<tr><th>original</th>{''.join(f'<td>{_shown(value)}</td>' for value in one)}</tr>")
        cells = "".join(f"<td{mark}>{_shown(value)}</td>" for mark, value in zip(marks, other))
        lines.append(f"<tr><th>recovered</th>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _alike(one: Any, other: Any) -> bool:
    return abs(one - other) <= 1e-3 * max(1.0, abs(one)) if isinstance(one, float) else bool(one == other)


def _shown(value: Any) -> str:
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))
