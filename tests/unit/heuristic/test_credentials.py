"""Leaked passwords, asked by a prefix of their hash; over a real socket on this machine."""

from __future__ import annotations

import hashlib
import threading
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from discreet.errors import InvalidValue
from discreet.heuristic import Client, Leaked, over_http, serve

WORDS = {f"password{number}": number + 1 for number in range(2000)}


@pytest.fixture
def address():
    server = serve(Leaked(WORDS, prefix=2))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_over_http(address):
    client = Client(over_http(address), prefix=2)
    assert [client.count(word) for word in ("password0", "password1999", "correct horse")] == [1, 2000, 0]


def test_every_answer_is_equally_long_and_wrong_questions_are_refused(address):
    lengths = {len(urlopen(f"{address}/range/{prefix:02X}").read()) for prefix in range(0, 256, 16)}
    assert len(lengths) == 1
    for path in ("range/0", "range/GG", "", "range/../x"):
        with pytest.raises(HTTPError) as told:
            urlopen(f"{address}/{path}")
        assert told.value.code == 400
        told.value.close()


@pytest.mark.parametrize("hash", ["sha1", "blake2"])
def test_only_the_prefix_leaves_the_client(hash):
    asked = []
    leaked = Leaked(WORDS, prefix=3, hash=hash)

    def fetch(prefix):
        asked.append(prefix)
        return leaked.range(prefix)

    client = Client(fetch, prefix=3, hash=hash)
    assert client.count("password7") == 8
    assert client.count("not there") == 0
    assert all(len(prefix) == 3 for prefix in asked)


def test_sha1_as_everybody_computes_it():
    leaked = Leaked(["letmein"], prefix=5)
    name = hashlib.sha1(b"letmein").hexdigest().upper()
    assert f"{name[5:]}:0000000001" in leaked.range(name[:5])


def test_k_is_the_smallest_range():
    assert Leaked(WORDS, prefix=2).k >= 1
    assert Leaked(["a"], prefix=2).k == 0, "most prefixes have nobody"


def test_bad_input_is_told():
    with pytest.raises(InvalidValue, match="at least one leaked"):
        Leaked([])
    with pytest.raises(InvalidValue, match="http://"):
        over_http("file:///etc/passwd")
    with pytest.raises(InvalidValue, match="hexadecimal"):
        Leaked(["a"]).range("xyz")
