"""Lightning and Hugging Face under torchrun: two processes train what one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from snippets import ROOT

pytestmark = pytest.mark.filterwarnings("ignore")

SCRIPT = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
import lightning as L
import torch
import transformers as hf
import discreet
from discreet.integrations.lightning import fit
from discreet.integrations.transformers import PrivateTrainer
from discreet.noise.source import seeded_for_tests

world, out = int(os.environ.get("WORLD_SIZE", "1")), {}
plan = {"unit": discreet.record(), "delta": 1e-5, "rate": 0.1, "clip_norm": 1.0, "noise_multiplier": 0.8, "divisor": 6.0}
made = torch.Generator().manual_seed(1)


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1], reduction="none")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.5)


x = torch.randn(60, 4, generator=made)
trainer = L.Trainer(accelerator="cpu", devices=world, strategy="ddp" if world > 1 else "auto", logger=False,
                    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
module = Classifier()
with seeded_for_tests(b"lightning"):
    run = fit(trainer, module, (x, (x[:, 0] > 0).long()), steps=4, **plan)
out["lightning"] = [p.flatten().tolist() for p in module.parameters()] + [[float(run._parts.group.world)]]

torch.manual_seed(0)
model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0,
                                         eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
rows = [{"input_ids": row, "labels": row} for row in torch.randint(20, (60, 8), generator=made)]
args = hf.TrainingArguments("out", max_steps=4, use_cpu=True, report_to="none", disable_tqdm=True, learning_rate=0.01)
trainer = PrivateTrainer(model=model, args=args, train_dataset=rows, data_collator=hf.default_data_collator, plan=plan)
with seeded_for_tests(b"hugging face"):
    trainer.train()
out["hugging face"] = [p.flatten().tolist() for p in model.parameters()] + [[float(trainer.run._parts.group.world)]]
with open(f"out-{world}-{os.environ.get('RANK', '0')}.json", "w") as file:
    json.dump(out, file)
"""


def test_two_processes_train_what_one_does(tmp_path, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("lightning", "transformers"):
            pytest.importorskip(name, reason=f"{name} is not installed: pip install 'discreet-privacy[lightning,huggingface]'")
    if not torch.distributed.is_gloo_available():
        pytest.skip("torch was built without gloo")
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    exec(compile(SCRIPT, "train.py", "exec"), {"__name__": "__one__"})  # noqa: S102 (the text above)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    more = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    if sys.platform == "linux":
        more["GLOO_SOCKET_IFNAME"] = "lo"
    done = subprocess.run(launch, capture_output=True, text=True, timeout=180, env={**os.environ, **more})
    assert done.returncode == 0, done.stderr
    one, *two = (json.loads((tmp_path / f"out-{name}.json").read_text()) for name in ("1-0", "2-0", "2-1"))
    assert two[0] == two[1]
    for name in one:
        assert (one[name].pop(), two[0][name].pop()) == ([1.0], [2.0])
        for wanted, found in zip(one[name], two[0][name], strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
