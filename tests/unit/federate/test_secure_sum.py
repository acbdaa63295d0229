"""Secure sums are exact, survive drop-outs, and tell nothing to whoever breaks the rules.

Keys are the operating system's. One test looks at masked numbers; it fails on sound code with probability below 1e-9.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from discreet.errors import InvalidDocument, InvalidValue, ProtocolError
from discreet.federate import Clients, FedAvg, Identity, SecureSum, SumClient, SumServer, simulate
from discreet.federate.secure import graph_bounds, shamir, sparse_graph
from discreet.federate.secure.client import KEY, OWN
from discreet.federate.secure.graph import ring
from discreet.federate.secure.messages import HEADER, MASKED, SURVIVORS, signed, write

SIZE, COUNT = 5, 6
VALUES = np.arange(COUNT * SIZE).reshape(COUNT, SIZE) - 15


class Round:
    """All parties of one round, up to a stage."""

    def __init__(self, plan: SecureSum | None = None, number: int = 3) -> None:
        self.plan = plan or SecureSum(size=SIZE, clients=COUNT, clip=1.0, threshold=4, bits=12)
        self.identities = [Identity() for _ in range(self.plan.clients)]
        self.roster = [identity.public for identity in self.identities]
        self.server = self.plan.server(self.roster, round=number)
        self.clients = [self.client(i, number) for i in range(self.plan.clients)]
        self.inbox: dict[int, bytes] = {}

    def client(self, number: int, round: int) -> SumClient:
        return self.plan.client(number, self.identities[number], self.roster, round=round)

    def run(self, stage: str, without: set[int] = frozenset()) -> Round:  # type: ignore[assignment]
        """One stage, by all clients but these."""
        for number in self.inbox or range(self.plan.clients):
            if number not in without:
                self.server.receive(self.message(stage, number))
        self.inbox = self.server.proceed() if stage != "answer" else {}
        return self

    def message(self, stage: str, number: int) -> bytes:
        client = self.clients[number]
        if stage == "keys":
            return client.keys()
        extra = (VALUES[number],) if stage == "masked" else ()
        found: bytes = getattr(client, stage)(self.inbox[number], *extra)
        return found


def test_the_sum_is_exact_whoever_drops_out() -> None:
    for without in [set(), {0}, {5}, {2}]:
        run = Round().run("keys").run("shares").run("masked", without).run("answer")
        total, stayed = run.server.total()
        assert stayed == [i for i in range(COUNT) if i not in without]
        assert total.tolist() == VALUES[stayed].sum(0).tolist()


def test_clients_may_drop_out_at_every_stage() -> None:
    plan = SecureSum(size=SIZE, clients=9, clip=1.0, threshold=5, bits=12)
    run = Round(plan)
    global_values = np.arange(9 * SIZE).reshape(9, SIZE)
    for number in range(8):  # 8 never sends keys
        run.server.receive(run.clients[number].keys())
    out = run.server.proceed()
    for number in range(7):  # 7 sends no shares
        run.server.receive(run.clients[number].shares(out[number]))
    out = run.server.proceed()
    assert sorted(out) == list(range(7))
    for number in range(1, 7):  # 0 sends no numbers
        run.server.receive(run.clients[number].masked(out[number], global_values[number]))
    out = run.server.proceed()
    for number in range(2, 6):  # 1 and 6 do not answer: four are too few
        run.server.receive(run.clients[number].answer(out[number]))
    with pytest.raises(ProtocolError, match=r"Shares of client 1 .* 4 are left where 5"):
        run.server.total()
    run.server.receive(run.clients[6].answer(out[6]))
    run.server.receive(run.clients[1].answer(out[1]))
    assert run.server.total()[0].tolist() == global_values[1:7].sum(0).tolist()


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_plan_sums_exactly(data: st.DataObject) -> None:
    clients = data.draw(st.integers(4, 9))
    threshold = data.draw(st.integers((clients - 1) // 2 + 1, clients - 2))
    bits = data.draw(st.sampled_from([2, 8, 13, 20, 32]))
    plan = SecureSum(size=3, clients=clients, clip=2.0, threshold=threshold, bits=bits)
    assert plan.modulus > 2 * clients * plan.reach
    values = np.array(data.draw(st.lists(st.lists(st.sampled_from([-plan.reach, plan.reach, 0, 1]), min_size=3, max_size=3),
                                         min_size=clients, max_size=clients)))  # fmt: skip
    dropped = data.draw(st.sets(st.integers(0, clients - 1), max_size=clients - 1 - threshold))
    total, stayed = plan.total(values, dropped=dropped)
    assert set(stayed) == set(range(clients)) - dropped
    assert total.tolist() == values[stayed].sum(0).tolist()


def test_the_mean_is_off_by_half_a_step_at_most() -> None:
    values = np.random.default_rng(1).uniform(-3, 3, (7, 500)).astype(np.float32)
    for bits in (8, 20, 30):
        plan = SecureSum(size=500, clients=7, clip=2.0, threshold=4, bits=bits)
        off = np.abs(plan.mean_of(values, dropped={4}) - np.delete(values, 4, 0).astype(float).clip(-2, 2).mean(0))
        assert off.max() <= plan.error * (1 + 1e-6)
        assert off.max() > plan.error / 30  # and it is no better than it says by much


def test_a_sparse_graph_sums_exactly() -> None:
    plan = SecureSum(size=4, clients=40, clip=1.0, threshold=12, bits=16, neighbours=18, seed=bytes(range(16)))
    values = np.random.default_rng(0).integers(-900, 900, (40, 4))
    total, stayed = plan.total(values, dropped={1, 5, 30})
    assert total.tolist() == values[stayed].sum(0).tolist()
    assert all(len(others) == 18 and me not in others for me, others in enumerate(plan.graph))
    assert all(me in plan.graph[other] for me, others in enumerate(plan.graph) for other in others)


def test_masked_numbers_are_uniform_and_new_every_time() -> None:
    plan = SecureSum(size=20_000, clients=3, clip=1.0, threshold=2, bits=12)
    seen = []
    for _ in range(2):
        run = Round(plan).run("keys").run("shares")
        for number in range(3):
            body = run.clients[number].masked(run.inbox[number], np.zeros(20_000))[HEADER.size : -64]
            seen.append(np.frombuffer(body, "<u2"))
    for words in seen:
        counts = np.bincount(words >> 8, minlength=256)
        chi = float(((counts - 20_000 / 256) ** 2 / (20_000 / 256)).sum())
        assert chi < 255 + 9 * math.sqrt(2 * 255)  # below 1e-10 for each of six
    assert all((one != two).mean() > 0.99 for one, two in combinations(seen, 2))


# ---- who breaks the rules ----------------------------------------------------------------------------------------------------


def test_too_few_at_each_stage() -> None:
    for stage in ("keys", "shares", "masked"):
        run = Round()
        for earlier in ("keys", "shares", "masked"):
            if earlier == stage:
                with pytest.raises(ProtocolError, match="Nothing can be opened"):
                    run.run(stage, without={0, 1})
                break
            run.run(earlier)


def test_a_client_that_sends_twice_is_refused_and_changes_nothing() -> None:
    run = Round()
    for stage in ("keys", "shares", "masked", "answer"):
        sent = {number: run.message(stage, number) for number in run.inbox or range(COUNT)}
        for number, message in sent.items():
            run.server.receive(message)
            with pytest.raises(ProtocolError, match=f"Client {number} has sent"):
                run.server.receive(message)
            with pytest.raises(ProtocolError, match="sends each message once"):
                run.message(stage, number)
        if stage != "answer":
            run.inbox = run.server.proceed()
            with pytest.raises(ProtocolError, match="twice or too late"):
                run.server.receive(sent[0])
    assert run.server.total()[0].tolist() == VALUES.sum(0).tolist()
    with pytest.raises(ProtocolError, match="opened once"):
        run.server.total()
    with pytest.raises(ProtocolError, match="round is over"):
        run.server.receive(sent[0])


def test_numbers_that_come_too_late_are_refused() -> None:
    run = Round().run("keys").run("shares")
    late = run.message("masked", 5)
    run.run("masked", without={5})
    with pytest.raises(ProtocolError, match="masked of client 5 came twice or too late"):
        run.server.receive(late)
    run.run("answer")
    assert run.server.total()[0].tolist() == VALUES[:5].sum(0).tolist()


def test_messages_of_another_round_or_plan_or_roster_are_refused() -> None:
    run = Round()
    for other in (run.client(0, 4), SecureSum(size=SIZE, clients=COUNT, clip=2.0, threshold=4, bits=12).client(
        0, run.identities[0], run.roster, round=3), Round().clients[0]):  # fmt: skip
        with pytest.raises(ProtocolError, match="another round, plan or roster"):
            run.server.receive(other.keys())


def test_messages_that_are_changed_anywhere_are_refused() -> None:
    run = Round().run("keys").run("shares")
    message = run.message("masked", 0)
    rng = np.random.default_rng(0)
    for place in [*range(HEADER.size), *rng.integers(HEADER.size, len(message), 30)]:
        changed = bytearray(message)
        changed[place] ^= 1 << int(rng.integers(8))
        with pytest.raises((InvalidDocument, ProtocolError)):
            run.server.receive(bytes(changed))
    for cut in (b"", b"x", message[:20], message[: HEADER.size], message[:-1], message + b"x"):
        with pytest.raises((InvalidDocument, ProtocolError)):
            run.server.receive(cut)
    run.server.receive(message)  # what was refused changed nothing
    for number in range(1, COUNT):
        run.server.receive(run.message("masked", number))
    run.inbox = run.server.proceed()
    run.run("answer")
    assert run.server.total()[0].tolist() == VALUES.sum(0).tolist()


def test_nobody_speaks_for_another() -> None:
    run = Round()
    forged = signed(run.identities[1], 1, run.plan.session(run.roster, 3), 0, bytes(96))
    with pytest.raises(InvalidDocument, match="signature of client 0"):
        run.server.receive(forged)
    with pytest.raises(InvalidValue, match="another key for client 0"):
        run.plan.client(0, run.identities[1], run.roster, round=3)
    run.run("keys")
    with pytest.raises(ProtocolError, match="message is for client 1"):
        run.clients[0].shares(run.inbox[1])


def test_a_server_that_exchanges_keys_or_shares_is_found_out() -> None:
    run = Round().run("keys")
    width = HEADER.size + 96 + 64
    others = run.inbox[0]
    own_key = bytearray(others)
    own_key[HEADER.size + HEADER.size + 5] ^= 1  # a key of the server's own in the place of client 1's
    with pytest.raises(InvalidDocument, match="signature of client 1"):
        run.clients[0].shares(bytes(own_key))
    twice = others[: HEADER.size + width] + others[HEADER.size : HEADER.size + width] + others[HEADER.size + 2 * width :]
    with pytest.raises(ProtocolError, match="came twice"):
        run.clients[0].shares(twice)
    with pytest.raises(ProtocolError, match="3 are left where 4 are needed"):
        run.clients[0].shares(others[: HEADER.size + 3 * width])
    run.run("shares")
    changed = bytearray(run.inbox[0])
    changed[-1] ^= 1
    with pytest.raises(InvalidDocument, match="client 5 sealed were changed"):
        run.clients[0].masked(bytes(changed), VALUES[0])
    run.run("masked")  # the client goes on with what is right


def question(run: Round, client: int, asked: list[tuple[int, int]]) -> bytes:
    body = b"".join(int(other).to_bytes(4, "little") + bytes([which]) for other, which in asked)
    return write(SURVIVORS, run.plan.session(run.roster, 3), client, body)


def test_a_server_that_asks_for_too_much_gets_nothing() -> None:
    run = Round().run("keys").run("shares").run("masked")
    right = [(other, OWN) for other in range(1, COUNT)]
    for asked, says in (
        ([*right, (3, KEY)], "two shares of client 3"),
        ([*right, (0, OWN)], "client 0 that client 0 does not hold"),
        ([(77, OWN), *right], "client 77"),
        ([*right[:4], (5, 2)], "client 5"),
        ([(other, KEY if other > 3 else OWN) for other, _ in right], "3 are left where 4 are needed"),
    ):
        with pytest.raises(ProtocolError, match=says):
            run.clients[0].answer(question(run, 0, asked))
    run.clients[0].answer(question(run, 0, right))
    with pytest.raises(ProtocolError, match="answer already"):
        run.clients[0].answer(question(run, 0, [(other, KEY) for other, _ in right[:1]] + right[1:]))
    with pytest.raises(InvalidDocument, match="not records of 5"):
        run.clients[1].answer(question(run, 1, right)[:-1])


def most_of_one_client(plan: SecureSum, victim: int) -> tuple[int, int]:
    """How many shares of both secrets of one client a server gets that tells its neighbours different stories."""
    run = Round(plan).run("keys").run("shares").run("masked")
    others = [other for other in range(plan.clients) if other != victim]
    got = [0, 0]
    for place, client in enumerate(others):
        which = OWN if place < plan.threshold else KEY
        asked = [(other, which if other == victim else OWN) for other in range(plan.clients) if other != client]
        run.clients[client].answer(question(run, client, asked))
        got[which] += 1
    return got[OWN], got[KEY]


def test_no_two_stories_open_both_secrets_of_a_client() -> None:
    own, key = most_of_one_client(SecureSum(size=SIZE, clients=COUNT, clip=1.0, threshold=3, bits=12), 2)
    assert own >= 3 > key
    broken = SecureSum(size=SIZE, clients=COUNT, clip=1.0, threshold=3, bits=12)
    object.__setattr__(broken, "threshold", 2)  # what the plan refuses: half of five neighbours
    assert min(most_of_one_client(broken, 2)) >= 2
    with pytest.raises(InvalidValue, match="more than half of the 5 neighbours"):
        SecureSum(size=SIZE, clients=COUNT, clip=1.0, threshold=2, bits=12)


def test_a_wrong_share_is_found_out() -> None:
    run = Round().run("keys").run("shares").run("masked")
    for number in range(COUNT):
        message = run.clients[number].answer(run.inbox[number])
        if number == 1:
            body = bytearray(message[HEADER.size : -64])
            body[6] ^= 1
            message = signed(run.identities[1], 4, run.plan.session(run.roster, 3), 1, bytes(body))
        run.server.receive(message)
    with pytest.raises(ProtocolError, match="client 0 do not give what it announced"):
        run.server.total()


def test_secrets_do_not_leave_with_the_object() -> None:
    import copy
    import pickle

    run = Round()
    for item in (run.clients[0], run.identities[0]):
        with pytest.raises(InvalidValue, match="not pickled or copied"):
            pickle.dumps(item)
        with pytest.raises(InvalidValue, match="not pickled or copied"):
            copy.copy(item)
    again = Identity.from_bytes(run.identities[0].to_bytes())
    assert again.public == run.identities[0].public
    with pytest.raises(InvalidDocument):
        Identity.from_bytes(b"short")


def test_masked_numbers_of_the_wrong_length() -> None:
    run = Round().run("keys").run("shares")
    body = signed(run.identities[0], MASKED, run.plan.session(run.roster, 3), 0, bytes(2 * SIZE + 2))
    with pytest.raises(InvalidDocument, match="10 bytes by the plan; 12"):
        run.server.receive(body)


# ---- plans -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clients": 2}, "clients must be at least 3"),
        ({"threshold": 6}, "threshold must be from 3 to 5"),
        ({"clip": 0.0}, "clip must be above 0"),
        ({"bits": 33}, "bits must be at most 32"),
        ({"bits": 1}, "bits must be at least 2"),
        ({"neighbours": 3, "seed": bytes(16)}, "neighbours must be even"),
        ({"neighbours": 4, "threshold": 3}, "seed at least 16"),
        ({"size": 0}, "size must be at least 1"),
    ],
)
def test_bad_plans(change: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        SecureSum(**{"size": SIZE, "clients": COUNT, "clip": 1.0, "threshold": 4, "bits": 12, **change})  # type: ignore[arg-type]


def test_bad_numbers() -> None:
    plan = SecureSum(size=2, clients=3, clip=1.0, threshold=2, bits=8)
    for values, says in (
        ([math.nan, 0.0], "NaN or infinity"), ([math.inf, 0.0], "NaN or infinity"), ([1.0], "for 2 numbers"),
        ([128, 0], "from -127 to 127"), (["a", "b"], "for 2 numbers"),
    ):  # fmt: skip
        with pytest.raises(InvalidValue, match=says):
            plan.encoded(values)
    assert plan.encoded([5.0, -5.0]).tolist() == [127, -127]
    with pytest.raises(InvalidValue, match="roster must hold"):
        plan.server([bytes(32)] * 3, round=0)


def test_shares_below_the_threshold_fit_every_secret() -> None:
    """Shamir's secrecy: whatever t - 1 shares are, each secret belongs to exactly one polynomial through them."""
    shares = dict(zip((1, 2, 3, 4), shamir.split(12345, 4, (1, 2, 3, 4))))
    assert shamir.join(shares) == 12345
    three = {place: shares[place] for place in (1, 2, 3)}
    for secret in (0, 1, shamir.PRIME - 1):
        fourth = shamir.join({**{place - 9: share for place, share in three.items()}, -9: secret})  # the value at 9
        assert shamir.join({**three, 9: fourth}) == secret
    assert all(pow(base, shamir.PRIME - 1, shamir.PRIME) == 1 for base in (2, 3, 5, 7))


