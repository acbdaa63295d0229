"""Membership of texts and of authors, in language models trained here."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from discreet.attack.text import Causal, LanguageModel, NGram, by_author, min_k, min_k_plus, text_membership, utf8
from discreet.errors import InvalidValue

WORDS = ["".join(np.random.default_rng(seed).choice(list("abcdefghijklmnopqrst"), 3)) for seed in range(120)]


def sentences(count: int, seed: int, words: list[str] = WORDS, length: int = 12) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(words, draw.integers(length // 2, length))) for _ in range(count)]


def slow(texts: list[str], order: int, backoff: float, text: str, place: int, token: int) -> float:
    """p(token | text before place), by counting again and again."""
    law, known = 1.0 / 256, utf8(text)
    for length in range(order):
        if length > place:
            break
        context = known[place - length : place].tolist()
        seen = total = 0
        for other in texts:
            tokens = utf8(other).tolist()
            for at in range(length, len(tokens)):
                if tokens[at - length : at] == context:
                    total += 1
                    seen += tokens[at] == token
        law = (seen + backoff * law) / (total + backoff)
    return law


@given(st.lists(st.text("ab", min_size=1, max_size=12), min_size=1, max_size=3), st.text("abc", min_size=1, max_size=8))
def test_counts_are_those_of_a_slow_loop(texts: list[str], text: str) -> None:
    found = NGram([utf8(each) for each in texts], order=3, backoff=0.5).log_probabilities(utf8(text))
    assert np.allclose(np.exp(found).sum(1), 1.0)
    for place in range(len(text)):
        for token in (97, 98, 99):
            assert np.isclose(np.exp(found[place, token]), slow(texts, 3, 0.5, text, place, token))


def test_scores_are_those_of_the_papers() -> None:
    texts = sentences(30, seed=0)
    model = NGram([utf8(text) for text in texts[:15]], order=4)
    other = NGram([utf8(text) for text in sentences(15, seed=9)], order=4)
    found = text_membership(model, texts[:15], texts[15:], reference=other)
    assert set(found) == {"loss", "zlib", "min_k", "min_k_plus", "reference"}
    for place, text in enumerate(texts):
        tokens = utf8(text)
        law, ours = model.log_probabilities(tokens), other.log_probabilities(tokens)
        each = np.array([law[i, token] for i, token in enumerate(tokens)])
        assert np.isclose(found["loss"].score[place], each.mean())
        assert np.isclose(found["zlib"].score[place], each.mean() / len(zlib.compress(text.encode())))
        low = sorted(each)[: max(1, len(each) // 5)]
        assert np.isclose(found["min_k"].score[place], np.mean(low))
        z = [
            (each[i] - np.exp(row) @ row) / np.sqrt(np.exp(row) @ row**2 - (np.exp(row) @ row) ** 2)
            for i, row in enumerate(law)
        ]
        assert np.isclose(found["min_k_plus"].score[place], np.mean(sorted(z)[: max(1, len(z) // 5)]))
        assert np.isclose(
            found["reference"].score[place], np.mean([a - ours[i, t] for i, (a, t) in enumerate(zip(each, tokens))])
        )


def test_counts_betray_their_texts_and_a_model_of_others_does_not() -> None:
    texts = sentences(400, seed=1)
    inside, outside = texts[:200], texts[200:]
    leaky = NGram([utf8(text) for text in inside], order=6)
    blind = NGram([utf8(text) for text in sentences(200, seed=2)], order=6)
    found = text_membership(leaky, inside, outside, reference=blind)
    assert found["reference"].auc() > 0.9
    assert found["min_k_plus"].auc() > 0.7
    assert found["loss"].auc() > 0.9
    for evidence in text_membership(blind, inside, outside).values():
        assert abs(evidence.auc() - 0.5) < 0.15  # five standard deviations of 0.029: a false alarm in 6e-7
    assert {evidence.design for evidence in found.values()} == {"post_hoc"}


class Tiny(nn.Module):
    """One block of attention over bytes."""

    def __init__(self, width: int = 32, longest: int = 96) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(128, width), nn.Embedding(longest, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, 128)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        mask = torch.full((length, length), -torch.inf).triu(1)
        return self.out(self.block(self.token(tokens) + self.place(torch.arange(length)), src_mask=mask))


def trained(texts: list[str], steps: int, seed: int) -> Tiny:
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = Tiny()
    given = torch.zeros(len(texts), max(map(len, texts)) + 1, dtype=torch.long)
    for row, text in zip(given, texts):
        row[1 : len(text) + 1] = torch.as_tensor(utf8(text))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(given[:, :-1]).flatten(0, 1), given[:, 1:].flatten(), ignore_index=0)
        loss.backward()
        optimizer.step()
    return model


def test_a_small_transformer_betrays_its_texts() -> None:
    texts = sentences(48, seed=3, length=6)
    model, other = Causal(trained(texts[:24], 120, 0)), Causal(trained(sentences(24, seed=4, length=6), 120, 1))
    assert isinstance(model, LanguageModel)
    law = model.log_probabilities(utf8(texts[0]))
    assert np.allclose(np.exp(law).sum(1), 1.0)
    found = text_membership(model, texts[:24], texts[24:], reference=other)
    assert found["loss"].auc() > 0.9  # 24 against 24 by chance: 0.5 with a spread of 0.083
    assert found["reference"].auc() > 0.9
    assert found["min_k_plus"].auc() > 0.9
    pieces = Causal(model.module, longest=5).log_probabilities(utf8(texts[0]))
    assert np.allclose(pieces[:5], law[:5], atol=1e-6)
    assert not np.allclose(pieces[5:], law[5:], atol=1e-6)


def test_authors_are_known_by_texts_never_trained_on() -> None:
    """Thirty authors with habits of their own; the model saw other texts of half of them."""
    draw = np.random.default_rng(7)
    habits = [list(draw.choice(WORDS, 12, replace=False)) for _ in range(30)]
    seen = [text for author in range(15) for text in sentences(20, 100 + author, habits[author])]
    model = NGram([utf8(text) for text in seen], order=6)
    other = NGram([utf8(text) for text in sentences(300, 50)], order=6)
    known = [sentences(8, 200 + author, habits[author]) for author in range(30)]
    members, others = [text for each in known[:15] for text in each], [text for each in known[15:] for text in each]
    names = [author for author in range(30) for _ in range(8)]
    alone = text_membership(model, members, others, reference=other, attacks=["reference"])["reference"]
    found = text_membership(model, members, others, reference=other, attacks=["reference"], authors=(names[:120], names[120:]))
    assert len(found["reference"]) == 30
    assert found["reference"].auc() > 0.99 > alone.auc() > 0.9
    assert found["reference"].game.unit.name == "user"


def test_wrong_use() -> None:
    model = NGram([utf8("abc")])
    with pytest.raises(InvalidValue, match="are members too"):
        text_membership(model, ["a", "b"], ["b"])
    with pytest.raises(InvalidValue, match="none of them empty"):
        text_membership(model, ["a"], [""])
    with pytest.raises(InvalidValue, match="needs a model that saw none"):
        text_membership(model, ["a"], ["b"], attacks="reference")
    with pytest.raises(InvalidValue, match="must name who wrote each text"):
        text_membership(model, ["a"], ["b"], authors=(["ann"], []))
    with pytest.raises(InvalidValue, match="among members and among nonmembers"):
        text_membership(model, ["a"], ["b"], authors=(["ann"], ["ann"]))
    with pytest.raises(InvalidValue, match="do not fit"):
        NGram([utf8("abc")], order=8)
    with pytest.raises(InvalidValue, match="flat list of tokens"):
        NGram([np.array([300])])

    class Broken:
        def __init__(self, law: np.ndarray) -> None:
            self.law = law

        def log_probabilities(self, tokens: np.ndarray) -> np.ndarray:
            return self.law

    with pytest.raises(InvalidValue, match="NaN or infinite"):
        text_membership(Broken(np.full((1, 256), np.nan)), ["a"], ["b"])
    with pytest.raises(InvalidValue, match="must give log-probabilities"):
        text_membership(Broken(np.zeros((1, 9))), ["a"], ["b"])
    assert by_author(np.array([1.0]), np.array([True]), ["ann"])[1].tolist() == [True]
    law = np.log(np.full((3, 4), 0.25))
    assert min_k(law, np.array([0, 1, 2])) == pytest.approx(np.log(0.25))
    assert min_k_plus(law, np.array([0, 1, 2])) == pytest.approx(0.0, abs=1e-6)


class Said:
    """A model that gives the same numbers at every place, whatever it is asked."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers

    def log_probabilities(self, tokens: np.ndarray) -> np.ndarray:
        return np.tile(self.numbers, (len(tokens), 1))


