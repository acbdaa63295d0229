"""serve.toml: which data a source is, what may be attacked."""

from __future__ import annotations

from pathlib import Path

import pytest

from discreet.core import record, user
from discreet.errors import DiscreetError
from discreet.serve import read_config
from discreet.serve.limits import Limit

MODEL = "[attacks.m]\nrelease = 'm'\nweights = 'w'\nmembers = 'a'\nnonmembers = 'b'\n"


def written(folder: Path, text: str) -> Path:
    (folder / "serve.toml").write_text(text)
    return folder / "serve.toml"


def test_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLINIC", "postgresql://reader:secret@db/clinic")
    sources, targets = read_config(written(tmp_path, """
        [sources.hospital]
        location = {visits = "visits.parquet", wards = "wards.csv"}
        unit = "user:patient_id"
        rows = 4
        schema = "schema.toml"
        [sources.clinic]
        location = "env:CLINIC"
        unit = "record"
        [attacks.readmission]
        release = "model"
        weights = "model.safetensors"
        members = "train.parquet"
        nonmembers = "holdout.parquet"
        attacks = "bayes_lira, loss"
        [attacks.table]
        kind = "table"
        release = "table"
        file = "table.csv"
        quasi = "age,zip"
    """))  # fmt: skip
    hospital, clinic = sources["hospital"], sources["clinic"]
    assert hospital.location == {"visits": str(tmp_path / "visits.parquet"), "wards": str(tmp_path / "wards.csv")}
    assert (hospital.unit, hospital.schema) == (user("patient_id", rows=4), tmp_path / "schema.toml")
    assert (clinic.unit, clinic.location) == (record(), "postgresql://reader:secret@db/clinic")
    assert targets["readmission"].options["weights"] == str(tmp_path / "model.safetensors")
    assert targets["readmission"].options["attacks"] == ("bayes_lira", "loss")
    assert (targets["table"].kind, targets["table"].options["quasi"]) == ("table", "age,zip")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1", "it can say sources, attacks"),
        ("[sources]\nhospital = 1", "must be tables"),
        ("[sources.h]\nunit = 'record'", "must say location"),
        ("[sources.h]\nlocation = 'x.csv'", "must say unit"),
        ("[sources.h]\nlocation = 'x.csv'\nunit = 'person'", "record or user:KEY"),
        ("[sources.h]\nlocation = 'x.csv'\nunit = 'user:id'", "must say rows"),
        ("[sources.h]\nlocation = 'x.csv'\nunit = 'user:id'\nrows = 0", "rows"),
        ("[sources.h]\nlocation = 'env:NO_SUCH_NAME'\nunit = 'record'", "no variable NO_SUCH_NAME"),
        ("[sources.h]\nlocation = 3\nunit = 'record'", "a file or an address"),
        ("[sources.h]\nlocation = 'x'\nunit = 'record'\npassword = 'y'", "says 'password'"),
        ("[attacks.m]\nrelease = 'm'", "must say weights"),
        (f"{MODEL}attacks = 3", "names such as"),
        (f"{MODEL}attacks = []", "names such as"),
        (f"{MODEL}shadows = 1000", "shadows from 2 to 256"),
        ("[attacks.m]\nkind = 'rocket'", "known are model, table"),
        ("[", "is not valid TOML"),
    ],
)
def test_what_it_may_not_say(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(DiscreetError, match=why):
        read_config(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DiscreetError, match="cannot be read"):
        read_config(tmp_path / "none.toml")


def test_a_limit_counts_within_its_window_and_forgets() -> None:
    now = [0.0]
    limit = Limit(2, 10.0, names=3, clock=lambda: now[0])
    for _ in range(2):
        assert limit.wait("a") == 0
        limit.mark("a")
    assert limit.wait("a") == 10
    now[0] = 4.0
    assert limit.wait("a") == 6
    now[0] = 10.5
    assert limit.wait("a") == 0
    limit.mark("b")
    limit.mark("b")
    assert limit.wait("b") > 0
    limit.forget("b")
    assert limit.wait("b") == 0
    for name in "cdefg":
        limit.mark(name)
    assert len(limit._marks) == 3
