"""Secure computation between processes over sockets: exact results, uniform messages, triples that work once.

False alarms, of one chi-square test of three shares: below 1e-7.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet.crypto.shares import Channel, Shared, ShareParty, Triple, decode, encode, share, triples
from discreet.errors import InvalidDocument, InvalidValue

rng = np.random.default_rng(0)


def together(parties: int, *programs: Callable[[ShareParty], Any]) -> list[Any]:
    """Each program as a party of its own, in threads, over socket pairs."""
    ends: list[dict[int, socket.socket]] = [{} for _ in range(parties)]
    for one in range(parties):
        for two in range(one):
            ends[one][two], ends[two][one] = socket.socketpair()
    found: list[Any] = [None] * parties

    def run(number: int) -> None:
        party = ShareParty(number, ends[number], timeout=20)
        try:
            found[number] = programs[number](party)
        except (InvalidValue, InvalidDocument) as problem:
            found[number] = problem
        party.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for end in ends:
        for connection in end.values():
            connection.close()
    return found


@pytest.mark.parametrize("parties", [2, 3])
def test_sums_inner_products_and_scores_are_exact(parties: int) -> None:
    columns = [np.round(rng.uniform(-100, 100, 50) * 2**20) / 2**20 for _ in range(parties)]
    dealt = triples((1, 50), (50, 1), parties)

    def program(number: int) -> Callable[[ShareParty], Any]:
        def run(party: ShareParty) -> Any:
            shared = [party.input(columns[n]) if n == number else party.receive(n, (50,)) for n in range(parties)]
            total = shared[0]
            for other in shared[1:]:
                total = total + other
            product = party.inner(shared[0], shared[1], dealt[number])
            return party.reveal(total), party.reveal(total.sum()), party.reveal(product), party.opened

        return run

    for total, all_of_it, product, opened in together(parties, *map(program, range(parties))):
        assert np.array_equal(total, np.sum(columns, axis=0))
        assert all_of_it[0] == pytest.approx(np.sum(columns), abs=1e-9)
        exact = sum(int(a * 2**20) * int(b * 2**20) for a, b in zip(columns[0], columns[1], strict=True))
        assert product[0] == exact / 2**40
        assert opened == 50 + 1 + 1


def test_two_parties_that_send_much_at_once_do_not_wait_for_each_other() -> None:
    def run(party: ShareParty) -> Any:
        mine = party.input(np.full(300_000, 1.0 + party.number))
        return party.reveal((mine + party.receive(1 - party.number, (300_000,))).sum())[0]

    assert together(2, run, run) == [900_000.0, 900_000.0]


PROGRAM = """
import socket, sys
import numpy as np
from pathlib import Path
from discreet.crypto.shares import ShareParty, Triple
number, port, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
if number == 0:
    with socket.create_server(("127.0.0.1", port)) as server:
        print(server.getsockname()[1], flush=True)
        server.settimeout(30)
        connection, _ = server.accept()
else:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
with connection:
    party = ShareParty(number, {1 - number: connection})
    triple = Triple.from_bytes((folder / f"triple-{number}").read_bytes())
    if number == 0:  # has the rows
        rows = party.input(np.load(folder / "rows.npy"))
        weights, intercept = party.receive(1, (3, 1)), party.receive(1, (1,))
    else:  # has the model
        rows = party.receive(0, (200, 3))
        weights, intercept = party.input([[1.0], [-0.5], [0.25]]), party.input([0.125])
    scores = party.score(rows, weights, intercept, triple)
    print(" ".join(map(repr, scores.tolist())))
    party.close()
