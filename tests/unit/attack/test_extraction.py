"""What comes out of a language model verbatim, and exposure. Seeds are fixed; small networks are trained here."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
import torch
from torch import nn

from discreet.attack.exposure import Exposure, Template, canary_evidence, exposure
from discreet.attack.extraction import (
    Sampling,
    discoverable,
    encoder,
    extraction,
    from_folder,
    generate_and_rank,
    likeliest,
    sampled,
)
from discreet.attack.text import Causal, NGram, utf8
from discreet.errors import InvalidValue

DIGITS = [ord(digit) for digit in "0123456789"]
SECRET = "314159265"
TEMPLATE = Template("my code is {}")
FILLER = [f"line {number} of nothing much {number * 7919 % 1000}" for number in range(60)]


def counted(times: int) -> NGram:
    return NGram([utf8(text) for text in FILLER + [TEMPLATE.fill(SECRET)] * times], order=6, backoff=0.5)


@lru_cache(1)
def network() -> Causal:
    """A recurrent network that has read a few lines very often."""
    torch.manual_seed(0)

    class Letters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.cells, self.out = nn.Embedding(128, 24), nn.GRU(24, 64, batch_first=True), nn.Linear(64, 128)

        def forward(self, tokens):
            return self.out(self.cells(self.embed(tokens))[0])

    module = Letters()
    text = torch.as_tensor(utf8(TEMPLATE.fill(SECRET)))[None]
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    for _ in range(120):
        optimizer.zero_grad()
        before = torch.cat([torch.zeros(1, 1, dtype=torch.long), text[:, :-1]], 1)
        nn.functional.cross_entropy(module(before)[0], text[0]).backward()
        optimizer.step()
    return Causal(module)


def test_exposure_grows_with_repetitions_to_the_whole_space():
    bits = [exposure(counted(times), TEMPLATE, [SECRET], samples=100, budget=300)[0] for times in (0, 1, 8)]
    assert bits[0].method == "extrapolated"
    assert bits[0].low <= bits[0].bits <= bits[0].high
    assert bits[0].bits < bits[2].bits
    assert bits[2] == Exposure(np.log2(1e9), np.log2(1e9), np.log2(1e9), 1, bits[2].log_probability, "exact")


def test_the_rank_is_that_of_all_secrets_written_out():
    template = Template("my code is {}", length=3)
    model = NGram([utf8(text) for text in [*FILLER, "my code is 314", "my code is 315", "my code is 315"]], order=6)
    every = [f"{number:03d}" for number in range(1000)]
    rows = np.array([utf8(template.fill(secret)) for secret in every])
    logs = np.array([sum(model.log_probabilities(row)[at, row[at]] for at in range(11, 14)) for row in rows])
    for secret in ("314", "315", "777"):
        found = exposure(model, template, [secret], samples=50, budget=5000)[0]
        assert found.method == "exact"
        assert found.rank == 1 + (logs > logs[int(secret)] + 1e-6).sum()


def test_extrapolation_is_near_the_rank_where_both_can_be_had():
    template, random = Template("my code is {}", length=3), np.random.default_rng(0)
    model = NGram([utf8(template.fill(f"{n:03d}")) for n in random.integers(0, 1000, 300)], order=3)
    secrets = template.secrets(6, seed=5)
    exact = exposure(model, template, secrets, samples=60)
    guessed = exposure(model, template, secrets, budget=1, samples=500)
    assert {each.method for each in exact} == {"exact"}
    assert {each.method for each in guessed} == {"extrapolated"}
    assert max(abs(one.bits - two.bits) for one, two in zip(exact, guessed)) < 2.5


def test_the_search_gives_the_likeliest_in_order():
    model = network()
    found = likeliest(model, utf8("my code is "), DIGITS, 9, most=3)
    assert "".join(map(chr, found.found[0].tokens)) == SECRET
    assert found.complete
    assert found.found[0].log_probability >= found.found[1].log_probability >= found.found[2].log_probability
    assert not likeliest(model, utf8("my code is "), DIGITS, 9, budget=3).complete


def test_stated_probabilities_are_those_of_sampling():
    model, text, sampling = network(), TEMPLATE.fill(SECRET), Sampling(temperature=2.5)
    found = extraction(model, [text], ["my code is 271828182"], prompt=11, suffix=9, sampling=sampling, near=False)
    stated, samples = float(np.exp(found.log_probability[0])), 600
    hits = sampled(model, text, samples, prompt=11, suffix=9, sampling=sampling)
    assert 0.005 < stated < 0.999
    assert abs(hits / samples - stated) < 4 * np.sqrt(stated * (1 - stated) / samples)
    assert discoverable(np.log([1.0, 0.5, 1e-300]), 10).round(6).tolist() == [1.0, 0.999023, 0.0]


def test_the_corpus_comes_out_and_the_control_does_not():
    members, control = [f"{name} has the pin {pin}" for name, pin in (("alice", 48213), ("brian", 90177), ("carol", 55102))], [
        "danny has the pin 11223", "emily has the pin 99812"]  # fmt: skip
    model = NGram([utf8(text) for text in FILLER + members * 20], order=7, backoff=0.1)
    found = extraction(model, members, control, prompt=18, suffix=5, tries=(1, 1000))
    assert found.risks[1000].members == 1
    assert found.risks[1000].control == 0
    assert sorted(found.extracted(1000)) == sorted(members)
    assert (found.near >= found.log_probability).all()
    assert found.evidence.auc() == 1.0
    assert "alice" not in str(found.to_json())
    assert "alice" not in repr(found)


def test_what_changes_one_token_counts_as_near():
    model = network()
    other = "my code is 314159266"
    found = extraction(model, [TEMPLATE.fill(SECRET)], [other], prompt=11, suffix=9, tries=(1,))
    assert found.near[1] > found.log_probability[1] + 1  # what it was trained on is one token away


def test_generated_texts_are_ranked_and_looked_up():
    model, reference = counted(40), counted(0)
    found = generate_and_rank(
        model, [TEMPLATE.fill(SECRET)], FILLER, count=40, length=24, run=9, start=list(b"my code"), reference=reference
    )
    assert found[0].in_corpus
    assert not found[0].in_control
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    with pytest.raises(InvalidValue, match="run is 30"):
        generate_and_rank(model, ["a"], ["b"], length=20, run=30)


def test_canaries_audit_epsilon_in_the_same_run():
    secrets = TEMPLATE.secrets(30, seed=1)
    inside = np.random.default_rng(3).random(30) < 0.5
    read = [utf8(text) for text in FILLER] + [utf8(TEMPLATE.fill(each)) for each, put in zip(secrets, inside) if put]
    found = exposure(NGram(read, order=6, backoff=0.5), TEMPLATE, secrets, samples=50, budget=50)
    evidence = canary_evidence(found, inside.tolist())
    assert evidence.design == "canary"
    assert evidence.auc() > 0.95
    assert canary_evidence(found, inside.tolist(), repetitions=8).game.unit.rows == 8


@pytest.mark.parametrize("text", ["no braces", "{} first", "two {} and {}"])
def test_templates_need_one_place_for_the_secret(text):
    with pytest.raises(InvalidValue, match="once"):
        Template(text)


def test_bad_input_is_named():
    model = counted(1)
    with pytest.raises(InvalidValue, match="9 letters of the alphabet"):
        exposure(model, TEMPLATE, ["12"])
    with pytest.raises(InvalidValue, match="joins letters"):
        exposure(model, TEMPLATE, [SECRET], encode=lambda text: utf8(text)[: len(text) // 2])
    with pytest.raises(InvalidValue, match="log_probabilities"):
        exposure(lambda rows: rows, TEMPLATE, [SECRET])
    with pytest.raises(InvalidValue, match="No text of the control"):
        extraction(model, ["a" * 70], ["b"])
    with pytest.raises(InvalidValue, match="begin with the same 64 tokens"):
        extraction(model, ["a" * 70], ["a" * 70])
    with pytest.raises(InvalidValue, match="prompt of at least one"):
        likeliest(model, [], DIGITS, 3)
    with pytest.raises(InvalidValue, match="not in the model's vocabulary"):
        likeliest(network(), [500], DIGITS, 3)


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    class Tokenizer:
        def __len__(self):
            return 300

    class Module:
        def get_input_embeddings(self):
            return nn.Embedding(128, 4)

    with pytest.raises(InvalidValue, match="do not belong together"):
        encoder(Module(), Tokenizer())
    with pytest.raises(InvalidValue, match=r"no config\.json"):
        from_folder(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InvalidValue, match="cannot be read"):
        from_folder(tmp_path)


def test_texts_that_begin_alike_count_once_and_a_control_that_was_read_is_refused():
    model = NGram([utf8("alice has the pin 48213, and more")] * 20, order=7, backoff=0.1)
    corpus = ["alice has the pin 48213, and more", "alice has the pin 48213, or less", "brian has the pin 90177"]
    found = extraction(model, corpus, ["carol has the pin 55102"], prompt=18, suffix=5, tries=(1,))
    assert found.risks[1].attempts == found.members == 2
    assert found.extracted(1) == corpus[:1]
    with pytest.raises(InvalidValue, match="1 texts of the control begin with the same 23 tokens"):
        extraction(model, corpus, ["alice has the pin 48213 too"], prompt=18, suffix=5)
