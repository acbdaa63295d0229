"""Hugging Face: a Trainer whose `train` is private. Models, arguments, callbacks, evaluation and saving stay what they are.

The Trainer's own loop shuffles a loader, averages losses over a batch and logs them. Here the run draws its batches, the loss
is one number per row (the mean over the tokens that count), and nothing computed from rows is logged. The model is not
wrapped, so adapters (PEFT) are merged, saved and loaded as ever.
"""

from __future__ import annotations

import inspect
import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.core import Release
from discreet.errors import InvalidValue, MissingExtra
from discreet.learn.sgd.files import DOCUMENT
from discreet.learn.sgd.options import Performance
from discreet.learn.sgd.rows import OfBatch
from discreet.learn.sgd.run import Run
from discreet.learn.sgd.train import train

try:
    from transformers import Trainer
    from transformers.trainer_utils import TrainOutput
except ImportError as _error:
    raise MissingExtra(_error.name or "transformers", "huggingface", "The private Trainer") from None

IGNORED = -100  # the label of tokens that do not count
LABELS = ("labels", "label", "label_ids")


class PrivateTrainer(Trainer):  # type: ignore[misc]
    """A `transformers.Trainer` with a `plan`: what `discreet.learn.train` takes, as a dict.

    Steps come from `max_steps`; `per_device_train_batch_size` says how many units are computed at once, and changes speed and
    memory only. `loss(outputs, labels)` gives one number per row where the model is not one of the usual kinds; a
    `compute_loss_func`, and a `compute_loss` of a subclass, are used too, and must do the same.

        plan = {"unit": discreet.record(), "epsilon": 3.0, "delta": 1e-6, "rate": 0.01, "clip_norm": 1.0}
        trainer = PrivateTrainer(model=model, args=TrainingArguments("out", max_steps=500), train_dataset=rows, plan=plan)
        trainer.train()
        trainer.release("model/")
    """

    control: Any

    def __init__(
        self, *args: Any, plan: Mapping[str, Any], loss: Callable[[Any, Any], Tensor] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._plan, self._loss = dict(plan), loss
        self._run: Run | None = None
        self._refuse()

    @property
    def run(self) -> Run:
        """The run of the last `train`, for what was spent."""
        if self._run is None:
            raise InvalidValue("Nothing has been trained yet: call trainer.train() first.")
        return self._run

    def train(self, resume_from_checkpoint: Any = None, **kwargs: Any) -> TrainOutput:
        """Train to the end of the plan, or until a callback stops it; the whole plan is paid for before the first step."""
        if resume_from_checkpoint:
            raise InvalidValue(
                'A private run goes on from a checkpoint of its own, which holds its key: plan={"checkpoint": path, …}.'
            )
        began, steps = time.monotonic(), self._steps()
        self.create_optimizer_and_scheduler(num_training_steps=steps)
        run = self._run = self._start_run(steps)
        done = run.number
        self._loop(run)
        seconds = time.monotonic() - began
        metrics = {
            "train_runtime": seconds, "train_steps_per_second": (run.number - done) / seconds, "epsilon": run.spent(),
        }  # fmt: skip
        return TrainOutput(self.state.global_step, math.nan, metrics)  # a training loss is not released

    def release(self, folder: str | Path) -> Release[Any]:
        """The model (or its adapters) as `save_pretrained` writes it, with release.json beside it."""
        release = self.run.release()
        if self.is_world_process_zero():
            place = Path(folder)
            place.mkdir(parents=True, exist_ok=True)
            (place / DOCUMENT).unlink(missing_ok=True)
            self.save_model(str(place))
            release.save(place / DOCUMENT)
        return release

    # ---- before the first step ---------------------------------------------------------------------------------------

    def _refuse(self) -> None:
        """Refuse settings that would change what is clipped, or that this loop does not implement."""
        args = self.args
        wrong = {
            "gradient_accumulation_steps": args.gradient_accumulation_steps != 1, "fp16": args.fp16,
            "torch_compile": args.torch_compile,
            "load_best_model_at_end": args.load_best_model_at_end, "auto_find_batch_size": args.auto_find_batch_size,
            "deepspeed": bool(args.deepspeed), "fsdp": bool(args.fsdp), "several GPUs in one process": args.n_gpu > 1,
            "label_smoothing_factor": args.label_smoothing_factor != 0 and self._loss is None,
            "neftune_noise_alpha": args.neftune_noise_alpha is not None,
        }  # fmt: skip
        unsupported = [name for name, is_set in wrong.items() if is_set]
        if unsupported:
            raise InvalidValue(
                f"{', '.join(unsupported)}: not with a private run. It accumulates by per_device_train_batch_size, "
                "uses bf16 for narrow numbers, and runs on several GPUs under torchrun."
            )

    def _steps(self) -> int:
        stated = {int(n) for n in (self.args.max_steps, self._plan.get("steps")) if n and n > 0}
        if len(stated) != 1:
            raise InvalidValue(
                f"Say how many steps to take, once: TrainingArguments(max_steps=…); got {sorted(stated) or 'none'}. "
                "Epochs do not count here: their length would tell the number of rows."
            )
        return stated.pop()

    def _start_run(self, steps: int) -> Run:
        plan = {**self._plan, "steps": steps}
        performance = plan.pop("performance", Performance(microbatch=self.args.per_device_train_batch_size))
        if self.train_dataset is None:
            raise InvalidValue("PrivateTrainer needs a train_dataset.")
        how = {"use_reentrant": False, **(self.args.gradient_checkpointing_kwargs or {})}
        if self.args.gradient_checkpointing:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
        self.model.train()
        accepted = _accepted(self.model) if self.args.remove_unused_columns else None
        rows = _Rows(self.train_dataset, self.data_collator, accepted, _end_of(self.model))

        def begun(performance: Performance) -> Run:
            options = {"scheduler": self.lr_scheduler, **plan, "performance": performance}
            return train(self.model, self.optimizer, rows, OfBatch(self._losses()), **options)

        if not (self.args.gradient_checkpointing and how["use_reentrant"]) or performance.path is not None:
            return begun(performance)
        try:
            return begun(performance)
        except InvalidValue:  # reentrant checkpointing runs layers without recording first; one unit at a time needs no record
            warnings.warn(
                "Units are computed one by one, which is slower: reentrant gradient checkpointing hides this model's layers. "
                'Faster is gradient_checkpointing_kwargs={"use_reentrant": False}.',
                UserWarning,
                stacklevel=3,
            )
            return begun(replace(performance, path="isolated"))

    def _losses(self) -> Callable[[dict[str, Any]], Tensor]:
        """One loss per row: `loss`, the Trainer's compute_loss_func, a subclass's compute_loss, or the usual one."""
        own = type(self).compute_loss is not Trainer.compute_loss
        func = getattr(self, "compute_loss_func", None)
        if sum((self._loss is not None, func is not None, own)) > 1:
            raise InvalidValue("Give one loss: loss=, compute_loss_func= or a compute_loss of a subclass; got more than one.")
        if own:
            return self._one_loss_per_row(lambda batch: self.compute_loss(self.model, dict(batch)), "compute_loss")
        if func is not None:
            return self._one_loss_per_row(lambda batch: func(*self._forward_with_labels(batch)), "compute_loss_func")
        loss = self._loss or usual_loss(self.model)
        return lambda batch: loss(*self._forward_with_labels(batch))

    def _forward_with_labels(self, batch: dict[str, Any]) -> tuple[Any, Any]:
        """The model's outputs on a batch, and the labels. A decoder's inputs are the shifted labels of its own row."""
        inputs = dict(batch)
        labels = inputs.pop("labels", None)
        decoder = getattr(_inner(self.model), "prepare_decoder_input_ids_from_labels", None)
        if decoder is not None and labels is not None and not {"decoder_input_ids", "decoder_inputs_embeds"} & set(inputs):
            inputs["decoder_input_ids"] = decoder(labels=labels)
        with self.accelerator.autocast():
            return (self.model(**inputs) if _end_of(self.model) is None else _classify_at_end_token(self.model, inputs)), labels

    def _one_loss_per_row(self, loss: Callable[[dict[str, Any]], Any], name: str) -> Callable[[dict[str, Any]], Tensor]:
        """The loss, with a check that it gives one number per row."""

        def losses(batch: dict[str, Any]) -> Tensor:
            losses = loss(batch)
            if not isinstance(losses, Tensor) or losses.ndim != 1:
                kind = "a single number" if isinstance(losses, Tensor) and losses.ndim == 0 else "something else"
                raise InvalidValue(
                    f"{name} must give one number per row, since rows are clipped one by one; it gives {kind}. Leave the mean "
                    "over the batch out (reduction='none', then the mean over the tokens of each row)."
                )
            return losses

        return losses

    # ---- the loop ----------------------------------------------------------------------------------------------------

    def _loop(self, run: Run) -> None:
        state, handler = self.state, self.callback_handler
        state.max_steps, state.num_train_epochs, state.global_step = run.plan.steps, 1, run.number
        state.compute_steps(self.args, run.plan.steps)
        handler.model, handler.optimizer, handler.lr_scheduler = self.model, self.optimizer, self.lr_scheduler
        self.is_in_train = True
        self.control = handler.on_train_begin(self.args, state, self.control)
        self.control = handler.on_epoch_begin(self.args, state, self.control)
        self.control = handler.on_step_begin(self.args, state, self.control)
        for step in run:
            state.global_step, state.epoch = step.number, step.number / step.steps
            self.control = handler.on_step_end(self.args, state, self.control)
            self._look(run)
            if self.control.should_training_stop:
                break
            if step.number < step.steps:
                self.control = handler.on_step_begin(self.args, state, self.control)
        self.control = handler.on_epoch_end(self.args, state, self.control)
        self._look(run)
        self.is_in_train = False
        self.control = handler.on_train_end(self.args, state, self.control)

    def _look(self, run: Run) -> None:
        """Log, evaluate and save where the arguments ask for it: weights and epsilon may be shown at any step."""
        if self.control.should_log:
            self.control.should_log = False
            self.log({"epsilon": run.spent(), "learning_rate": self._get_learning_rate()})
        if self.control.should_evaluate:
            self.control.should_evaluate = False
            self.evaluate()
            self.model.train()
        if self.control.should_save:
            self.control.should_save = False
            self.save_model(str(Path(self.args.output_dir) / f"checkpoint-{run.number}"))
            self.control = self.callback_handler.on_save(self.args, self.state, self.control)


class _Rows(torch.utils.data.Dataset[Any]):
    """Rows as the collator makes them, one at a time: no row's padding depends on other rows."""

    def __init__(
        self, rows: Any, collator: Callable[[list[Any]], Any], accepted: set[str] | None, end: int | None = None
    ) -> None:
        self._rows, self._collator, self._accepted, self._end = rows, collator, accepted, end
        self._shapes: dict[str, torch.Size] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        row = self._rows[place]
        if self._accepted is not None and isinstance(row, Mapping):
            row = {name: value for name, value in row.items() if name in self._accepted}
        inputs = {name: value[0] for name, value in self._collator([row]).items()}
        shapes = {name: torch.as_tensor(value).shape for name, value in inputs.items()}
        self._shapes = self._shapes or shapes
        if shapes != self._shapes:
            raise InvalidValue(
                "Rows differ in length. Padding to the longest of a batch would let a row change what is computed for another: "
                'pad all to one length when tokenising, with padding="max_length", truncation=True, max_length=….'
            )
        if self._end is not None and not bool((torch.as_tensor(inputs["input_ids"]) == self._end).any()):
            raise InvalidValue(
                f"A row has no end token (eos_token_id {self._end}), at which this model reads off the class. Tokenise with "
                "add_special_tokens=True, and truncate by the tokeniser, which keeps it."
            )
        return inputs


def _end_of(model: nn.Module) -> int | None:
    """The end token of a model that reads the class of a row off at its last one, as BART and T5 do; None for others."""
    inner: Any = _inner(model)
    pools = hasattr(inner, "classification_head") and getattr(inner.config, "is_encoder_decoder", False)
    return inner.config.eos_token_id if pools and type(inner).__name__.endswith("ForSequenceClassification") else None


def _classify_at_end_token(model: nn.Module, inputs: dict[str, Any]) -> Any:
    """The forward pass of such a model, where each row finds its own last end token. The model's own forward requires that all
    rows of a batch have equally many end tokens and selects them by one mask, so a row could change another row's output.
    """
    inner: Any = _inner(model)
    ids = inputs["input_ids"]
    if "decoder_input_ids" not in inputs and hasattr(inner, "_shift_right"):
        inputs = {**inputs, "decoder_input_ids": inner._shift_right(ids)}
    hidden = inner.base_model(**inputs)[0]
    places = torch.arange(ids.shape[1], device=ids.device)
    last = ((ids == inner.config.eos_token_id) * places).amax(1)
    last_hidden = hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[-1])).squeeze(1)
    return SimpleNamespace(logits=inner.classification_head(last_hidden))


