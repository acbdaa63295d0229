"""Hugging Face's Trainer, privately: every kind of tiny random model, adapters that are usable afterwards, no network."""

from __future__ import annotations

import json
import math
import warnings

import pytest
import torch

import discreet
from discreet.errors import InvalidValue
from discreet.learn import Checkpoint
from discreet.learn.sgd.clipping import SLACK
from discreet.noise.source import seeded_for_tests

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the library and its own dependencies say about each other
    hf = pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install 'discreet-privacy[huggingface]'"
    )
    from discreet.integrations.transformers import PrivateTrainer, token_mean, usual_loss

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


WORDS, LENGTH = 20, 8
END = WORDS - 1  # the token at which some models read the class of a row off
PLAN = {"unit": discreet.record(), "delta": 1e-5, "rate": 0.1, "clip_norm": 1.0, "noise_multiplier": 0.8, "divisor": 6.0}


def gpt2(**more):
    config = hf.GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
        pad_token_id=0, **more,
    )  # fmt: skip
    return hf.GPT2LMHeadModel(config)


def llama():
    config = hf.LlamaConfig(
        vocab_size=WORDS, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=LENGTH, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return hf.LlamaForCausalLM(config)


def bert(kind=None, **more):
    config = hf.BertConfig(
        vocab_size=WORDS, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=LENGTH, **more,
    )  # fmt: skip
    return (kind or hf.BertForSequenceClassification)(config)


def gemma(kind="Gemma3"):
    """Embeddings of a class of their own, which scales them; pad token 0, as it comes."""
    config = {"Gemma": "GemmaConfig", "Gemma2": "Gemma2Config", "Gemma3": "Gemma3TextConfig"}[kind]
    return getattr(hf, f"{kind}ForCausalLM")(
        getattr(hf, config)(
            vocab_size=WORDS, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, head_dim=8, max_position_embeddings=LENGTH,
        )
    )  # fmt: skip


def bart():
    """Scaled embeddings, positions with an offset, tied tables; pad token 1, as it comes."""
    config = hf.BartConfig(
        vocab_size=WORDS, d_model=16, encoder_ffn_dim=24, decoder_ffn_dim=24, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=LENGTH, scale_embedding=True,
    )  # fmt: skip
    return hf.BartForConditionalGeneration(config)


def t5():
    """Distances in place of positions; pad token 0, which also starts what the decoder is given."""
    config = hf.T5Config(
        vocab_size=WORDS, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_decoder_layers=1, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    return hf.T5ForConditionalGeneration(config)


def classes(kind):
    """A model that reads the class off at the last end token of a row."""
    generating = bart() if kind == "Bart" else t5()
    generating.config.num_labels = 3
    generating.config.eos_token_id = END
    return getattr(hf, f"{kind}ForSequenceClassification")(generating.config)


class Texts(torch.utils.data.Dataset):
    """Rows as tokenisers make them: padded to one length, labels -100 where nothing counts."""

    def __init__(self, labels, count=60, length=None, pad=0, ends=False):
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(2, WORDS, (count, LENGTH), generator=generator)
        self.lengths = torch.randint(3, LENGTH + 1, (count,), generator=generator)
        if ends:
            self.ids[torch.arange(count), self.lengths - 1] = END
        self.labels, self.length, self.pad = labels, length, pad

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        mask = (torch.arange(LENGTH) < self.lengths[i]).long()
        ids = torch.where(mask == 1, self.ids[i], self.pad)
        labels = {
            "tokens": torch.where(mask == 1, ids, -100), "class": self.ids[i, 0] % 2, "number": self.ids[i, 0] / WORDS,
            "several": (self.ids[i, :3] > WORDS // 2).float(),
        }[self.labels]  # fmt: skip
        end = LENGTH if self.length is None else self.length + i % 2
        return {"input_ids": ids[:end], "attention_mask": mask[:end], "labels": labels, "text": "never seen by the model"}


def arguments(tmp_path, **more):
    asked = {"max_steps": 3, "use_cpu": True, "report_to": "none", "disable_tqdm": True, "learning_rate": 0.01}
    return hf.TrainingArguments(str(tmp_path / "out"), **{**asked, "save_strategy": "no", **more})


def trainer(tmp_path, model, labels="tokens", plan=(), loss=None, rows=None, more=(), **args):
    return PrivateTrainer(
        model=model, args=arguments(tmp_path, **args), train_dataset=rows or Texts(labels), plan={**PLAN, **dict(plan)},
        loss=loss, data_collator=hf.default_data_collator, **dict(more),
    )  # fmt: skip


MODELS = {
    "gpt2": (gpt2, "tokens"),
    "llama": (llama, "tokens"),
    "bert, classes": (bert, "class"),
    "bert, a number": (lambda: bert(num_labels=1), "number"),
    "bert, several classes": (lambda: bert(num_labels=3, problem_type="multi_label_classification"), "several"),
    "bert, words": (lambda: bert(hf.BertForMaskedLM), "tokens"),
    "gemma 3": (gemma, "tokens"),
    "bart": (bart, "tokens"),
    "t5": (t5, "tokens"),
    "bart, classes": (lambda: classes("Bart"), "class"),
    "t5, classes": (lambda: classes("T5"), "class"),
}


def texts(model, labels):
    return Texts(labels, pad=model.config.pad_token_id or 0, ends=model.config.eos_token_id == END)


@pytest.mark.parametrize("name", MODELS)
def test_trains_every_kind(tmp_path, name):
    make, labels = MODELS[name]
    torch.manual_seed(0)
    model = make()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    t = trainer(tmp_path, model, labels, rows=texts(model, labels))
    out = t.train()
    assert out.global_step == 3
    assert math.isnan(out.training_loss)  # what rows cost is not released
    assert out.metrics["epsilon"] == t.run.spent() == pytest.approx(t.run.plan.epsilon())
    assert all(not torch.equal(before[n], p) for n, p in model.named_parameters())
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("name", MODELS)
def test_clipped_sum_is_that_of_the_rows_one_by_one(tmp_path, name):
    """Position numbers that all rows share, masks, tied heads: against ordinary gradients, row by row."""
    make, labels = MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    rows = texts(model, labels)
    t = trainer(tmp_path, model, labels, rows=rows)
    t.create_optimizer_and_scheduler(3)
    run = t._start_run(3)
    model.eval()
    batch = torch.utils.data.default_collate([{k: v for k, v in rows[i].items() if k != "text"} for i in range(5)])
    engine, clipping = run._sum.engine, type(run._sum.clipping)(0.5)
    found = engine.buffer()
    with engine.recording(5):
        engine.add(run._sum.losses(batch), clipping, found)
    wanted = torch.zeros_like(found)
    loss = usual_loss(model)
    for i in range(5):
        one = {k: v[i : i + 1] for k, v in batch.items()}
        target = one.pop("labels")
        by_model = model.config.is_encoder_decoder  # it makes of the labels what its decoder is given
        flat = engine.gradient(model(**one, labels=target).loss if by_model else loss(model(**one), target).sum())
        wanted += flat * min(1.0, 0.5 / float((1 + SLACK) * flat.norm()))
    assert float((found - wanted).norm()) <= 1e-4 * float(wanted.norm())


def test_loss_is_that_of_the_model_itself():
    """One row at a time, the mean over its tokens is what the model computes with labels."""
    rows = torch.utils.data.default_collate([{k: v for k, v in Texts("tokens")[i].items() if k != "text"} for i in range(4)])
    model = gpt2().eval()
    labels = rows["labels"]
    found = usual_loss(model)(model(**{k: v for k, v in rows.items() if k != "labels"}), labels)
    for i in range(4):
        assert float(found[i]) == pytest.approx(float(model(**{k: v[i : i + 1] for k, v in rows.items()}).loss), rel=1e-4)
    assert token_mean(torch.zeros(1, 2, 3), torch.full((1, 2), -100)).tolist() == [0.0]


class Watch(hf.TrainerCallback):
    def __init__(self):
        self.logs, self.steps, self.ends = [], [], 0

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append(logs)

    def on_step_end(self, args, state, control, **kwargs):
        self.steps.append(state.global_step)

    def on_train_end(self, args, state, control, **kwargs):
        self.ends += 1


def test_callbacks_logs_evaluation_and_saving(tmp_path):
    watch = Watch()
    t = trainer(
        tmp_path, bert(), "class", max_steps=4, logging_steps=2, eval_strategy="steps", eval_steps=2, save_strategy="steps",
        save_steps=4, lr_scheduler_type="linear", more={"callbacks": [watch], "eval_dataset": Texts("class", 10)},
    )  # fmt: skip
    t.train()
    assert watch.steps == [1, 2, 3, 4]
    assert watch.ends == 1
    told = [logs for logs in watch.logs if "learning_rate" in logs]
    assert [set(logs) - {"epoch", "step"} for logs in told] == [{"epsilon", "learning_rate"}] * 2
    assert told[0]["epsilon"] < told[1]["epsilon"]
    assert told[0]["learning_rate"] == pytest.approx(0.005)
    assert sum("eval_loss" in logs for logs in watch.logs) == 2
    saved = hf.BertForSequenceClassification.from_pretrained(tmp_path / "out" / "checkpoint-4")
    assert all(torch.equal(p, q) for p, q in zip(saved.parameters(), t.model.parameters(), strict=True))


def test_released_with_its_claim(tmp_path):
    ledger = discreet.Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=discreet.record(), epsilon=100.0, delta=1e-5)
    t = trainer(tmp_path, gpt2(), plan={"ledger": ledger, "source": "people"})
    t.train()
    release = t.release(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "release.json").read_text())["source"] == "people"
    assert discreet.Release.load(tmp_path / "model" / "release.json").claims == release.claims
    model = hf.GPT2LMHeadModel.from_pretrained(tmp_path / "model")
    assert torch.equal(model.transformer.wte.weight, t.model.transformer.wte.weight)
    assert model.lm_head.weight is model.transformer.wte.weight
    assert [entry.kind for entry in ledger.history("people")] == ["open", "reserve", "settle"]


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "gemma 3", "bart", "t5"])
def test_gradient_checkpointing_changes_nothing_but_memory(tmp_path, name, reentrant):
    make, labels = MODELS[name]

    def trained(**args):
        torch.manual_seed(0)
        model = make()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0  # units one by one draw otherwise than all at once
            if isinstance(getattr(module, "dropout", None), float):
                module.dropout = 0.0
        with seeded_for_tests(b"checkpointing"):
            torch.manual_seed(1)
            trainer(tmp_path, model, rows=texts(model, labels), max_steps=2, **args).train()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    asked = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}
    wanted = trained()
    assert float((trained(**asked) - wanted).norm()) <= 1e-4 * float(wanted.norm())


