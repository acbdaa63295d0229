"""A LightningModule and its Trainer, privately: the run is the one that train makes, and Lightning's loop still works."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import discreet
from discreet.errors import InvalidValue
from discreet.learn import Checkpoint
from discreet.noise.source import seeded_for_tests

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the library and its own dependencies say about each other
    L = pytest.importorskip("lightning.pytorch", reason="lightning is not installed: pip install 'discreet-privacy[lightning]'")

from discreet.integrations.lightning import fit

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning warns about every CPU that could have more workers


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


PLAN = {
    "unit": discreet.record(), "delta": 1e-5, "rate": 0.05, "steps": 12, "clip_norm": 1.0, "noise_multiplier": 1.0,
    "divisor": 8.0,
}  # fmt: skip


class Classifier(L.LightningModule):
    def __init__(self, reduction="none", schedule=None):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        self.loss = nn.CrossEntropyLoss(reduction=reduction)
        self.schedule, self.seen = schedule, []

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.loss(self.net(x), y)
        self.log("train_loss", loss.mean())
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean())

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.seen.append((batch, self.trainer.global_step))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.5, momentum=0.9)
        if self.schedule is None:
            return optimizer
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)} | self.schedule,
        }


class Data(L.LightningDataModule):
    def __init__(self, **loader):
        super().__init__()
        self.loader = loader

    def setup(self, stage):
        self.rows = TensorDataset(*rows())

    def train_dataloader(self):
        return DataLoader(self.rows, batch_size=32, shuffle=True, **self.loader)

    def val_dataloader(self):
        return DataLoader(self.rows, batch_size=100)


def rows():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(150, 4, generator=generator)
    return x, (x[:, 0] > 0).long()


def trainer(tmp_path, **more):
    return L.Trainer(
        accelerator="cpu", devices=1, default_root_dir=tmp_path, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, **more,
    )  # fmt: skip


def directly(**plan):
    module = Classifier()
    run = discreet.learn.train(module.net, torch.optim.SGD(module.parameters(), 0.5, momentum=0.9), rows(), module.loss, **plan)
    for _ in run:
        pass
    return module


def same(one, other):
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


def test_is_the_run_that_train_makes(tmp_path):
    module = Classifier()
    t = trainer(tmp_path)
    with seeded_for_tests(b"lightning"):
        run = fit(t, module, rows(), **PLAN)
    with seeded_for_tests(b"lightning"):
        assert same(module, directly(**PLAN))
    assert run.number == 12
    assert run.spent() == pytest.approx(run.plan.epsilon())
    assert module.seen == [(step, step + 1) for step in range(12)]  # tickets: callbacks see no row; Lightning counts the steps
    assert "train_loss" not in t.callback_metrics
    assert module.automatic_optimization
    assert not {"training_step", "log", "log_dict"} & set(vars(module))


def test_a_data_module_lends_its_rows_but_not_its_batches(tmp_path):
    with seeded_for_tests(b"lightning"):
        module = Classifier()
        t = trainer(tmp_path)
        fit(t, module, Data(), **PLAN)
    with seeded_for_tests(b"lightning"):
        assert same(module, directly(**PLAN))
    assert 0.0 <= float(t.callback_metrics["accuracy"]) <= 1.0


def test_released_with_its_claim(tmp_path):
    module = Classifier()
    ledger = discreet.Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=discreet.record(), epsilon=100.0, delta=1e-5)
    run = fit(trainer(tmp_path), module, rows(), ledger=ledger, source="people", **PLAN)
    run.release(tmp_path / "model")
    other = Classifier()
    assert not same(module, other)
    release = discreet.learn.read(tmp_path / "model", other)
    assert same(module, other)
    assert release.claims[0].event == run.plan.event()
    assert [entry.kind for entry in ledger.history("people")] == ["open", "reserve", "settle"]


def test_private_rows_are_not_logged(tmp_path):
    with pytest.warns(UserWarning, match="training_step logs is left out"):
        fit(trainer(tmp_path), Classifier(), rows(), **PLAN)


def test_schedules_count_steps(tmp_path):
    module = Classifier(schedule={"interval": "step", "frequency": 4})
    t = trainer(tmp_path)
    fit(t, module, rows(), **PLAN)
    assert t.optimizers[0].param_groups[0]["lr"] == 0.5 * 0.5**3
    with pytest.raises(InvalidValue, match="interval"):
        fit(trainer(tmp_path), Classifier(schedule={"interval": "epoch"}), rows(), **PLAN)


def test_stops_early_when_the_trainer_does_and_goes_on_from_a_checkpoint(tmp_path):
    place = tmp_path / "run.ckpt"
    with seeded_for_tests(b"lightning"):
        run = fit(trainer(tmp_path, max_steps=5), Classifier(), rows(), checkpoint=Checkpoint(place, every=1), **PLAN)
    assert run.number == 5
    module = Classifier()
    assert fit(trainer(tmp_path), module, rows(), checkpoint=Checkpoint(place, every=1), **PLAN).number == 12
    with seeded_for_tests(b"lightning"):
        assert same(module, directly(**PLAN))


def test_in_bfloat16(tmp_path):
    module = Classifier()
    fit(trainer(tmp_path, precision="bf16-mixed"), module, rows(), **PLAN)
    assert not same(module, Classifier())


def test_refuses(tmp_path):
    with pytest.raises(InvalidValue, match="one number for each example"):
        fit(trainer(tmp_path), Classifier(reduction="mean"), rows(), **PLAN)
    module = Classifier()
    module.automatic_optimization = False
    with pytest.raises(InvalidValue, match="its own optimizer"):
        fit(trainer(tmp_path), module, rows(), **PLAN)
    with pytest.raises(InvalidValue, match="collate_fn"):
        fit(trainer(tmp_path), Classifier(), Data(collate_fn=list), **PLAN)
    with pytest.raises(InvalidValue, match="trainer must be"):
        fit(None, Classifier(), rows(), **PLAN)


def test_accumulated_batches_are_refused_with_what_to_use(tmp_path):
    with pytest.raises(InvalidValue, match=r"accumulate_grad_batches=4: a private step .*microbatch=64"):
        fit(trainer(tmp_path, accumulate_grad_batches=4), Classifier(), rows(), **PLAN)