# ---- the graph ---------------------------------------------------------------------------------------------------------------


def test_bounds_hold_for_every_set_of_colluding_clients() -> None:
    """All sets of a small ring are counted: the bound is above the exact probability, by the union over clients alone."""
    clients, neighbours, threshold, colluding, dropped = 11, 4, 3, 2, 2
    graph = ring(clients, neighbours, bytes(16))
    bound = graph_bounds(clients, neighbours, threshold, colluding=colluding, dropped=dropped)
    worse, failed, all_sets = 0, 0, 0
    for bad in combinations(range(clients), colluding):
        for gone in combinations([i for i in range(clients) if i not in bad], dropped):
            all_sets += 1
            honest = set(range(clients)) - set(bad) - set(gone)
            both = any(len(set(graph[i]) & set(bad)) >= 2 * threshold - neighbours for i in range(clients) if i not in bad)
            worse += both or not connected(graph, honest)
            failed += any(len(set(graph[i]) - set(gone)) < threshold for i in range(clients))
    assert worse / all_sets <= bound.learned
    assert 0 < failed / all_sets <= bound.failed
    assert bound.failed < 11 * 2 * failed / all_sets


def connected(graph: list[list[int]], among: set[int]) -> bool:
    reached, waiting = set(), [min(among)]
    while waiting:
        here = waiting.pop()
        if here not in reached:
            reached.add(here)
            waiting += [other for other in graph[here] if other in among]
    return reached == among


