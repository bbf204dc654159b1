"""Looks for a model on the Hugging Face hub before transformers does, to say what a start waits for or fails on.

transformers alone would try again for half a minute if the hub cannot be reached, and then not say that this was why.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from headway.core.errors import EngineError, SettingError
from headway.engine.builtin_models import did_you_mean

CONFIG_FILE = "config.json"
"""Every model that transformers loads has one."""
MAY_HEAL = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
FIRST_SERVER_ERROR = 500


def announce_download(model: str, cache_folder: str | None, progress: Callable[[str], None]) -> None:
    """Nothing for a model that is in the cache.

    Raises ``EngineError`` if the hub cannot be reached for another (it may be soon), ``SettingError`` for no id at all.
    """
    try:
        if isinstance(try_to_load_from_cache(model, CONFIG_FILE, cache_dir=cache_folder), str):
            return
        progress(f"downloading {model} from the Hugging Face hub")
        get_hf_file_metadata(hf_hub_url(model, CONFIG_FILE))
    except HfHubHTTPError as exc:
        if exc.response.status_code in MAY_HEAL or exc.response.status_code >= FIRST_SERVER_ERROR:
            raise _unreachable(model, exc) from exc
        return  # An answer: transformers gets the same, and explains it (no such model, no permission) better.
    except HFValidationError as exc:
        raise SettingError("model", model, f"is no folder, and no id of the Hugging Face hub: {exc}") from exc
    except Exception as exc:  # Whatever the hub's client of HTTP has for a network that does not work.
        raise _unreachable(model, exc) from exc


def _unreachable(model: str, error: Exception) -> EngineError:
    return EngineError(
        f"model = {model!r}: is not on this machine, and the Hugging Face hub cannot be reached: {error}"
        f"{did_you_mean(model)}"
    )
