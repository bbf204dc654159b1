"""Where models that were converted or downloaded are kept, and what was compiled. No torch here."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from headway.engine.config import EngineConfig

COMPILER_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
"""The variable by which torch's compiler is told where to keep its results."""


def cache_folder(config: EngineConfig) -> Path:
    if config.cache_folder is not None:
        return Path(config.cache_folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"


def compiler_folder(config: EngineConfig) -> Path:
    """Where torch's compiler keeps its results, unless `COMPILER_FOLDER` says otherwise."""
    return cache_folder(config) / "inductor"


def compiler_environment(config: EngineConfig) -> dict[str, str]:
    """Leads torch to `compiler_folder`, if that can be written and nobody has chosen another.

    torch makes the folder as soon as its compiler is imported, which transformers does, whether or not anything is
    compiled; without being told where, among the temporary files of all programs. Where that fails, the import does.
    """
    folder = compiler_folder(config)
    if COMPILER_FOLDER not in os.environ:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK | os.X_OK):
                return {COMPILER_FOLDER: str(folder)}
    return {}
