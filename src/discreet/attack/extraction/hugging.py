"""A causal language model of Hugging Face, from a folder: nothing is downloaded, no code of the folder is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.text.models import Causal
from discreet.errors import InvalidValue, MissingExtra

Tokens = NDArray[np.int64]


def from_folder(folder: str | Path) -> tuple[Causal, Any]:
    """The model and its `encode`, which gives the tokens of a text."""
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise InvalidValue(f"{str(folder)!r} must be a folder that save_pretrained wrote; it has no config.json.")
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError:
        raise MissingExtra("transformers", "huggingface", "Reading a language model") from None
    try:
        module = AutoModelForCausalLM.from_pretrained(path, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError, TypeError, AttributeError) as error:
        raise InvalidValue(
            f"{str(folder)!r} cannot be read as a causal language model with its tokenizer: {str(error).strip()[:200]}"
        ) from None
    return Causal(module.eval(), start=_start(module, tokenizer), longest=_longest(module)), encoder(module, tokenizer)


def encoder(module: Any, tokenizer: Any) -> Any:
    """The tokenizer as a function of a text; refused where it gives tokens that the model does not know."""
    known = int(module.get_input_embeddings().num_embeddings)
    if len(tokenizer) > known:
        raise InvalidValue(
            f"The tokenizer has {len(tokenizer)} tokens and the model {known}: they do not belong together. Use the tokenizer "
            "that the model was trained with."
        )

    def encode(text: str) -> Tokens:
        return np.asarray(tokenizer(text, add_special_tokens=False)["input_ids"], np.int64)

    return encode


def _start(module: Any, tokenizer: Any) -> int:
    for found in (tokenizer.bos_token_id, module.config.bos_token_id, tokenizer.eos_token_id):
        if isinstance(found, int) and 0 <= found < int(module.get_input_embeddings().num_embeddings):
            return found
    return 0


def _longest(module: Any) -> int:
    return int(getattr(module.config, "max_position_embeddings", None) or getattr(module.config, "n_positions", None) or 1024)
