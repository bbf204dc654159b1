"""Looks for a model on the Hugging Face hub before transformers does, to say what a start waits for or fails on.

transformers alone would try again for half a minute if the hub cannot be reached, and then not say that this was why.
"""

from __future__ import annotations

from collections.abc import Callable

from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from headway.core.errors import SettingError

CONFIG_FILE = "config.json"
"""Every model that transformers loads has one."""


def announce_download(model: str, cache_folder: str | None, progress: Callable[[str], None]) -> None:
    """Nothing for a model that is in the cache. Raises ``SettingError`` if the hub cannot be reached for another."""
    try:
        if isinstance(try_to_load_from_cache(model, CONFIG_FILE, cache_dir=cache_folder), str):
            return
        progress(f"downloading {model} from the Hugging Face hub")
        get_hf_file_metadata(hf_hub_url(model, CONFIG_FILE))
    except HfHubHTTPError:
        return  # An answer: transformers gets the same, and explains it (no such model, no permission) better.
    except HFValidationError as exc:
        raise SettingError("model", model, f"is no folder, and no id of the Hugging Face hub: {exc}") from exc
    except Exception as exc:  # Whatever the hub's client of HTTP has for a network that does not work.
        fix = f"is not on this machine, and the Hugging Face hub cannot be reached: {exc}"
        raise SettingError("model", model, fix) from exc
