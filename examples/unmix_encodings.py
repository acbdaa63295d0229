"""InstaHide's encodings of made-up pictures, and the pictures read back out of them.

python examples/unmix_encodings.py
"""

from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter

from discreet.attack.encodings import EncodingsAttack
from discreet.attack.pictures import png, sheet
from discreet.heuristic import InstaHide

rng = np.random.default_rng(0)
rough = gaussian_filter(rng.normal(size=(1040, 24, 24, 3)), (0, 2.5, 2.5, 0.8))
pictures = np.tanh(1.5 * rough / rough.std()).astype(np.float32)
own, public, known = pictures[:40], pictures[40:540], pictures[540:]
classes = np.arange(40) % 4

for name, recipe in {"plain mixup": InstaHide(signs=False), "InstaHide": InstaHide()}.items():
    sent = recipe.encode(own, public, repeats=50, rng=rng, labels=classes)
    found = EncodingsAttack(private=40).decode(sent.pictures, known, labels=sent.labels)
    beside = found.compared(own, known)
    print(f"{name}: {beside}")

Path("unmixed.png").write_bytes(png(sheet([(row + 1) / 2 for row in (own, sent.pictures[:40], beside.pictures)])))
print("unmixed.png: the pictures, one encoding of each, and what was read back")
