"""Where kernels of Triton can be tried: on a GPU, or anywhere by its interpreter. Needs no pytest."""

from __future__ import annotations

import os

import torch

WHERE = "cuda" if torch.cuda.is_available() else "cpu"
marks = []
try:
    import pytest

    marks = [
        pytest.mark.skipif(
            WHERE == "cpu" and not os.environ.get("TRITON_INTERPRET"), reason="needs a GPU, or Triton's interpreter"
        )
    ]
except ImportError:  # a GPU machine may have nothing but torch
    pass