def _accepted(model: nn.Module) -> set[str]:
    """The parameters of the model's forward, and the names of labels."""
    return {*inspect.signature(_inner(model).forward).parameters, *LABELS}


def _inner(model: Any) -> nn.Module:
    """The model inside adapters."""
    inner: nn.Module = model.get_base_model() if hasattr(model, "get_base_model") else model
    return inner


# ---- losses, one number per row --------------------------------------------------------------------------------------


def usual_loss(model: nn.Module) -> Callable[[Any, Any], Tensor]:
    """The loss that goes with the kind of model, by the name Hugging Face gave it."""
    inner: Any = _inner(model)
    name = type(inner).__name__
    if name.endswith(("ForCausalLM", "LMHeadModel")):
        return lambda outputs, labels: token_mean(outputs.logits[:, :-1], labels[:, 1:])
    if name.endswith(("ForMaskedLM", "ForTokenClassification", "ForConditionalGeneration")):
        return lambda outputs, labels: token_mean(outputs.logits, labels)
    if name.endswith("Classification"):
        return _classes(inner.config)
    raise InvalidValue(
        f"Which loss goes with {name} is not known here. Give it, one number per row: "
        "PrivateTrainer(…, loss=lambda outputs, labels: …)."
    )


def token_mean(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy over the tokens of each row that count (label not -100); 0 for a row without any.

    >>> token_mean(torch.zeros(2, 3, 4), torch.tensor([[1, 2, -100], [-100, -100, -100]]))
    tensor([1.3863, 0.0000])
    """
    losses = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten().long(), ignore_index=IGNORED, reduction="none")
    return losses.view(labels.shape).sum(1) / (labels != IGNORED).sum(1).clamp(min=1)


def _classes(config: Any) -> Callable[[Any, Any], Tensor]:
    """As `config.problem_type` says; without it, one label is a number to be met and several are classes."""
    kind = config.problem_type or ("regression" if config.num_labels == 1 else "single_label_classification")

    def loss(outputs: Any, labels: Tensor) -> Tensor:
        logits: Tensor = outputs.logits.float()
        if kind == "regression":
            return (logits - labels.view(logits.shape)).square().mean(1)
        if kind == "multi_label_classification":
            return F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="none").mean(1)
        return F.cross_entropy(logits, labels.long(), reduction="none")

    return loss
