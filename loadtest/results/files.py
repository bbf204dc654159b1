"""Where reports go, and whether they can, which is known before a measurement that takes long."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.errors import BenchError, BenchInputError


def check_writable(path: Path) -> None:
    """Raises `BenchInputError`: nothing has been done yet, and another file may do. Leaves nothing behind."""
    try:
        if path.exists():
            path.open("r+b").close()
        else:
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as exc:
        raise BenchInputError(_complaint(path, exc)) from exc


def check_all_writable(*paths: Path | None) -> None:
    """Of several outputs, None where there is none. Raises `BenchInputError`, too, if two of them are the same file."""
    given = [path for path in paths if path is not None]
    for number, path in enumerate(given):
        if path.resolve() in [other.resolve() for other in given[:number]]:
            raise BenchInputError(f"{path} is asked for twice; name another file")
        check_writable(path)


def write_report(path: Path, text: str) -> None:
    """Raises `BenchError`: a disk may be full by now."""
    with writing(path):
        path.write_text(text, encoding="utf-8")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises `BenchError` for what goes wrong inside."""
    try:
        yield
    except OSError as exc:
        raise BenchError(_complaint(path, exc)) from exc


def _complaint(path: Path, error: OSError) -> str:
    return f"cannot write to {path}: {error.strerror}; name another file"
