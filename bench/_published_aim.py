"""AIM as published (McKenna, Mullins, Sheldon & Miklau 2022, Algorithm 2), on discreet's junction trees.

The algorithm is that of peers/synth_peer.py, line by line, which no peer's estimation finishes in a bounded time; only the
estimation and its marginals are replaced. So it tells what error the published rounds, weights and budget have.

    python bench/_published_aim.py published-aim CODES.npy SIZES.json OUT.npy EPSILON DELTA SEED DEGREE
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))
from discreet.synth import Junction
from discreet.synth.junction import JunctionTree, cells, onto
from discreet.synth.measure import Measurement, Reach
from discreet.synth.methods import Public
from discreet.synth.sample import sample
from peers.synth_peer import Mbi, aim, rho_for


class Model:
    """An estimate, with the marginals of its cliques computed once."""

    def __init__(self, found: Any, names: list[str]) -> None:
        self.found, self.names = found, names
        self.beliefs = found.tree.beliefs(found.conditionals)
        self.cliques = [tuple(names[column] for column in clique) for clique in found.tree.cliques]

    def counts(self, columns: tuple[int, ...]) -> np.ndarray:
        home = self.found.tree.home(columns)
        if home is None:
            return self.found.tree.marginal(self.found.conditionals, columns) * self.found.rows
        return onto(self.beliefs[home], self.found.tree.cliques[home], columns) * self.found.rows


class OnOurs(Mbi):
    """What AIM asks of mbi, by discreet."""

    def __init__(self, codes: pd.DataFrame, sizes: dict[str, int], seed: int) -> None:
        self.codes, self.sizes = {name: codes[name].to_numpy() for name in sizes}, sizes
        self.names, self.widths = list(sizes), tuple(sizes.values())
        self.random = np.random.default_rng(seed)

    def _places(self, columns: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self.names.index(name) for name in columns)

    def noisy(self, columns: tuple[str, ...], sigma: float) -> Measurement:
        places, counts = self._places(columns), self.counts(columns)
        noisy = counts + self.random.normal(0, sigma, counts.size)
        return Measurement(places, noisy.reshape([self.widths[place] for place in places]), sigma)

    def estimate(self, measured: list[Any], rounds: int, **how: Any) -> Model:
        public = Public(self.widths, Reach(), 1.0, 1e-9)
        method = Junction(evaluations=60, tolerance=0.02, device="cpu")
        return Model(method.estimate(public, measured), self.names)

    def of(self, model: Model, columns: tuple[str, ...]) -> np.ndarray:
        return model.counts(self._places(columns)).reshape(-1)

    def megabytes(self, cliques: list[tuple[str, ...]]) -> float:
        if cells(range(len(self.widths)), self.widths) * 8 <= 1e6:
            return 0.0  # the whole joint fits
        return JunctionTree.of(self.widths, [self._places(clique) for clique in cliques]).cells * 8 / 1e6


def main() -> None:
    _, place, sizes_at, out, epsilon, delta, seed, degree = sys.argv[1:]
    sizes = {name: int(size) for name, size in json.loads(Path(sizes_at).read_text()).items()}
    codes = pd.DataFrame(np.load(place).astype(np.int64), columns=list(sizes))
    began = time.process_time()
    model = aim(OnOurs(codes, sizes, int(seed)), rho_for(float(epsilon), float(delta)), int(degree)).found
    fitted = time.process_time() - began
    np.save(out, np.stack(sample(model.tree, model.conditionals, len(codes), np.random.default_rng(int(seed))), axis=1))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"fit_cpu_s": fitted, "memory_mb": memory, "cells": model.tree.cells}))


if __name__ == "__main__":
    main()
