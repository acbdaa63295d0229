"""The files with which the web app continues from the demo: a table for its console, a model to attack, a policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from discreet.demo.hospital import SOURCE, Cohort

SOURCES = f"""[sources.{SOURCE}]
location = "patients.parquet"
unit = "record"
schema = "schema.toml"
synth = "synth.toml"
"""
SCHEMA = """[patients.ward]
values = ["A", "B", "C"]

[patients.days]
bounds = [1, 30]
required = true

[patients.age]
bounds = [0, 100]
"""
SYNTH = """[age]
type = "integer"
bounds = [0, 100]

[ward]
type = "categorical"
values = ["A", "B", "C"]

[days]
type = "integer"
bounds = [1, 30]
"""
ATTACK = """
[attacks.overfit-model]
release = "overfit-model"
weights = "overfit-model/model.safetensors"
recipe = "recipe.py"
members = "patients.npz"
nonmembers = "strangers.npz"
attacks = "bayes_lira,loss"
shadows = 8
"""
RECIPE = '''"""How the overfit model was trained; the web app trains models like it."""

from discreet.demo.diagnosis import OVERFIT as recipe  # noqa: F401
'''
POLICY = """[[rule]]
name = "epsilon"
on = "claim"
epsilon = { at_delta = 1e-6, max = 2.0 }
"""


def write(folder: Path, patients: Cohort, strangers: Cohort, *, sql: bool, models: bool) -> str:
    """Write the files beside the releases; returns the options of `discreet serve` that read them."""
    config = ""
    if sql:
        import pyarrow as pa
        from pyarrow.parquet import write_table

        table = pa.table({"age": patients.age, "ward": patients.ward, "days": patients.days})
        write_table(table, folder / "patients.parquet")
        (folder / "schema.toml").write_text(SCHEMA)
        (folder / "synth.toml").write_text(SYNTH)
        config += SOURCES
    if models:
        config += ATTACK
        (folder / "recipe.py").write_text(RECIPE)
        for name, cohort in (("patients", patients), ("strangers", strangers)):
            np.savez(folder / f"{name}.npz", X=cohort.labs, y=cohort.diagnosis)
    (folder / "privacy.toml").write_text(POLICY)
    (folder / "serve.toml").write_text(config)
    return f"--config {folder / 'serve.toml'} --policy {folder / 'privacy.toml'}"
