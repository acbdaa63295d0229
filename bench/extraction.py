"""Secrets planted in the text that a small transformer is fine-tuned on: what comes out, without a defence and with one.

    python bench/extraction.py [--data ../shared/data] [--out bench/results/extraction.json]

A GPT-2 of bytes (2 layers of 64, 40 tokens) is trained on Tiny Shakespeare, then fine-tuned on 400 openings of Reuters C50
articles and canaries "agent 07 code 123456789" with nine random digits, 4 each put in 1, 4, 8 and 16 times.

none       all weights, Adam
dedup      the same, each row once
DP         LoRA adapters with the private trainer, epsilon 8 and 2 for one row at delta 1e-4; a canary that is put in 16 times
           is 16 rows, for which the guarantee is 16 times weaker

useful     (--part useful) DP at epsilon 8 on 2,000 openings, beside the model of Shakespeare alone: from so many rows a private
           model learns much of what there is to learn; what comes out of it is asked the same way

Perplexity is per byte, on 200 other openings. A canary is extracted where the best-first search for the likeliest digits after
its prompt gives it first. The (n, p) estimate is compared with brute sampling on canaries that come out sometimes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1"}

import numpy as np
import torch
from pyarrow.parquet import read_table
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments, default_data_collator

import discreet
from _record import commit, write
from discreet.attack.exposure import Template, exposure
from discreet.attack.extraction import discoverable, extraction, likeliest, sampled
from discreet.attack.text import Causal, utf8
from discreet.audit.binomial import rate_ceiling, rate_floor

LENGTH, REPETITIONS, EACH, DIGITS = 40, (1, 4, 8, 16), 4, [ord(digit) for digit in "0123456789"]
TEMPLATES = [Template(f"agent {place:02d} code {{}}") for place in range(EACH * len(REPETITIONS))]


def public(data: Path) -> list[str]:
    text = gzip.decompress((data / "shakespeare/tinyshakespeare.txt.gz").read_bytes()).decode()
    return [clean(text[at : at + LENGTH]) for at in range(0, len(text) - LENGTH, LENGTH)]


def openings(data: Path) -> list[str]:
    texts = read_table(data / "reuters-c50/c50.parquet").to_pydict()["text"]
    return list(dict.fromkeys(clean(text)[:LENGTH] for text in texts if text and len(clean(text)) >= LENGTH))


def clean(text: str) -> str:
    return "".join(letter if 31 < ord(letter) < 127 else " " for letter in text)


def rows_of(texts: list[str]) -> torch.Tensor:
    return torch.as_tensor(np.stack([utf8(text.ljust(LENGTH)[:LENGTH]) for text in texts]))


def model_of_bytes() -> Any:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=128, n_positions=LENGTH + 1, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    ))  # fmt: skip


def trained(model: Any, rows: torch.Tensor, steps: int, rate: float, seed: int) -> Any:
    random = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    model.train()
    for _ in range(steps):
        some = started(rows[torch.randint(len(rows), (32,), generator=random)])
        optimizer.zero_grad()
        model(input_ids=some, labels=some).loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def started(rows: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.zeros(len(rows), 1, dtype=rows.dtype), rows], 1)


def private(model: Any, rows: torch.Tensor, epsilon: float, steps: int, rate: float = 0.15) -> Any:
    from peft import LoraConfig, get_peft_model

    from discreet.integrations.transformers import PrivateTrainer

    torch.manual_seed(1)
    adapted = get_peft_model(
        model, LoraConfig(r=8, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    )
    data = [{"input_ids": row, "labels": row} for row in started(rows)]
    plan = {"unit": discreet.record(), "epsilon": epsilon, "delta": 1e-4, "rate": rate, "clip_norm": 1.0}
    arguments = TrainingArguments(
        "/tmp/none", max_steps=steps, learning_rate=5e-3, per_device_train_batch_size=64, report_to="none", use_cpu=True,
        disable_tqdm=True,
    )  # fmt: skip
    trainer = PrivateTrainer(model=adapted, args=arguments, train_dataset=data, data_collator=default_data_collator, plan=plan)
    trainer.train()
    return adapted.merge_and_unload().eval()


def perplexity(model: Any, rows: torch.Tensor) -> float:
    with torch.no_grad():
        return float(model(input_ids=started(rows), labels=started(rows)).loss.exp())


def attacked(module: Any, secrets: list[str], inside: list[str], outside: list[str]) -> dict[str, Any]:
    model, began, found = Causal(module), time.process_time(), []
    for template, secret in zip(TEMPLATES, secrets):
        best = likeliest(model, utf8(template.text[:-2]), DIGITS, template.length, budget=2_000)
        found.append(bool(best.found) and "".join(map(chr, best.found[0].tokens)) == secret)
    spent = time.process_time() - began
    bits = [exposure(model, each, [secret], samples=200, budget=500)[0] for each, secret in zip(TEMPLATES, secrets)]
    out = extraction(model, inside, outside, prompt=20, suffix=LENGTH - 20, near=False, tries=(1, 100, 10_000))
    parts = {times: slice(place * EACH, place * EACH + EACH) for place, times in enumerate(REPETITIONS)}
    return {
        "extracted": {times: sum(found[part]) for times, part in parts.items()}, "of": EACH,
        "search_cpu_seconds": round(spent, 2),
        "exposure_bits": {times: round(float(np.mean([each.bits for each in bits[part]])), 1) for times, part in parts.items()},
        "exposure_exact": {times: sum(each.method == "exact" for each in bits[part]) for times, part in parts.items()},
        "articles_extracted": {n: {"members": risk.members, "control": risk.control} for n, risk in out.risks.items()},
    }  # fmt: skip


def against_sampling(module: Any, secrets: list[str], samples: int = 1024) -> dict[str, Any]:
    """The stated probability of a suffix against how often it is drawn, and what both cost for n = 1,000."""
    model, rows, spent = Causal(module), [], [0.0, 0.0]
    for template, secret in zip(TEMPLATES, secrets):
        text, prompt = template.fill(secret), len(template.text) - 2
        for cut in (0, 3, 5):  # a part of the secret may belong to the prompt
            began = time.process_time()
            one = extraction(model, [text], ["x" * len(text)], prompt=prompt + cut, suffix=9 - cut, near=False)
            stated = float(np.exp(one.log_probability[0]))
            spent[0] += time.process_time() - began
            if not 0.01 < stated < 0.9 or len(rows) >= 8:
                continue
            began = time.process_time()
            hits = sampled(model, text, samples, prompt=prompt + cut, suffix=9 - cut, seed=len(rows))
            spent[1] += time.process_time() - began
            low, high = (float(end(hits, samples, 0.0005)) for end in (rate_floor, rate_ceiling))
            chance = float(discoverable(np.log(stated), 1000)[()])
            rows.append({"stated": stated, "drawn": hits / samples, "low": low, "high": high, "n=1000": chance})
    each = spent[0] / (3 * len(TEMPLATES)), spent[1] / max(len(rows), 1)
    return {
        "texts": rows, "samples": samples,
        "within_99.9_percent_interval": sum(r["low"] <= r["stated"] <= r["high"] for r in rows),
        "cpu_seconds_per_text": {"stated": each[0], "sampled": each[1]}, "cheaper": each[1] / each[0],
    }  # fmt: skip


def useful(texts: list[str], secrets: list[str], canaries: list[str], base: dict[str, Any]) -> dict[str, Any]:
    inside, outside = texts[:2000], texts[2000:2200]
    rows = rows_of(inside + [text for place, text in enumerate(canaries) for _ in range(REPETITIONS[place // EACH])])
    model = model_of_bytes()
    model.load_state_dict(base)
    before = round(perplexity(model, rows_of(outside)), 3)
    module = private(model, rows, 8.0, 60, 0.2)
    after = round(perplexity(module, rows_of(outside)), 3)
    return {
        "commit": commit(), "rows": len(rows), "epsilon": 8.0, "perplexity_before": before, "perplexity": after,
        **attacked(module, secrets, inside[:400], outside),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DISCREET_DATA", "../shared/data")))
    parser.add_argument("--steps", type=int, default=800, help="of the plain model; the private one takes 60 large ones")
    parser.add_argument("--part", choices=("table", "useful"), default="table", help="the other stays as it is in --out")
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    began, measured = time.process_time(), commit()
    texts = openings(options.data)
    inside, outside = texts[:400], texts[400:600]
    secrets = [template.secrets(1, seed=place)[0] for place, template in enumerate(TEMPLATES)]
    canaries = [template.fill(secret) for template, secret in zip(TEMPLATES, secrets)]
    times = [REPETITIONS[place // EACH] for place in range(len(canaries))]
    repeated = rows_of(inside + [text for text, many in zip(canaries, times) for _ in range(many)])
    known = json.loads(Path(options.out).read_text()) if options.out and Path(options.out).exists() else {}
    packages = ("torch", "transformers", "peft")
    base = trained(model_of_bytes(), rows_of(public(options.data)), options.steps, 4e-3, 0).state_dict()

    if options.part == "useful":
        known["useful"] = useful(texts, secrets, canaries, base)
        print(known["useful"])
        write(options.out, {name: value for name, value in known.items() if name not in ("date", "machine")}, *packages)
        return

    def fresh() -> Any:
        model = model_of_bytes()
        model.load_state_dict(base)
        return model

    made = {
        "none": lambda: trained(fresh(), repeated, options.steps, 3e-3, 1),
        "dedup": lambda: trained(fresh(), rows_of(inside + canaries), options.steps * 416 // len(repeated), 3e-3, 1),
        "DP 8, LoRA": lambda: private(fresh(), repeated, 8.0, 60), "DP 2, LoRA": lambda: private(fresh(), repeated, 2.0, 60),
    }  # fmt: skip
    found: dict[str, Any] = {"commit": measured, "steps": options.steps, "rows": len(repeated), "secrets": 10**9, "table": {}}
    for name, make in made.items():
        module = make()
        row = {"perplexity": round(perplexity(module, rows_of(outside)), 3), **attacked(module, secrets, inside, outside)}
        found["table"][name] = row
        print(name, row, round(time.process_time() - began, 1), flush=True)
        if name == "none":
            found["against_sampling"] = against_sampling(module, secrets)
            print(found["against_sampling"], flush=True)
        kept = {"useful": known["useful"]} if "useful" in known else {}
        write(options.out, {**found, **kept, "cpu_seconds": round(time.process_time() - began, 1)}, *packages)


if __name__ == "__main__":
    main()
