"""What the commands that compare a model with another form of itself are asked, and how they answer.

Without torch: `loadtest.quantization` sets threads before torch is loaded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from headway.engine.config import DType, EngineConfig

DEFAULT_TEXT = Path(__file__).parents[1] / "docs" / "guarantees.md"


def options_parser(description: str | None, of_what: str) -> argparse.ArgumentParser:
    """``of_what`` the type is."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=EngineConfig().model, help="as for headway worker")
    parser.add_argument("--dtype", type=DType, default=DType.AUTO, help=of_what)
    parser.add_argument("--text", type=Path, nargs="+", default=[DEFAULT_TEXT], help="files in plain text")
    parser.add_argument("--threads", type=int, default=None, help="default: torch's own choice")
    parser.add_argument("--cache-folder", default=None)
    parser.add_argument("--json", type=Path, default=None, help="where to write the report")
    return parser


def engine_config(options: argparse.Namespace) -> EngineConfig:
    """Raises ``SettingError``."""
    return EngineConfig(
        model=options.model, dtype=options.dtype, num_threads=options.threads, cache_folder=options.cache_folder
    )


def say(stage: str) -> None:
    print(stage, file=sys.stderr, flush=True)
