"""Scoring over HTTP: the server gets public keys and ciphertexts and nothing else, and refuses replays and garbage."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from discreet import Ledger, Release, crypto, record
from discreet.cli import app
from discreet.crypto.disclosure import disclosed
from discreet.crypto.model import Layer
from discreet.crypto.wire import ScoringClient, ScoringServer
from discreet.errors import InvalidDocument, InvalidValue

MODEL = crypto.Model((Layer(np.array([[1.0, -2.0, 0.5]]), np.array([0.25])),), "identity")
ROWS = np.array([[0.5, 1.0, -1.0], [2.0, 0.0, 3.0]])


@pytest.fixture(scope="module")
def keys() -> tuple[crypto.SecretContext, crypto.PublicContext]:
    return crypto.keygen("linear", features=3)


@pytest.fixture
def server() -> Iterator[ScoringServer]:
    with ScoringServer(MODEL) as running:
        yield running


def test_scores_come_back(server: ScoringServer, keys: tuple) -> None:
    secret, public = keys
    client, request = ScoringClient(server.url), crypto.encrypt(secret, ROWS)
    assert client.describe() == {
        "features": 3, "outputs": 1, "purpose": "linear", "link": "identity", "approximation": [],
        "error": crypto.error_bound(MODEL, public),
    }  # fmt: skip
    assert client.describe(20.0)["error"] == crypto.error_bound(MODEL, public, bound=20.0)
    for bad in (0.0, -1.0, 1e9, float("nan")):
        with pytest.raises(InvalidValue, match="/model to read"):
            client.describe(bad)
    client.send_key(public)
    answer = client.score(request)
    assert np.abs(crypto.decrypt(secret, answer, request=request) - MODEL(ROWS)).max() < 1e-3
    with pytest.raises(InvalidValue, match="replay"):
        client.score(request)


def test_the_server_is_sent_no_secret(keys: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte that reaches the server: a public key whose parts do not decrypt, and ciphertexts."""
    secret, public = keys
    sent: list[tuple[str, bytes]] = []
    with ScoringServer(MODEL) as server:
        monkeypatch.setattr(server, "add_key", lambda data: sent.append(("keys", data)) or ScoringServer.add_key(server, data))
        monkeypatch.setattr(
            server.scorer, "score", lambda p, r: sent.append(("score", r.to_bytes())) or crypto.Scorer(MODEL).score(p, r)
        )
        client = ScoringClient(server.url)
        client.send_key(public)
        client.score(crypto.encrypt(secret, ROWS))
        held = [value for context in server._keys.values() for value in (getattr(context, name) for name in context.__slots__)]
    raw = public.cipher.to_bytes(secret._secret)
    assert [name for name, _ in sent] == ["keys", "score"]
    for _, data in sent:
        assert raw[-4000:] not in data
        assert b"secret" not in data[:4000]
    assert not any(type(value).__name__ in ("SecretKey", "Decryptor") for value in held)


def secret_words(secret: crypto.SecretContext) -> bytes:
    """Thirty-two words of the key as SEAL computes with it, from its middle."""
    held = secret._secret.data().dyn_array()
    return struct.pack("<32Q", *(held.at(place) for place in range(4000, 4032)))