"""


def test_two_processes_score_over_a_socket(tmp_path: Path) -> None:
    """The dealer is the test; the processes hold rows and model, and see each other's shares alone."""
    rows = np.round(rng.uniform(-4, 4, (200, 3)) * 2**10) / 2**10
    np.save(tmp_path / "rows.npy", rows)
    for number, triple in enumerate(triples((200, 3), (3, 1), 2)):
        (tmp_path / f"triple-{number}").write_bytes(triple.to_bytes())
    command = [sys.executable, "-c", PROGRAM]
    first = subprocess.Popen([*command, "0", "0", str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        port = first.stdout.readline().strip()  # type: ignore[union-attr]
        second = subprocess.run([*command, "1", port, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True)
        output, _ = first.communicate(timeout=60)
    finally:
        first.kill()
        first.wait()
    wanted = 1 / (1 + np.exp(-(rows @ [1.0, -0.5, 0.25] + 0.125)))
    for text in (output, second.stdout):
        assert np.array_equal([float(word) for word in text.split()], wanted)


THREE = """
import socket, sys, time
from discreet.crypto.shares import ShareParty, Triple
number, ports, folder = int(sys.argv[1]), [int(port) for port in sys.argv[2].split(",")], sys.argv[3]
peers = {}
with socket.create_server(("127.0.0.1", ports[number])) as server:
    server.settimeout(30)
    for other in range(number):                     # later parties call earlier ones, and say who they are
        for _ in range(300):
            try:
                peers[other] = socket.create_connection(("127.0.0.1", ports[other]), timeout=30)
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        peers[other].sendall(bytes([number]))
    while len(peers) < 2:
        connection, _ = server.accept()
        peers[connection.recv(1)[0]] = connection
party = ShareParty(number, peers)
own = [1.5, -2.0, 0.25 * number]
shared = [party.input(own) if owner == number else party.receive(owner, (3,)) for owner in range(3)]
triple = Triple.from_bytes(open(f"{folder}/three-{number}", "rb").read())
total = party.reveal((shared[0] + shared[1] + shared[2]).sum())
product = party.reveal(party.inner(shared[1], shared[2], triple))
print(total[0], product[0])
party.close()
for connection in peers.values():
    connection.close()
"""


def test_three_processes_add_and_multiply_over_sockets(tmp_path: Path) -> None:
    for number, triple in enumerate(triples((1, 3), (3, 1), 3)):
        (tmp_path / f"three-{number}").write_bytes(triple.to_bytes())
    free = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = ",".join(str(server.getsockname()[1]) for server in free)
    for server in free:
        server.close()
    started = [
        subprocess.Popen([sys.executable, "-c", THREE, str(number), ports, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for number in range(3)
    ]
    try:
        said = [process.communicate(timeout=60)[0].split() for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert said == [[str(3 * (1.5 - 2.0) + 0.25 + 0.5), str(1.5**2 + 2.0**2 + 0.25 * 0.5)]] * 3


def test_shares_say_nothing() -> None:
    """Every share but the first is random by itself; the first is the number minus random numbers. Chi-square of the top
    byte of 3 x 40,000 shares of the number 1: beyond 400 with 255 degrees of freedom less than once in 1e7.
    """
    for part in share(encode(np.ones(40_000)), 3):
        counts = np.bincount((part >> np.uint64(56)).astype(int), minlength=256)
        assert ((counts - 40_000 / 256) ** 2 / (40_000 / 256)).sum() < 420
    parts = share(encode([1.5, -2.0]), 3)
    assert decode(parts[0] + parts[1] + parts[2]).tolist() == [1.5, -2.0]


def test_what_travels_is_uniform_and_never_the_input() -> None:
    """All that a party is sent for a product: a share, and the masked matrices."""
    ends = socket.socketpair()
    dealt = triples((1, 4), (4, 1), 2)
    secret, read = np.full(4, 3.0), []
    party = ShareParty(0, {1: ends[0]}, timeout=10)
    other = Channel(ends[1], 10)

    def listen() -> None:
        read.append(other.read((4,)))
        for shape in ((1, 4), (4, 1)):
            read.append(other.read(shape))
            other.send(np.zeros(shape, np.uint64))

    thread = threading.Thread(target=listen)
    thread.start()
    mine = party.input(secret)
    party.inner(mine, Shared(np.zeros(4, np.uint64)), dealt[0])
    thread.join()
    party.close()
    other.close()
    for words in read:
        assert not np.isin(words, encode(secret)).any()
        assert len(np.unique(words)) == 4
    for end in ends:
        end.close()


def test_the_dealer_and_one_party_read_everything() -> None:
    """Why the dealer must gain nothing: A from its memory, X - A from the messages."""
    dealt = triples((1, 2), (2, 1), 2)
    masks = dealt[0]._parts[0] + dealt[1]._parts[0]
    inputs = encode([[5.0, -7.0]])
    opened = inputs - masks
    assert decode(opened + masks).tolist() == [[5.0, -7.0]]


def test_a_triple_works_once_and_for_its_shapes() -> None:
    dealt = triples((1, 2), (2, 1), 2)

    def program(number: int) -> Callable[[ShareParty], Any]:
        def run(party: ShareParty) -> Any:
            shared = party.input([1.0, 2.0]) if number == 0 else party.receive(0, (2,))
            with pytest.raises(InvalidValue, match="triple is for a product"):
                party.matmul(Shared(shared.words[:, None]), Shared(shared.words[None, :]), dealt[number])
            found = party.reveal(party.inner(shared, shared, dealt[number]))
            with pytest.raises(InvalidValue, match="used already"):
                party.inner(shared, shared, dealt[number])
            return found[0]

        return run

    assert together(2, program(0), program(1)) == [5.0, 5.0]


def test_the_bytes_of_a_triple_work_once() -> None:
    """The dealer's message again is the same triple again."""
    data = triples((1, 1), (1, 1), 2)[0].to_bytes()
    one = np.zeros((1, 1), np.uint64)
    assert len(Triple.from_bytes(data).take(one, one)) == 3
    with pytest.raises(InvalidValue, match="used already"):
        Triple.from_bytes(data).take(one, one)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "closed the connection"),
        ((1).to_bytes(8, "little") + (1 << 60).to_bytes(8, "little"), "bytes where 16 were"),
        ((2).to_bytes(8, "little") + (16).to_bytes(8, "little") + bytes(16), "replayed"),
    ],
)
def test_garbage_replays_and_silence_from_the_other_party(data: bytes, text: str) -> None:
    one, two = socket.socketpair()
    party = ShareParty(0, {1: one}, timeout=5)
    two.sendall(data)
    two.shutdown(socket.SHUT_WR)
    with pytest.raises(InvalidDocument, match=text):
        party.receive(1, (2,))
    one.close()
    two.close()


def test_what_is_refused() -> None:
    with pytest.raises(InvalidValue, match="Nothing was shared"):
        encode([1e30])
    with pytest.raises(InvalidValue, match="Nothing was shared"):
        encode([np.nan])
    with pytest.raises(InvalidValue, match="Two or three"):
        share(encode([1.0]), 4)
    with pytest.raises(InvalidValue, match="numbered from 0"):
        ShareParty(2, {})
    with pytest.raises(InvalidValue, match="same shape"):
        Shared(encode([1.0])) + Shared(encode([1.0, 2.0]))
    data = triples((1, 2), (2, 1), 2)[0].to_bytes()
    with pytest.raises(InvalidDocument, match="truncated"):
        Triple.from_bytes(data[:-1])
    from discreet.crypto.container import pack

    for shapes in ([[1, 1 << 40], [1, 1], [1, 1]], "all", [[1, 2], [2, 1], [1, 2]]):
        with pytest.raises(InvalidDocument, match="other shapes"):
            Triple.from_bytes(pack("triple", {"shapes": shapes}, [bytes(16), bytes(16), bytes(16)]))
