"""Whether a report can be written, known before a measurement that takes long."""

from __future__ import annotations

import tempfile
from pathlib import Path

from loadtest.errors import BenchError


def check_writable(path: Path) -> None:
    """Raises `BenchError`; leaves nothing behind."""
    try:
        if path.exists():
            path.open("r+b").close()
        else:
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as exc:
        raise BenchError(f"the report cannot be written to {path}: {exc.strerror}") from exc
