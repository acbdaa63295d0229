"""What commands write is published: no path of a data file, no place of a ledger and no password is in it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner
from tests.unit.cli import test_federate, test_train

from discreet import Ledger, Unit, record, user
from discreet.cli import app
from discreet.cli.config import write_released
from discreet.cli.output import command_line
from discreet.core import Release
from discreet.errors import ModelUnreachable
from discreet.learn.table import Encoding
from discreet.models import Http

ROWS = 3000
SECRETS = (b"quarterly.", b"vault", b"owners", b"hunter2")


def data(place: Path) -> None:
    age = np.random.default_rng(1).integers(18, 90, ROWS)
    item = age % 10
    table = {"age": age, "sex": ["f", "m"] * (ROWS // 2), "ill": np.where(age > 50, "yes", "no"),
             "old": np.where(age > 50, "yes", "no"),
             "town": [f"t{i % 30}" for i in range(ROWS)],
             "item": item.astype(str), "rating": np.clip(item / 2, 1, 5.0)}  # fmt: skip
    parquet.write_table(pa.table(table), place / "quarterly.parquet")


@pytest.fixture
def owners(tmp_path: Path) -> Path:
    """The folder of the owner, which nobody else is told of."""
    place = tmp_path / "owners"
    place.mkdir()
    data(place)
    parquet.write_table(pa.table({"age": np.arange(18, 90)}), tmp_path / "public.parquet")
    (tmp_path / "columns.toml").write_text("age = { bins = [30, 40, 50, 60] }\n")
    (tmp_path / "schema.toml").write_text(
        '[old]\ntype = "categorical"\nvalues = ["no", "yes"]\n[age]\ntype = "integer"\nbounds = [18, 90]\n'
        + "".join(f'[{name}]\ntype = "omit"\n' for name in ("sex", "ill", "town", "item", "rating"))
    )
    (tmp_path / "items.txt").write_text("\n".join(map(str, range(10))))
    for name, text in (("train", test_train.CONFIG), ("federate", test_federate.CONFIG)):
        text = text.replace("people.csv", "owners/quarterly.parquet").replace('"ledger.db"', '"owners/vault.db"')
        text = text.replace('"run"', '"owners/run"').replace('folder = "model"', 'folder = "out"')
        paid = '[ledger]\nplace = "owners/vault.db"\nsource = "people"\n' if name == "train" else ""
        (tmp_path / f"{name}.toml").write_text(text + paid)
    return place


CLASSES = ("--target", "old", "--classes", "no,yes", "--epsilon", "1")
CALLS: dict[str, tuple[str, ...]] = {
    "train": ("{home}/train.toml",),
    "federate": ("{home}/federate.toml",),
    "fit": ("logistic", "{data}", "--columns", "{home}/columns.toml", *CLASSES),
    "pate": ("{data}", "{home}/public.parquet", "--columns", "{home}/columns.toml", "--teachers", "50", *CLASSES),
    "recommend": ("{data}", "--items", "{home}/items.txt", "--bounds", "1", "5", "--user", "town", "--epsilon", "1"),
    "synth": ("{data}", "--schema", "{home}/schema.toml", "--epsilon", "1"),
    "query": ("{data}", "SELECT COUNT(*) FROM quarterly", "--epsilon", "1"),
}
UNITS: dict[str, Unit] = {"federate": user("town", rows=None), "recommend": user("town", rows=None)}


def call(command: str, owners: Path) -> Path:
    home, out = owners.parent, owners.parent / "out"
    words = [word.format(home=home, data=owners / "quarterly.parquet") for word in CALLS[command]]
    if command not in ("train", "federate"):
        words += ["--delta", "1e-6", "-o", str(out if command in ("synth", "query") else out / "release.json")]
        words += ["--ledger", str(owners / "vault.db"), "--source", "people"]
    if command in ("fit", "pate", "recommend"):
        out.mkdir()
    done = CliRunner().invoke(app, [command, *words])
    assert done.exit_code == 0, done.output
    return out


@pytest.mark.parametrize("command", CALLS)
def test_no_place_of_the_owner_is_released(owners: Path, command: str) -> None:
    with Ledger(owners / "vault.db") as ledger:
        ledger.open("people", unit=UNITS.get(command, record()), epsilon=10.0, delta=1e-4)
    out = call(command, owners)
    files = [file for file in out.rglob("*") if file.is_file()]
    assert out / "release.json" in files
    assert Release.load(out / "release.json").entry
    for file in files:
        found = [word for word in SECRETS if word in file.read_bytes()]
        assert not found, f"{file.name} tells {found}"


def test_what_is_released_beside_a_model_holds_no_password(tmp_path: Path) -> None:
    columns = {"age": [0, 100], 'odd "name" é\x7f𝄞': ["a\\b", "c\n"], "amount": [0.5, 1e16]}
    config: dict[str, Any] = {
        "data": {"file": "owners/quarterly.csv", "target": "ill", "classes": [1, False], "columns": columns, "client": "town"},
        "model": {"hidden": [8], "seed": 3}, "train": {"epsilon": 1.0},
        "ledger": {"place": "postgresql://owners:hunter2@vault/db", "source": "people"}, "output": {"folder": "out"},
    }  # fmt: skip
    write_released(Encoding(columns, "ill", [1, False]), config, tmp_path)
    text = (tmp_path / "config.toml").read_text("utf-8")
    assert not [word for word in SECRETS if word.decode() in text]
    kept = {"target": "ill", "classes": [1, False], "columns": columns, "client": "town"}
    assert tomllib.loads(text) == {"data": kept, "model": {"hidden": [8], "seed": 3}, "train": {"epsilon": 1.0}}


@pytest.mark.parametrize("word", ["{}", "--ledger={}"])
@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:hunter2@host",
        "postgresql://u:hunter2@host/db",
        "postgresql://host/db?password=hunter2",
        "http://[hunter2",
    ],
)
def test_a_command_is_kept_without_passwords(word: str, address: str) -> None:
    assert "hunter2" not in command_line(["attack", "model", word.format(address)])


class Scores(BaseHTTPRequestHandler):
    """A model behind an address with a key: two scores for each row."""

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["instances"]
        body = json.dumps({"predictions": [[0.0, sum(row)] for row in rows]}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scores)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/owners/score?key=hunter2"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("form", ["release.json", "report.html"])
def test_an_attack_on_an_address_tells_no_key(address: str, form: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(90, 2))
    np.savetxt(tmp_path / "public.csv", np.c_[rows, rows.sum(1) > 0], delimiter=",", header="a,b,label", comments="")
    kept = tmp_path / "release.json"
    asked = ["attack", "stealing", address, "--method", "approximate", "--data", str(tmp_path / "public.csv"), "-o", str(kept)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(app, ["report", str(kept), "-o", str(tmp_path / "report.html")]).exit_code == 0
    text = (tmp_path / form).read_text("utf-8")
    assert "score" in text
    assert not [word for word in ("hunter2", "owners") if word in text]


def test_an_address_that_does_not_answer_is_told_without_its_key() -> None:
    with pytest.raises(ModelUnreachable, match=r"http://127.0.0.1:9/score did not answer") as told:
        Http("http://127.0.0.1:9/owners/score?key=hunter2").scores(np.zeros((1, 2)))
    assert not [word for word in ("hunter2", "owners") if word in str(told.value)]