@pytest.mark.parametrize("numbers", [np.full(256, 1 / 256), np.random.default_rng(0).normal(size=256)])
def test_probabilities_and_logits_are_no_log_probabilities(numbers: np.ndarray) -> None:
    with pytest.raises(InvalidValue, match="and not to 1: give logarithms of probabilities"):
        text_membership(Said(numbers), ["one"], ["two"])
    law = numbers - np.logaddexp.reduce(numbers)
    assert set(text_membership(Said(law), ["one"], ["two"])) == {"loss", "zlib", "min_k", "min_k_plus"}


class Wrapped(nn.Module):
    """As models of Hugging Face answer."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, vocabulary)

    def forward(self, tokens: torch.Tensor) -> object:
        return type("Output", (), {"logits": self.table(tokens)})()


def test_what_a_module_may_answer() -> None:
    model = Wrapped(256)
    wanted = model.table.weight.detach()[[0, 104]].double().log_softmax(1).numpy()
    assert np.allclose(Causal(model).log_probabilities(utf8("hi")), wanted)
    with pytest.raises(InvalidValue, match="a text of 2 tokens: one is not in its vocabulary"):
        Causal(Wrapped(50)).log_probabilities(utf8("hi"))
    with pytest.raises(InvalidValue, match=r"A Wrapped does not say log_probabilities\(tokens\); wrap a torch module"):
        text_membership(model, ["one"], ["two"])  # type: ignore[arg-type]
    counts = NGram([utf8("one")])
    listed = text_membership(counts, ["one"], ["two"], encode=lambda text: list(text.encode()))  # type: ignore[arg-type, return-value]
    assert listed["loss"].auc() == 1.0
    with pytest.raises(InvalidValue, match="encode gives no token"):
        text_membership(counts, ["one"], ["two"], encode=lambda text: np.zeros(0, np.int64))
