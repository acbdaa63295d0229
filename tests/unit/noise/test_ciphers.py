"""The ciphers without OpenSSL are the same ciphers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.noise import ciphers


@pytest.fixture
def bare(monkeypatch):
    monkeypatch.setattr(ciphers, "_library", lambda: None)


def test_the_published_vectors(bare):
    """RFC 8439, 2.3.2 and NIST SP 800-38A, F.5.5 and F.1.5."""
    key, nonce = bytes(range(32)), bytes.fromhex("01000000000000090000004a00000000")
    assert ciphers.chacha20(key, nonce, 64).hex().startswith("10f1e7e4d13b5915500fdd1fa32071c4")
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")
    counter = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    assert ciphers.aes_ctr(key, counter).update(plain).hex() == "601ec313775789a5b7a7f504bbf3d228"
    assert ciphers.aes_blocks(key, plain).hex() == "f3eed1bdb5d2a03c064b5a7e3db181f8"


@given(
    key=st.binary(min_size=32, max_size=32),
    nonce=st.binary(min_size=16, max_size=16),
    sizes=st.lists(st.integers(0, 200), max_size=4),
)
def test_numpy_gives_the_bits_of_openssl(key, nonce, sizes):
    counter = nonce[:8] + bytes(4) + nonce[12:]  # a counter never passes 2**64 here
    theirs, ours = ciphers.aes_ctr(key, counter), ciphers._Counter(key, counter)
    for size in sizes:
        assert ours.update(bytes(size)) == theirs.update(bytes(size))
        assert ciphers._chacha20(key, bytes(4) + nonce[4:], size) == ciphers.chacha20(key, bytes(4) + nonce[4:], size)
    buffer = np.empty(48, np.uint8)
    ours.update_into(bytes(48), buffer)
    assert buffer.tobytes() == theirs.update(bytes(48))


def test_private_training_and_attacks_run_without_the_library():
    """As on a GPU machine that has numpy, scipy and torch alone."""
    program = """
import sys
for name in ("cryptography", "click", "rich", "jinja2", "duckdb", "sqlglot", "pyarrow", "pandas", "sklearn", "safetensors"):
    sys.modules[name] = None
import torch, discreet
from torch import nn
from discreet.models import Recipe
model = nn.Linear(4, 2)
data = torch.randn(100, 4), torch.randint(2, (100,))
run = discreet.learn.train(model, torch.optim.SGD(model.parameters(), 0.1), data, nn.CrossEntropyLoss(reduction="none"),
                           unit=discreet.record(), epsilon=2.0, delta=1e-5, rate=0.1, steps=5, clip_norm=1.0)
for step in run:
    pass
X, y = data[0].numpy(), data[1].numpy()
inside, outside = (X[:50], y[:50]), (X[50:], y[50:])
found = discreet.attack.membership(run.release().value, Recipe(lambda: nn.Linear(4, 2), epochs=1), inside, outside,
                                   shadows=4, attacks=["bayes_lira"])
print(step.number, len(found["bayes_lira"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["5", "100"], done.stderr
