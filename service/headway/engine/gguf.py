"""Turns a GGUF file into a folder of safetensors, once.

Reading a GGUF takes transformers about 20 seconds even for a small model; the folder loads in one or two. Weights are
dequantized to bfloat16, which loses nothing that a four- or eight-bit file has. The folder appears under its name in
one rename, so processes that start at once may convert twice but never see half a model.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel, PreTrainedTokenizerBase

from headway.core.errors import SettingError

FORMAT = 1
"""Raise it when the conversion changes: older folders are then left alone and made anew."""

MAX_HASHED_BYTES = 256 * 1024 * 1024

END_MARKERS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<turn|>", "</s>")
"""Tokens that end a turn or a text, in the families that ship as GGUF. The file names one EOS only, where the
original's generation config often lists several: those that the tokenizer has as special tokens are added to it."""


def converted_folder(path: Path, cache: Path, progress: Callable[[str], None]) -> Path:
    """The folder for the GGUF file ``path``, made now if it is not there. Raises ``SettingError``."""
    folder = cache / "converted" / _folder_name(path)
    if folder.is_dir():
        return folder
    progress(f"converting {path.name} to safetensors, once")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{path.stem}-", dir=folder.parent))
    except OSError as exc:
        raise SettingError("cache_folder", str(cache), f"must be writable: {exc}") from exc
    try:
        _convert(path, draft)
        publish_folder(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _folder_name(path: Path) -> str:
    """Says what is in the file and not where it lies, so that every installation shares one folder.

    All of the file is hashed up to `MAX_HASHED_BYTES`, in a fraction of a second. Of a larger one the two ends are, and
    its size: the first holds the tokenizer and all shapes, and no two models have the same last weights.
    """
    size = path.stat().st_size
    digest = hashlib.blake2b(f"{FORMAT}:{size}:".encode(), digest_size=8)
    with path.open("rb") as file:
        if size <= MAX_HASHED_BYTES:
            digest.update(file.read())
        else:
            digest.update(file.read(MAX_HASHED_BYTES // 2))
            file.seek(-(MAX_HASHED_BYTES // 2), os.SEEK_END)
            digest.update(file.read())
    return f"{path.stem}-{digest.hexdigest()}"


def _convert(path: Path, folder: Path) -> None:
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
        model = AutoModelForCausalLM.from_pretrained(
            str(path.parent),
            gguf_file=path.name,
            dtype=torch.bfloat16,
            quantization_config=GgufConfig(dequantize=True),
        )
    except (OSError, ValueError, KeyError, NotImplementedError, RuntimeError) as exc:
        raise SettingError("model", str(path), f"transformers cannot read this GGUF file: {exc}") from exc
    model.generation_config.eos_token_id = _eos_token_ids(model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _eos_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    special = tokenizer.get_added_vocab()
    stated = model.config.get_text_config().eos_token_id
    ids = {special[marker] for marker in END_MARKERS if marker in special}
    ids.update(stated if isinstance(stated, list) else [stated] if stated is not None else [])
    return sorted(ids)


def publish_folder(draft: Path, folder: Path) -> None:
    """Make ``draft`` appear as ``folder``, unless another process was first: then ``draft`` stays where it is."""
    # The modes of temporary files would lock out other users of a shared cache.
    draft.chmod(0o755)
    for file in draft.iterdir():
        file.chmod(0o644)
    try:
        os.rename(draft, folder)
    except OSError:
        if not folder.is_dir():
            raise