@pytest.mark.parametrize("kind", ["Bart", "T5"])
def test_the_class_of_a_row_is_read_off_at_its_own_end(tmp_path, kind):
    torch.manual_seed(0)
    model = classes(kind).eval()
    rows = texts(model, "class")
    run = trainer(tmp_path, model, rows=rows)
    for i in range(20):
        batch = {name: value[None] for name, value in rows[i].items() if name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            assert torch.allclose(run._forward_with_labels(dict(batch))[0].logits, model(**batch).logits, atol=1e-6)
    rows.ids[5] = 3
    with pytest.raises(InvalidValue, match=r"has no end token .*Nothing was charged"):
        trainer(tmp_path, model, rows=rows).train()


def test_every_gemma(tmp_path):
    for kind in ("Gemma", "Gemma2"):
        model = gemma(kind)
        trainer(tmp_path, model, rows=texts(model, "tokens"), max_steps=1).train()


def rowwise(outputs, labels, num_items_in_batch=None):
    return token_mean(outputs.logits[:, :-1], labels[:, 1:])


class Own(PrivateTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = rowwise(outputs, labels)
        return (loss, outputs) if return_outputs else loss


class Mean(PrivateTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return model(**inputs).loss


def test_losses_of_other_trainers_are_honoured_or_refused(tmp_path):
    def trained(kind=PrivateTrainer, **more):
        torch.manual_seed(0)
        model = gpt2()
        with seeded_for_tests(b"losses"):
            torch.manual_seed(1)
            kind(model=model, args=arguments(tmp_path), train_dataset=Texts("tokens"), plan=PLAN,
                 data_collator=hf.default_data_collator, **more).train()  # fmt: skip
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    wanted = trained()
    assert torch.equal(trained(compute_loss_func=rowwise), wanted)
    assert torch.equal(trained(Own), wanted)
    assert not torch.equal(trained(compute_loss_func=lambda *given, **named: 0.1 * rowwise(*given)), wanted)
    for wrong in ({"compute_loss_func": lambda outputs, labels, **named: rowwise(outputs, labels).mean()}, {"kind": Mean}):
        with pytest.raises(InvalidValue, match="one number per row"):
            trained(**wrong)
    with pytest.raises(InvalidValue, match="Give one loss"):
        trained(Own, loss=rowwise)


def test_a_scheduler_goes_on_with_its_run(tmp_path):
    place = tmp_path / "run"

    class Stop(hf.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step == 3

    def go(**more):
        torch.manual_seed(0)
        t = trainer(
            tmp_path, gpt2(), max_steps=6, lr_scheduler_type="linear", plan={"checkpoint": Checkpoint(place, every=2)}, **more
        )
        t.train()
        return t

    first = go(more={"callbacks": [Stop()]})
    assert first.run.number == 3
    second = go()
    assert (second.run.number, second.run._state.extra) == (6, 0)  # step 3 was repeated, bit for bit
    assert second.lr_scheduler.last_epoch == 6
    assert second._get_learning_rate() == 0


def test_refuses(tmp_path):
    with pytest.raises(InvalidValue, match="max_steps"):
        trainer(tmp_path, gpt2(), max_steps=-1).train()
    for name, value in {
        "gradient_accumulation_steps": 2,
        "label_smoothing_factor": 0.1,
    }.items():
        with pytest.raises(InvalidValue, match=name):
            trainer(tmp_path, gpt2(), **{name: value})
    with pytest.raises(InvalidValue, match="checkpoint of its own"):
        trainer(tmp_path, gpt2()).train(resume_from_checkpoint=True)
    with pytest.raises(InvalidValue, match="max_length"):
        trainer(tmp_path, gpt2(), rows=Texts("class", length=5), loss=lambda out, y: out.logits.sum((1, 2))).train()
    with pytest.raises(InvalidValue, match="is not known here"):
        trainer(tmp_path, hf.GPT2Model(gpt2().config)).train()
    with pytest.raises(InvalidValue, match="trained yet"):
        trainer(tmp_path, gpt2()).release(tmp_path / "model")


# ---- adapters --------------------------------------------------------------------------------------------------------


def adapted(model, **more):
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install 'discreet-privacy[huggingface]'")
    return peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=16, lora_dropout=0.1, init_lora_weights=True, **more))


ADAPTED = {
    "gpt2": (lambda: gpt2(), {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True, "task_type": "CAUSAL_LM"}),
    "llama": (lambda: llama(), {"target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}),
}


@pytest.mark.parametrize("name", ADAPTED)
def test_adapters_learn_and_stay_usable(tmp_path, name):
    """Adapters learn, the model under them does not move, and merged, saved and loaded weights say the same."""
    import peft

    make, how = ADAPTED[name]
    torch.manual_seed(0)
    base = make()
    start = {n: p.detach().clone() for n, p in base.state_dict().items()}
    model = adapted(base, **how)
    rows = Texts("tokens")
    rows.ids[:] = rows.ids[0]  # one text: whoever learns, learns it
    ids = rows.ids[:2]
    generic = {"noise_multiplier": 0.05, "rate": 0.5, "divisor": 30.0}
    t = trainer(tmp_path, model, rows=rows, plan=generic, max_steps=30, learning_rate=0.05, lr_scheduler_type="constant")

    def loss():
        return float(usual_loss(model)(model.eval()(input_ids=ids), ids).mean())

    first = loss()
    t.train()
    assert loss() < 0.97 * first
    assert all(
        torch.equal(p, start[n.replace(".base_layer", "")])
        for n, p in model.get_base_model().state_dict().items()
        if "lora_" not in n
    )
    said = model.eval()(input_ids=ids).logits
    assert not torch.allclose(said, _again(make, start)(input_ids=ids).logits, atol=1e-3)

    t.release(tmp_path / "adapters")
    assert (tmp_path / "adapters" / "release.json").is_file()
    loaded = peft.PeftModel.from_pretrained(_again(make, start), tmp_path / "adapters").eval()
    torch.testing.assert_close(loaded(input_ids=ids).logits, said)

    merged = model.merge_and_unload().eval()
    torch.testing.assert_close(merged(input_ids=ids).logits, said, rtol=1e-4, atol=1e-5)
    merged.save_pretrained(tmp_path / "merged")
    torch.testing.assert_close(
        type(merged).from_pretrained(tmp_path / "merged").eval()(input_ids=ids).logits, said, rtol=1e-4, atol=1e-5
    )


def _again(make, state):
    model = make().eval()
    model.load_state_dict(state)
    return model