def holds(process: int, pattern: bytes) -> bool:
    """Whether a process has these bytes anywhere in memory that it can write."""
    with open(f"/proc/{process}/maps", encoding="utf-8") as maps, open(f"/proc/{process}/mem", "rb") as memory:
        for line in maps:
            if line.split()[1][:2] != "rw":
                continue
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            try:
                memory.seek(start)
                if pattern in memory.read(end - start):
                    return True
            except OSError:
                continue
    return False


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="reads memory as Linux shows it")
def test_the_memory_of_the_servers_process_holds_no_secret(tmp_path: Path, keys: tuple) -> None:
    """Rows are scored by another process, and then all of its memory is looked through for the key. The same search finds it in
    a process that has loaded the key's file.
    """
    secret, public = keys
    pattern = secret_words(secret)
    MODEL.save(tmp_path / "model.json")
    secret.save(tmp_path / "secret.key")
    command = [sys.executable, "-m", "discreet.cli", "crypto", "serve", str(tmp_path / "model.json"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            client = ScoringClient(process.stderr.readline().split()[2].rstrip("."))  # type: ignore[union-attr]
            client.send_key(public)
            request = crypto.encrypt(secret, ROWS)
            assert np.abs(crypto.decrypt(secret, client.score(request), request=request) - MODEL(ROWS)).max() < 1e-3
            try:
                found = holds(process.pid, pattern)
            except PermissionError:
                pytest.skip("another process's memory cannot be read here")
        finally:
            process.terminate()
    assert not found
    holding = f"from discreet.crypto import *; s = SecretContext.load({str(tmp_path / 'secret.key')!r}); print(); input()"
    with subprocess.Popen([sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        holder.stdout.readline()  # type: ignore[union-attr]
        assert holds(holder.pid, pattern)
        holder.communicate("\n")


def test_a_secret_key_is_refused_by_both_sides(server: ScoringServer, keys: tuple, tmp_path: Path) -> None:
    secret, _ = keys
    with pytest.raises(InvalidValue, match="Only a PublicContext can be sent"):
        ScoringClient(server.url).send_key(secret)  # type: ignore[arg-type]
    secret.save(tmp_path / "secret.key")
    post = urllib.request.Request(server.url + "/keys", data=(tmp_path / "secret.key").read_bytes())
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(post)
    assert b"holds a secret key" in refused.value.read()
    refused.value.close()
    assert not server._keys


def test_the_server_refuses_what_it_cannot_score(server: ScoringServer, keys: tuple) -> None:
    secret, public = keys
    client = ScoringClient(server.url)
    with pytest.raises(InvalidValue, match="does not have key"):
        client.score(crypto.encrypt(secret, ROWS))
    client.send_key(public)
    for body, status in ((b"garbage", 400), (crypto.encrypt(secret, ROWS).to_bytes()[:-5], 400)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(server.url + "/score", data=body))
        assert refused.value.code == status
        refused.value.close()
    with pytest.raises(urllib.error.HTTPError, match="404") as missing:
        urllib.request.urlopen(server.url + "/other")
    missing.value.close()


class Liar(BaseHTTPRequestHandler):
    body = b"garbage"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def do_GET(self) -> None:
        self.send_error(200)

    def log_message(self, *_: object) -> None: ...


def test_a_server_that_answers_garbage_or_an_old_answer(keys: tuple) -> None:
    secret, public = keys
    old = crypto.encrypt(secret, ROWS)
    with HTTPServer(("127.0.0.1", 0), Liar) as liar:
        threading.Thread(target=liar.serve_forever, args=(0.1,), daemon=True).start()
        client = ScoringClient(f"http://127.0.0.1:{liar.server_address[1]}")
        with pytest.raises(InvalidDocument, match="not written by discreet"):
            client.score(crypto.encrypt(secret, ROWS))
        Liar.body = crypto.Scorer(MODEL).score(public, old).to_bytes()
        with pytest.raises(InvalidDocument, match="another request"):
            client.score(crypto.encrypt(secret, ROWS))
        with pytest.raises(InvalidDocument, match="no scoring server"):
            client.describe()
        liar.shutdown()
    with pytest.raises(InvalidValue, match="does not answer"):
        ScoringClient("http://127.0.0.1:9").describe()
    with pytest.raises(InvalidValue, match="http://"):
        ScoringClient("file:///etc")


@pytest.mark.parametrize(
    "said",
    [
        b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200,
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100_000,
    ],
    ids=["no-http", "bad-chunk", "many-headers", "deep-json"],
)  # fmt: skip
def test_what_does_not_speak_http(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(InvalidDocument, match=r"no scoring server|does not speak HTTP"):
            ScoringClient(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=10).describe()
        thread.join()


def test_a_refusal_that_cannot_be_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 400 no\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(InvalidValue, match="refused: status 400"):
            ScoringClient(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=10).describe()
        thread.join()


@pytest.mark.parametrize("url", ["http://[::1", "http://a b/"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(InvalidValue, match="is no address"):
        ScoringClient(url).describe()


def test_the_commands(tmp_path: Path) -> None:
    """keygen, encrypt, serve (another process), score, decrypt."""
    MODEL.save(tmp_path / "model.json")
    (tmp_path / "rows.csv").write_text("a,b,c\n0.5,1,-1\n2,0,3\n")

    def run(*words: str) -> str:
        result = CliRunner().invoke(app, ["crypto", *(word.replace("@", f"{tmp_path}/") for word in words)])
        assert result.exit_code == 0, result.output
        return result.stdout

    run("keygen", "@keys", "--for", "linear", "--features", "3")
    run("encrypt", "@rows.csv", "--key", "@keys/secret.key", "-o", "@rows.ct")
    command = [sys.executable, "-m", "discreet.cli", "crypto", "serve", str(tmp_path / "model.json"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = process.stderr.readline().split()[2].rstrip(".")  # type: ignore[union-attr]
            run("score", "@rows.ct", "--key", "@keys/public.key", "--server", url, "-o", "@scores.ct")
        finally:
            process.terminate()
    shown = run("decrypt", "@scores.ct", "--key", "@keys/secret.key", "--request", "@rows.ct")
    assert np.abs(np.array([float(line) for line in shown.split()]) - MODEL(ROWS)[:, 0]).max() < 1e-3
    found = json.loads(run("decrypt", "@scores.ct", "--key", "@keys/secret.key", "--json"))
    assert len(found["scores"]) == 2
    again = CliRunner().invoke(app, ["crypto", "keygen", str(tmp_path / "keys"), "--for", "linear", "--features", "3"])
    assert again.exit_code == 2
    assert "already" in again.output
    (tmp_path / "bad.csv").write_text("a,b,c\n1,2,x\n")
    refused = CliRunner().invoke(
        app, ["crypto", "encrypt", f"{tmp_path}/bad.csv", "--key", f"{tmp_path}/keys/secret.key", "-o", "x"]
    )
    assert refused.exit_code == 2
    assert "no number" in refused.output
    binary = CliRunner().invoke(
        app, ["crypto", "encrypt", f"{tmp_path}/rows.ct", "--key", f"{tmp_path}/keys/secret.key", "-o", f"{tmp_path}/x"]
    )
    assert binary.exit_code == 2
    assert "not a CSV file" in binary.output
    for table, where, said in (
        ("none.csv", "x", "none.csv: No such file"),
        ("rows.csv", "none/x", "a folder that is there"),
    ):
        absent = CliRunner().invoke(
            app,
            ["crypto", "encrypt", f"{tmp_path}/{table}", "--key", f"{tmp_path}/keys/secret.key", "-o", f"{tmp_path}/{where}"],
        )
        assert absent.exit_code in (1, 2)
        assert said in absent.output
    before = (tmp_path / "keys/secret.key").read_bytes()
    own = f"{tmp_path}/keys/secret.key"
    public = f"{tmp_path}/keys/public.key"
    for taken in (own, public):
        for line in (
            ["encrypt", f"{tmp_path}/rows.csv", "--key", own],
            ["score", f"{tmp_path}/rows.ct", "--key", public, "--server", url],
            ["disclose", f"{tmp_path}/scores.ct", "--key", own, "--request", f"{tmp_path}/rows.ct", "--error", "0.1", "--grid",
             "10", "--ledger", f"{tmp_path}/no.db", "--source", "clinic", "--unit", "record"],
        ):  # fmt: skip
            over = CliRunner().invoke(app, ["crypto", *line, "-o", taken])
            assert over.exit_code == 2, line
            assert "never written over" in over.output
    (tmp_path / "one.csv").write_text("a,b,c\n0.5,1,-1\n")
    run("encrypt", "@one.csv", "--key", "@keys/secret.key", "-o", "@one.ct")
    assert crypto.Encrypted.load(tmp_path / "one.ct").layout == "row"
    again = CliRunner().invoke(app, ["crypto", "keygen", f"{tmp_path}/keys", "--for", "linear", "--features", "3"])
    assert "has a secret.key already" in again.output
    with pytest.raises(InvalidValue, match="never written over"):
        crypto.Model.load(tmp_path / "model.json").save(own)
    assert (tmp_path / "keys/secret.key").read_bytes() == before
    Ledger(tmp_path / "ledger.db").open("clinic", unit=record("replace"), epsilon=1.0, delta=1e-6)
    hand_on = ["disclose", "@scores.ct", "--key", "@keys/secret.key", "--request", "@rows.ct", "--error", "0.0003", "--ledger",
               "@ledger.db", "--source", "clinic", "--unit", "record", "-o", "@handed.json"]  # fmt: skip
    run(*hand_on, "--grid", "0.0625")
    handed = Release.load(tmp_path / "handed.json")
    (claim,) = handed.claims
    assert (set(claim.game.view), disclosed(Ledger(tmp_path / "ledger.db"), found_key(tmp_path))) == ({"ciphertexts"}, 2)
    fine = CliRunner().invoke(app, ["crypto", *(word.replace("@", f"{tmp_path}/") for word in hand_on), "--grid", "0.001"])
    assert fine.exit_code == 2
    assert "64 times the error" in fine.output


def found_key(folder: Path) -> str:
    return crypto.PublicContext.load(folder / "keys/public.key").id


def test_what_fit_wrote_is_served(tmp_path: Path) -> None:
    """fit, keygen and encrypt by the model, serve, score and decrypt: what `discreet predict` says, in any order of columns."""
    import csv

    from discreet.cli.scored import served_model

    rng = np.random.default_rng(0)
    age, sex = rng.integers(20, 90, 400), rng.choice(["f", "m"], 400)
    lines = [f"{a},{s},{'yes' if a + 20 * (s == 'm') > 60 else 'no'}" for a, s in zip(age, sex, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["age,sex,ill", *lines]) + "\n")
    (tmp_path / "columns.toml").write_text('age = [0, 100]\nsex = ["f", "m"]\n')

    def run(*words: str, status: int = 0) -> str:
        found = CliRunner().invoke(app, [word.replace("@", f"{tmp_path}/") for word in words])
        assert found.exit_code == status, found.output
        return found.output if status else found.stdout

    budget = ("--epsilon", "2", "--delta", "1e-6")
    run(
        "fit",
        "logistic",
        "@t.csv",
        "--target",
        "ill",
        "--columns",
        "@columns.toml",
        "--classes",
        "no,yes",
        *budget,
        "-o",
        "@m.json",
    )
    run("crypto", "keygen", "@keys", "--model", "@m.json")
    (tmp_path / "new.csv").write_text("sex,age\nm,31\nf,78\n")
    run("crypto", "encrypt", "@new.csv", "--key", "@keys/secret.key", "--model", "@m.json", "-o", "@rows.ct")
    with ScoringServer(served_model(str(tmp_path / "m.json"))) as server:
        answered = ("--server", server.url, "-o", "@scores.ct")
        run("crypto", "score", "@rows.ct", "--key", "@keys/public.key", *answered)
        shown = run("crypto", "decrypt", "@scores.ct", "--key", "@keys/secret.key", "--request", "@rows.ct")
        run("crypto", "keygen", "@others", "--for", "encrypted-sigmoid", "--features", "3")
        run("crypto", "encrypt", "@new.csv", "--key", "@others/secret.key", "--model", "@m.json", "-o", "@bad.ct")
        told = run("crypto", "score", "@bad.ct", "--key", "@others/public.key", *answered, status=2)
        assert "needs keys for linear with 3 features" in told
        (tmp_path / "swap.csv").write_text("sex=f,age,sex=m\n0,0.3,1\n")
        run("crypto", "encrypt", "@swap.csv", "--key", "@keys/secret.key", "-o", "@swap.ct")
        assert "another order" in run("crypto", "score", "@swap.ct", "--key", "@keys/public.key", *answered, status=2)
    said = list(csv.DictReader(run("predict", "@m.json", "@new.csv", "--probabilities").splitlines()))
    assert [float(line) for line in shown.split()] == pytest.approx(
        [float(row["probability of yes"]) for row in said], abs=1e-3
    )


def test_columns_in_another_order_are_put_in_that_of_the_model(tmp_path: Path) -> None:
    from discreet.cli.scored import encoded, served_model

    named = crypto.Model(MODEL.layers, MODEL.link, ("a", "b", "c"))
    named.save(tmp_path / "model.json")
    (tmp_path / "swap.csv").write_text("b,a,c\n2,1,3\n")
    assert encoded(str(tmp_path / "swap.csv"), str(tmp_path / "model.json")) == (["a", "b", "c"], [[1.0, 2.0, 3.0]])
    (tmp_path / "other.csv").write_text("b,a,d\n2,1,3\n")
    with pytest.raises(InvalidValue, match="lack 'c' and have 'd'"):
        encoded(str(tmp_path / "other.csv"), str(tmp_path / "model.json"))
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(InvalidDocument, match="Name what discreet fit wrote"):
        served_model(str(tmp_path / "no.json"))


@pytest.mark.parametrize(("words", "said"), [
    (["--for", "logistic", "--features", "3"], "--for linear"), (["--for", "linear"], "--features"),
    (["--for", "tree", "--features", "3"], "encrypted-sigmoid"), (["--model", "m.json", "--features", "3"], "leave out"),
])  # fmt: skip
def test_kinds_of_keys_are_not_misread(tmp_path: Path, words: list[str], said: str) -> None:
    found = CliRunner().invoke(app, ["crypto", "keygen", str(tmp_path / "keys"), *words])
    assert found.exit_code == 2
    assert said in found.output
