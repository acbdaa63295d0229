"""`discreet recommend`, as it is called."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from click.testing import CliRunner

from discreet import Ledger, user
from discreet.cli import app
from discreet.core import Release


def test_a_recommender_paid_by_a_ledger(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    item = rng.integers(0, 10, 20_000)
    table = {"who": np.repeat(np.arange(5000), 4), "item": item.astype(str), "rating": np.clip(item / 2 + 0.5, 1, 5)}
    parquet.write_table(pa.table(table), tmp_path / "ratings.parquet")
    (tmp_path / "items.txt").write_text("\n".join(map(str, range(10))))
    (tmp_path / "mine.json").write_text('{"9": 5}')
    place = str(tmp_path / "ledger.db")
    with Ledger(place) as ledger:
        ledger.open("films", unit=user("who", rows=None), epsilon=2.1, delta=1e-5)
    fixed = ["recommend", tmp_path / "ratings.parquet", "--items", tmp_path / "items.txt", "--bounds", 1, 5, "--user", "who"]
    fixed += ["--delta", "1e-6", "--ledger", place, "--source", "films", "-o", tmp_path / "out.json", "--epsilon", 2]
    done = CliRunner().invoke(app, [*map(str, fixed), "--mine", str(tmp_path / "mine.json"), "--top", "2", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["recommended"][0] == "8"
    assert told["entry"]
    assert len(Release.load(tmp_path / "out.json").value["effects"]) == 10
    refused = CliRunner().invoke(app, list(map(str, fixed)))
    assert refused.exit_code == 2
    assert "epsilon" in refused.output
    lost = [str(word).replace("items.txt", "lost.txt") for word in fixed]
    assert "There is no file" in CliRunner().invoke(app, lost).output
