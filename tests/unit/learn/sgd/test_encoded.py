"""Encoded gradients and noise of Student's t: the code is nearest, each unit is looked at alone, the claim is about words."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest
from scipy.stats import t as student_t
from torch import nn

import discreet
from discreet.core import Gaussian, StudentT
from discreet.errors import InvalidDocument, InvalidValue
from discreet.learn import Adaptive, BandMF, Encoded, FixedPoint, Flat, Performance, StudentNoise, train
from discreet.learn.sgd.student import StudentStream
from unit.learn.tools import start, updates

torch.set_num_threads(1)


def test_the_word_is_the_nearest() -> None:
    """Of all words of four numbers, in every order and with every sign."""
    sizes, counts = Encoded(1.0, levels=4).word(4)
    assert counts == (1, 1, 1, 1)
    assert sum(size**2 for size in sizes) == pytest.approx(1.0)
    orders = torch.tensor(list(itertools.permutations(sizes)))
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=4)))
    words = (orders[:, None] * signs).reshape(-1, 4).float()
    gradients = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)) * 3
    found = Encoded(1.0, levels=4).encode(gradients)
    nearest = words[(gradients @ words.T).argmax(dim=1)] * gradients.norm(dim=1).clamp(max=1.0)[:, None]
    torch.testing.assert_close(found, nearest, rtol=2e-4, atol=1e-6)


numbers = st.floats(-(2.0**100), 2.0**100, width=32) | st.sampled_from(
    [0.0, 1.0, -1.0, 1e-40, 3e38, float("nan"), float("inf")]
)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 9).flatmap(lambda n: st.lists(st.lists(numbers, min_size=n, max_size=n), min_size=1, max_size=5)),
       st.integers(1, 12), st.sampled_from([1e-6, 0.1, 1.0, 50.0]))  # fmt: skip
def test_no_row_is_above_the_word_nor_looks_at_others(rows: list[list[float]], levels: int, norm: float) -> None:
    """The claim is this: in descending order, every contribution is at most the word, whatever the gradient."""
    code, each = Encoded(norm, levels), torch.tensor(rows)
    found = code.encode(each)
    word = torch.repeat_interleave(*map(torch.tensor, code.word(each.shape[1])))
    assert (found.abs().sort(dim=1, descending=True).values <= word * norm).all()
    assert torch.isfinite(found).all()
    for row, alone in zip(each, found):
        assert torch.equal(code.encode(row[None])[0], alone)
    assert (found[each == 0] == 0).all()


def test_numbers_of_students_t() -> None:
    drawn = StudentStream(b"k" * 32, degrees=4).fill(torch.empty(100_000), step=3, scale=2.0)
    assert kstest(drawn.numpy() / 2, student_t(4).cdf).pvalue > 1e-3
    other = StudentStream(b"k" * 32, degrees=4).fill(torch.empty(100_000), step=4, scale=2.0)
    assert abs(np.corrcoef(np.sign(drawn.numpy()), np.sign(other.numpy()))[0, 1]) < 0.02
    assert StudentNoise(4).deviation == pytest.approx(student_t(4).std())


def test_the_claim_is_about_the_words() -> None:
    model = nn.Linear(5, 2)
    run = start((torch.randn(6, 5), torch.randn(6)), model=model, clip_norm=None, clipping=Encoded(1.0, levels=3),
                noise=StudentNoise(4), noise_multiplier=2.0)  # fmt: skip
    sizes, counts = Encoded(1.0, levels=3).word(12)
    assert sum(counts) == 12
    assert run.plan.noise() == StudentT(2.0, 4.0, sizes, counts)
    plain = start((torch.randn(6, 5), torch.randn(6)), model=nn.Linear(5, 2), noise=StudentNoise(4), noise_multiplier=2.0)
    assert isinstance(plain.plan.noise(), Gaussian)
    assert plain.plan.epsilon() > run.plan.epsilon()  # any vector of that length costs more than a word
    gaussian = start(
        (torch.randn(6, 5), torch.randn(6)), model=nn.Linear(5, 2), clip_norm=None, clipping=Encoded(1.0), noise_multiplier=2.0
    )
    assert gaussian.plan.noise() == Gaussian(2.0)


def test_calibrated_to_its_epsilon() -> None:
    run = start((torch.randn(6, 5), torch.randn(6)), model=nn.Linear(5, 2), clip_norm=None, clipping=Encoded(1.0, levels=1),
                noise=StudentNoise(5), epsilon=2.0, delta=1e-5, rate=0.2, steps=10)  # fmt: skip
    assert 1.99 < run.plan.epsilon() <= 2.0


@pytest.mark.parametrize("path", ["fast", "isolated"])
def test_the_sum_is_that_of_words_of_single_gradients(path: str) -> None:
    """By an ordinary backward for each row; also with shared weights and in microbatches."""

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(torch.tanh(self.a(torch.tanh(self.a(x)))))

    x, y = torch.randn(7, 4, generator=torch.Generator().manual_seed(1)), torch.randn(7)
    torch.manual_seed(0)
    model, code = Shared(), Encoded(0.5, levels=4)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output[:, 0] - target).square()

    slow = torch.zeros(25)
    for row in range(7):
        made = torch.autograd.grad(loss(model(x[row : row + 1]), y[row : row + 1]).sum(), list(model.parameters()))
        slow += code.encode(torch.cat([g.flatten() for g in made])[None])[0]
    run = start((x, y), model=model, loss=loss, clip_norm=None, clipping=code, noise_multiplier=1e-6,
                performance=Performance(path=path, microbatch=3))  # fmt: skip
    torch.testing.assert_close(torch.from_numpy(updates(run)[0]), slow, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("more", [
    {"clipping": FixedPoint(1.0)}, {"clipping": Adaptive(1.0)},
    {"clip_norm": 1.0, "rate": None, "sampling": BandMF(0.5, bands=2), "steps": 4},
])  # fmt: skip
def test_what_is_not_proven_for_it_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="StudentNoise is proven for"):
        start((torch.randn(6, 5), torch.randn(6)), model=nn.Linear(5, 1), noise=StudentNoise(4), **{"clip_norm": None, **more})


def test_values_that_are_refused() -> None:
    for wrong in (2, 31, 4.5):
        with pytest.raises(InvalidValue, match="degrees"):
            StudentNoise(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="levels"):
        Encoded(1.0, levels=0)
    with pytest.raises(InvalidValue, match="noise must be a value"):
        start((torch.randn(6, 5), torch.randn(6)), model=nn.Linear(5, 1), noise=4)


def test_a_model_that_grew_is_refused() -> None:
    """The claim would be about words of fewer numbers."""
    model = nn.Linear(5, 1)
    for p in model.parameters():
        p.requires_grad_(False)
    model.bias.requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = torch.randn(6, 5), torch.randn(6)
    run = train(model, optimizer, (x, y), lambda out, y: out[:, 0] - y, unit=discreet.record(), delta=1e-5, rate=1.0, steps=1,
                clipping=Encoded(1.0), noise=StudentNoise(4), noise_multiplier=1.0, divisor=6.0)  # fmt: skip
    model.weight.requires_grad_(True)
    with pytest.raises(InvalidValue):
        run.fit()


def test_a_run_goes_on_from_a_checkpoint_only_with_its_own_noise(tmp_path) -> None:  # type: ignore[no-untyped-def]
    def make(noise: StudentNoise | None) -> discreet.learn.Run:
        torch.manual_seed(0)
        return start((torch.ones(6, 5), torch.ones(6)), model=nn.Linear(5, 1), steps=4, clip_norm=None, clipping=Flat(1.0),
                     noise=noise, checkpoint=discreet.learn.Checkpoint(tmp_path / "run.pt", every=2))  # fmt: skip

    for _, step in zip(range(2), make(StudentNoise(4))):
        assert step.number <= 2
    with pytest.raises(InvalidDocument, match="another plan"):
        make(StudentNoise(5))
    assert list(make(StudentNoise(4)))[-1].number == 4
