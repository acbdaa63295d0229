"""What fails while private rows are computed names the kind of error and the line of code, and shows no value of a row."""

from __future__ import annotations

import logging
import traceback

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import discreet
from discreet.errors import DiscreetError, InvalidValue, RunFailed
from discreet.learn import Performance, Postprocess, train
from discreet.learn.sgd.failures import log

torch.set_num_threads(1)

SECRET = 4711000


def scaled(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A class that only comes out wrong when it is computed: no look at the rows can know."""
    return nn.functional.cross_entropy(output, torch.where(target > 1e5, target * 2, 0).long(), reduction="none")


def spoken(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    if target.max() > 1e5:
        raise ValueError(f"the income of a person is {int(target.max())}")
    return output.square().sum(1)


class Unreadable(Dataset):
    broken = False

    def __len__(self) -> int:
        return 20

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.broken:
            float(f"income {SECRET}")
        return torch.zeros(3), torch.tensor(0.0)


def begin(data, loss, ledger=None, path=None, **options):
    model = nn.Linear(3, 12)
    return train(
        model, torch.optim.SGD(model.parameters(), 0.1), data, loss, unit=discreet.record(), noise_multiplier=1.0, delta=1e-5,
        rate=0.95, steps=3, clip_norm=1.0, divisor=20.0, ledger=ledger, source="people",
        performance=Performance(check_rows=False, path=path), **options,
    )  # fmt: skip


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(20, 3), torch.full((20,), SECRET / 2)


def all_of(error: BaseException) -> str:
    """Everything that a log or a tracker could show of an error."""
    told = "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))
    for chained in (error.__cause__, error.__context__):
        told += "" if chained is None else all_of(chained)
    return told


CASES = {
    "torch's own message": (lambda: begin(rows(), scaled), "IndexError", "scaled"),
    "a loss's message, unit by unit": (lambda: begin((rows()[0], rows()[1] * 2), spoken), "ValueError", "spoken"),
    "a loss's message, isolated": (
        lambda: begin((rows()[0], rows()[1] * 2), spoken, path="isolated"),
        "ValueError",
        "spoken",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_no_value_leaves_with_the_error(case: str) -> None:
    make, kind, where = CASES[case]
    with pytest.raises(RunFailed) as caught:
        make().fit()
    assert str(SECRET) not in all_of(caught.value)
    assert str(caught.value).startswith(f"{kind} at test_failures.py:")
    assert f" in {where}," in str(caught.value)
    assert "was charged before the first batch" in caught.value.__notes__[0]


@pytest.mark.parametrize("own_loop", [False, True])
def test_rows_that_cannot_be_read_any_more(own_loop: bool) -> None:
    data = Unreadable()
    run = begin(data, lambda output, target: output.sum(1))
    data.broken = True
    with pytest.raises(RunFailed, match=r"ValueError at test_failures.py:\d+ in __getitem__") as caught:
        next(run.batches()) if own_loop else run.fit()
    assert str(SECRET) not in all_of(caught.value)


@pytest.mark.parametrize("owner", [False, True])
def test_only_the_owner_who_asks_for_it_is_told(owner: bool, capfd) -> None:
    """Not whoever has set up logging for a job, nor the terminal."""
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign]
    where = log if owner else logging.getLogger()
    where.addHandler(handler)
    try:
        with pytest.raises(RunFailed):
            begin(rows(), scaled).fit()
    finally:
        where.removeHandler(handler)
    assert str(SECRET) not in "".join(capfd.readouterr())
    assert any(f"Target {SECRET} is out of bounds" in record.getMessage() for record in seen) == owner


def test_losses_of_a_loop_of_ones_own() -> None:
    run = begin((torch.zeros(20, 3), torch.zeros(20)), lambda output, target: output.sum(1))
    for _ in run.batches():
        with pytest.raises(DiscreetError) as caught:
            run.step(torch.full((3,), float(SECRET), requires_grad=True))
        break
    assert str(SECRET) not in all_of(caught.value)


def test_what_needs_memory_is_still_known_as_that() -> None:
    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if bool((target > 1e5).any()):
            raise torch.OutOfMemoryError(f"Tried to allocate {SECRET} GiB")
        return output.sum(1)

    with pytest.raises(torch.OutOfMemoryError, match="while private rows were computed") as caught:
        begin(rows(), loss).fit()
    assert str(SECRET) not in all_of(caught.value)


def test_what_is_public_keeps_its_message() -> None:
    def after(gradients: list[torch.Tensor], scale: float) -> None:
        raise ValueError("the noisy gradient may be told")

    run = begin(
        (torch.zeros(20, 3), torch.zeros(20)), lambda output, target: output.sum(1), postprocess=Postprocess(gradient=after)
    )
    with pytest.raises(ValueError, match="may be told"):
        run.fit()
    with pytest.raises(InvalidValue, match="belongs inside"):
        run.step(torch.zeros(1))


def test_an_error_of_the_check_of_rows_shows_no_value(monkeypatch):
    """The check reads private rows before the charge; what it did not foresee leaves without its message too."""

    def fails(*_):
        raise ValueError(f"income {SECRET}")

    monkeypatch.setattr("discreet.learn.sgd.rowcheck.check", fails)
    model = nn.Linear(3, 12)
    run = train(
        model, torch.optim.SGD(model.parameters(), 0.1), (torch.zeros(20, 3), torch.zeros(20)), lambda y, t: y.sum(1),
        unit=discreet.record(), noise_multiplier=1.0, delta=1e-5, rate=0.95, steps=3, clip_norm=1.0, divisor=20.0,
    )  # fmt: skip
    for start in (run.fit, lambda: next(run.batches())):
        with pytest.raises(RunFailed) as caught:
            start()
        assert str(SECRET) not in str(caught.value)
        assert caught.value.__cause__ is None