def test_tails_are_hypergeometric() -> None:
    from scipy.stats import hypergeom

    found = graph_bounds(1000, 60, 40, colluding=0, dropped=100).failed
    assert found == pytest.approx(1000 * hypergeom.sf(20, 999, 100, 60), rel=1e-9)
    exact = Fraction(math.comb(1000 - 30, 60 - 30), math.comb(1000, 60)) * 1000
    learned = graph_bounds(1000, 60, 40, colluding=10, dropped=50).learned
    assert learned == pytest.approx(1000 * hypergeom.sf(19, 999, 10, 60) + float(exact), rel=1e-9)


def test_neighbours_grow_with_the_logarithm() -> None:
    counts = [100, 1000, 10_000]
    chosen = [sparse_graph(count, colluding=count // 20, dropped=count // 10)[0] for count in counts]
    assert chosen == sorted(chosen)
    assert chosen[2] / chosen[0] < 2 * math.log(counts[2]) / math.log(counts[0])
    with pytest.raises(InvalidValue, match="No graph over 10 clients"):
        sparse_graph(10, colluding=5, dropped=5)


def test_a_lying_server_opens_no_small_sum() -> None:
    plan = SecureSum(size=1, clients=10, clip=1.0, threshold=8)
    assert [plan.least_honest(colluding=c) for c in (0, 1, 2, 7)] == [8, 7, 6, 0]
    sparse = SecureSum(size=1, clients=100, clip=1.0, threshold=12, neighbours=18, seed=bytes(16))
    assert sparse.least_honest(colluding=0) == 0


# ---- in a simulation ---------------------------------------------------------------------------------------------------------


def test_as_a_rule_it_is_the_mean() -> None:
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, 4, generator=draw)
    clients = Clients.evenly(inputs, (inputs[:, 0] > 0).long(), clients=6, seed=0)
    loss, how = nn.CrossEntropyLoss(reduction="none"), FedAvg(learning_rate=0.5, weighting="equal")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
    plan = SecureSum(size=10, clients=6, clip=2.0, threshold=3, bits=24)

    def one_is_broken(exchange):  # type: ignore[no-untyped-def]
        updates = exchange.updates.clone()
        updates[2] = math.nan
        return updates

    for alter in (None, one_is_broken):
        plain = simulate(model, clients, loss, strategy=how, rounds=3, alter=alter)
        hidden = simulate(model, clients, loss, strategy=how, rounds=3, alter=alter, rule=plan.rule)
        for one, two in zip(plain.model.parameters(), hidden.model.parameters()):
            torch.testing.assert_close(one, two, atol=20 * plan.error, rtol=0)
    rows = Clients.by_column(inputs, (inputs[:, 0] > 0).long(), [0] * 20 + [1, 2, 3, 4] * 5 + [5] * 20)
    with pytest.raises(InvalidValue, match='weighting="equal"'):
        simulate(model, rows, loss, strategy=FedAvg(learning_rate=0.5), rounds=1, rule=plan.rule)
    with pytest.raises(InvalidValue, match="6 clients in a round; 4 took part"):
        simulate(model, clients, loss, strategy=how, rounds=1, per_round=4, rule=plan.rule)


def test_a_server_is_a_server() -> None:
    run = Round()
    assert isinstance(run.server, SumServer)
    assert run.server.stage == "keys"
    with pytest.raises(ProtocolError, match="opened once, when answers are there"):
        run.server.total()
    run.run("keys").run("shares").run("masked")
    with pytest.raises(ProtocolError, match="nothing is sent"):
        run.server.proceed()


def test_a_client_goes_on_in_another_process() -> None:
    run = Round()

    def moved() -> None:
        run.clients = [
            SumClient.from_bytes(each.to_bytes(), run.plan, number, run.identities[number], run.roster, round=3)
            for number, each in enumerate(run.clients)
        ]

    for stage in ("keys", "shares", "masked", "answer"):
        run.run(stage, {4} if stage == "masked" else set())
        moved()
        with pytest.raises(ProtocolError, match="each message once"):
            run.clients[0].keys()
    total, stayed = run.server.total()
    assert total.tolist() == VALUES[stayed].sum(0).tolist()
    kept = Round().clients[0].to_bytes()
    for changed, says in ((kept, "another round"), (kept[:-9], "no state"), (b"{}", "no state")):
        with pytest.raises((ProtocolError, InvalidDocument), match=says):
            SumClient.from_bytes(changed, run.plan, 0, run.identities[0], run.roster, round=3)
