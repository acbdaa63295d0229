"""The page of synthetic tables: priced, made, shown and downloaded; who may, what is charged, what is never shown."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest

from discreet import synth
from discreet.core import ExternalValue, Release
from webapp import PLANTED, Served, serving

ASKED = {"source": "hospital", "epsilon": "0.5", "delta": "1e-8", "method": "tree", "rows": "300"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as made:
        yield made


def make(served: Served, who: str = "ann", **more: str) -> Any:
    return served.post("/synthetic/make.json", who, {**ASKED, **more})


def test_the_price_spends_nothing(served: Served) -> None:
    before = len(served.state.ledger.history())
    cost = served.post("/synthetic/price.json", "ann", ASKED).json()["cost"]
    assert (cost["fits"], cost["method"], cost["epsilon"]) == (True, "tree", 0.5)
    assert set(cost["columns"]) == {"ward", "<b>odd</b>", "age"}
    assert len(served.state.ledger.history()) == before
    page = served.post("/synthetic/price", "ann", ASKED).text
    assert "Spend it and make the table" in page
    assert "&lt;b&gt;odd&lt;/b&gt;" in page
    assert "<b>odd</b>" not in page


def test_a_table_is_made_charged_kept_shown_and_downloaded(served: Served) -> None:
    told = make(served).json()["made"]
    assert told["table"]["rows"] == 300
    release: Release[Any] = served.state.store.load(told["release"])
    assert isinstance(release.value, ExternalValue)
    assert served.state.ledger.payment(release).sound
    assert release.facts["synthetic"]["method"] == "tree"
    for who in ("ada", "ann", "olga"):
        page = served.get(f"/releases/{told['release']}", who).text
        assert "300 synthetic rows" in page
        assert "The synthetic table" in page
        files = {kind: served.get(f"/synthetic/{told['release']}/table/{kind}", who) for kind in ("parquet", "csv")}
        assert files["csv"].headers["content-disposition"].startswith("attachment")
        assert parquet.read_table(io.BytesIO(files["parquet"].content)).num_rows == 300
        assert csv.read_csv(io.BytesIO(files["csv"].content)).column_names == ["ward", "<b>odd</b>", "age"]
    assert told["release"] in served.get("/synthetic", "ann").text
    log = served.get("/log", "olga").text
    assert "synthesised" in log
    assert "downloaded" in log


def test_fidelity_is_another_charge_and_analysts_may_see_it(served: Served) -> None:
    told = make(served, fidelity="0.2").json()["made"]
    near = served.state.store.load(told["fidelity"]["release"])
    assert served.state.ledger.payment(near).sound
    assert near.facts["fidelity"]["for_release"] is True
    assert "Paid for from the budget" in served.get(f"/releases/{told['fidelity']['release']}", "ann").text


def test_what_cannot_be_paid_is_refused_and_the_table_stays(served: Served) -> None:
    refused = make(served, epsilon="40")
    assert refused.status_code == 409
    entries = len(served.state.store.names())
    told = make(served, fidelity="60").json()["made"]
    assert "epsilon" in told["fidelity"]["refusal"]
    assert len(served.state.store.names()) == entries + 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"source": "nowhere"}, "may not ask"),
        ({"epsilon": "much"}, "must be a number"),
        ({"epsilon": ""}, "missing"),
        ({"delta": ""}, "missing"),
        ({"method": "magic"}, "method must be"),
        ({"rows": "2000000000"}, "rows"),
        ({"rows": "1.5"}, "whole"),
        ({"epsilon": "-1"}, "epsilon"),
    ],
)
def test_bad_input_is_told_and_spends_nothing(served: Served, more: dict[str, str], message: str) -> None:
    before = len(served.state.ledger.history())
    for path in ("/synthetic/price.json", "/synthetic/make.json"):
        answer = served.post(path, "ann", {**ASKED, **more})
        assert answer.status_code == 400
        assert message in answer.json()["error"]
    assert len(served.state.ledger.history()) == before


def test_who_has_no_share_and_officers_make_nothing(served: Served) -> None:
    assert make(served, "bob").status_code == 400
    assert make(served, "olga").status_code == 403
    assert served.post("/synthetic/make", "ann", ASKED, proof=False).status_code == 403


def test_a_source_without_a_schema_and_a_broken_one(served: Served, tmp_path: Path) -> None:
    (tmp_path / "synth.toml").write_text("[ward\n")
    assert "an owner sees why" in make(served).json()["error"]
    assert "is not valid TOML" in make(served, "ada").json()["error"]
    object.__setattr__(served.state.settings.sources["hospital"], "synth", None)
    assert "has no schema" in make(served).json()["error"]
    assert "No source can be synthesised yet" in served.get("/synthetic", "ada").text


def test_only_synthetic_tables_are_downloaded(served: Served) -> None:
    answered = served.ask().json()["answer"]["release"]
    for name in ("model", answered, "nothing", ".."):
        assert served.get(f"/synthetic/{name}/table/parquet", "ann").status_code == 404
    told = make(served).json()["made"]["release"]
    assert served.get(f"/synthetic/{told}/table/exe", "ann").status_code == 404


def test_no_value_of_a_row_is_ever_shown(served: Served) -> None:
    pages = [make(served).text, served.post("/synthetic/make", "ann", {**ASKED, "epsilon": "0.4"}).text]
    name = served.state.store.names()
    pages += [served.get(f"/releases/{each}", "ada").text for each in name]
    assert not any(PLANTED in page for page in pages)


def test_facts_of_the_owner_are_hidden_from_analysts(served: Served) -> None:
    from dataclasses import replace

    told = make(served).json()["made"]["release"]
    near = {"for_release": False, "distances": [{"columns": ["ward"], "distance": 0.123}]}
    whole = served.state.store.load(told)
    replace(whole, facts={**whole.facts, "owner_fidelity": near}).save(served.state.store.path(told))
    assert "0.123" in served.get(f"/releases/{told}", "ada").text
    assert "0.123" not in served.get(f"/releases/{told}", "ann").text


def test_a_table_that_cannot_be_written_is_made_of_the_model_that_was_kept(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(parquet.ParquetWriter, "write_batch", full)
        told = make(served)
    assert told.status_code == 400
    assert "was paid for and cannot be written now" in told.text
    assert str(served.state.store.folder) not in told.text
    (name,) = [name for name in served.state.store.names() if "-synthetic-" in name]
    folder = served.state.store.folder / name
    assert {path.name for path in folder.iterdir()} == {"model.npz", "release.json"}
    again = synth.load(folder / "model.npz")
    assert served.state.ledger.payment(again).sound
    again.value.sample(30).to_parquet(folder / "synthetic.parquet")
    assert "30 synthetic rows" in served.get(f"/releases/{name}", "ann").text
    assert list(served.state.store.folder.glob(".*.npz*")) == []


def test_a_refused_table_leaves_nothing_behind(served: Served) -> None:
    assert make(served, epsilon="50").status_code == 409
    assert list(served.state.store.folder.glob(".*.npz*")) == []
