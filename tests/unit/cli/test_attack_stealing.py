"""`discreet attack stealing`, `extraction` and `exposure`, from files to a report."""

from __future__ import annotations

import csv
import json

import joblib
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from discreet.cli import app
from discreet.core import Release


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A classifier, public rows, and a language model of bytes with a tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    place = tmp_path_factory.mktemp("models")
    X, y = load_iris(return_X_y=True)
    joblib.dump(LogisticRegression(max_iter=500).fit(X, y), place / "iris.joblib")
    with (place / "public.csv").open("w", newline="") as file:
        rows = [[*row, int(label)] for row, label in zip(X.tolist(), y.tolist())]
        csv.writer(file).writerows([["a", "b", "c", "d", "label"], *np.random.default_rng(0).permutation(rows).tolist()])
    letters = {chr(code): code - 32 for code in range(32, 127)}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token=" "))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=95, n_positions=64, n_embd=16, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
    for name, size in (("lm", 95), ("other", 50)):
        config.vocab_size = size
        GPT2LMHeadModel(config).save_pretrained(place / name)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=" ").save_pretrained(place / name)
    for name, word in (("train", "member"), ("control", "person")):
        lines = [json.dumps({"text": f"{word} number {n:02d} has a secret or two to keep"}) for n in range(6)]
        (place / f"{name}.jsonl").write_text("\n".join(lines))
    lines = [json.dumps({"secret": f"{n * 7919 % 10000:04d}", "repetitions": n % 2}) for n in range(1, 9)]
    (place / "canaries.jsonl").write_text("\n".join(lines))
    return place


def test_rows_in_the_order_of_their_classes_teach_a_copy_as_well(folder, tmp_path):
    X, y = load_iris(return_X_y=True)  # sorted by class
    with (tmp_path / "sorted.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["a", "b", "c", "d", "label"], *([*row, label] for row, label in zip(X.tolist(), y.tolist()))]
        )
    fixed = ("--method", "approximate", "--data", tmp_path / "sorted.csv", "--answers", "labels", "--trust-pickle", "--json")
    done = run("attack", "stealing", folder / "iris.joblib", *fixed)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["agreement"] > 0.9


@pytest.mark.parametrize("method", ["linear", "approximate"])
def test_a_model_in_a_file_is_stolen_and_reported(folder, tmp_path, method):
    out = tmp_path / "stolen.json"
    words = (
        "attack",
        "stealing",
        folder / "iris.joblib",
        "--method",
        method,
        "--data",
        folder / "public.csv",
        "--trust-pickle",
    )
    found = run(*words, "-o", out, "--json")
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert told["error"] < 1e-8 if method == "linear" else told["agreement"] > 0.8
    page = run("report", out)
    assert "no floor of ε" in page.output
    rounded = run(*words, "--decimals", 0)
    assert rounded.exit_code != 0 or method == "approximate"


def test_texts_and_canaries_are_asked_for(folder, tmp_path):
    out = tmp_path / "text.json"
    words = ("--corpus", folder / "train.jsonl", "--control", folder / "control.jsonl", "--prompt", 8, "--suffix", 8)
    found = run("attack", "extraction", "--model", folder / "lm", *words, "-o", out, "--json")
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)["extraction"]
    assert [row["samples"] for row in told] == [1, 10, 100, 1000, 10000]
    assert told[0]["members"] == told[0]["control"] == 0  # it has not learned anything
    page = run("report", out).output
    assert "What a language model says verbatim" in page
    assert "member number" not in page
    canaries = ("--template", "my code is {}", "--canaries", folder / "canaries.jsonl", "--samples", 60)
    found = run("attack", "exposure", "--model", folder / "lm", *canaries, "-o", out, "--json")
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)["exposure"]
    assert [row["repetitions"] for row in rows] == [0, 1]
    assert all(0 <= row["bits"] <= 13.3 for row in rows)
    assert "Canaries" in run("report", out).output


def test_bad_input_is_named(folder, tmp_path):
    words = ("--corpus", folder / "train.jsonl", "--control", folder / "control.jsonl")
    found = run("attack", "extraction", "--model", folder / "other", *words)
    assert found.exit_code != 0
    assert "do not belong together" in found.output
    found = run("attack", "extraction", "--model", folder / "lm", *words, "--field", "body")
    assert "--field" in found.output
    bad = tmp_path / "bad.jsonl"
    bad.write_text("no json")
    found = run("attack", "exposure", "--model", folder / "lm", "--template", "a {}", "--canaries", bad)
    assert "JSON lines" in found.output
    words = ("--method", "relu", "--data", folder / "public.csv", "--decimals", "3", "--trust-pickle")
    found = run("attack", "stealing", folder / "iris.joblib", *words)
    assert "steps of" in found.output


def test_everything_is_asked_of_a_language_model(folder, tmp_path):
    words = ("--members", folder / "train.jsonl", "--nonmembers", folder / "control.jsonl")
    found = run("attack", "model", folder / "lm", *words, "--all", "-o", tmp_path / "out", "--json")
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert (told["members"], told["nonmembers"]) == (6, 6)
    assert {"text loss", "text extraction", "unprompted generation"} <= set(told["attacks"])
    release = Release.load(tmp_path / "out" / "release.json")
    assert {"text loss", "text extraction"} <= {each.attack for each in release.evidence}
    assert release.facts["extraction"][0]["prompt"] == release.facts["extraction"][0]["suffix"] == 22
    assert release.facts["unprompted"]["memorised"] == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "What a language model says verbatim" in page
    assert "member number" not in page
    mismatched = run("attack", "model", folder / "other", *words, "--all", "-o", tmp_path / "other")
    assert mismatched.exit_code == 2
    assert "do not belong together" in mismatched.output


@pytest.fixture
def interface(folder):
    """An address that answers with labels alone, and is down two times in three."""
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    model, asked = joblib.load(folder / "iris.joblib"), []

    class Answers(BaseHTTPRequestHandler):
        def log_message(self, *words):
            pass

        def do_POST(self):
            rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["instances"]
            asked.append(len(rows))
            self.send_response(200 if len(asked) % 3 == 0 else 429)
            self.send_header("Retry-After", "0")
            self.end_headers()
            if len(asked) % 3 == 0:
                self.wfile.write(json.dumps({"predictions": model.predict(rows).tolist()}).encode())

    server = HTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_an_interface_that_gives_labels_alone_and_often_fails_is_copied(folder, interface, monkeypatch):
    monkeypatch.setattr("discreet.attack.stealing.oracle.LONGEST_WAIT", 0.01)
    words = ("attack", "stealing", interface, "--data", folder / "public.csv")
    found = run(*words, "--method", "approximate", "--answers", "labels", "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["agreement"] > 0.85
    found = run(*words, "--method", "linear")
    assert found.exit_code == 2
    assert "labels alone" in found.output
    from discreet.errors import InvalidValue, ModelUnreachable
    from discreet.models import Http

    model = Http(interface)
    for _ in range(2):
        with pytest.raises(ModelUnreachable):
            model.scores(np.ones((3, 4)))
    with pytest.raises(InvalidValue, match="--access labels"):
        model.scores(np.ones((3, 4)))
