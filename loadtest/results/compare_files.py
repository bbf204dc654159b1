"""Two files of `headway bench --json` compared, whichever kind they are of, if they are of one kind."""

from __future__ import annotations

from pathlib import Path

from loadtest.errors import BenchInputError
from loadtest.results.changes import Comparison, compare_documents
from loadtest.results.documents import Document, read_any_document
from loadtest.results.queue_changes import compare_queue_documents
from loadtest.results.queue_documents import QueueDocument


def compare_files(before: Path, after: Path) -> Comparison:
    """Raises `BenchInputError` for what cannot be read, and for two kinds."""
    match read_any_document(before), read_any_document(after):
        case Document() as old, Document() as new:
            return compare_documents(old, new)
        case QueueDocument() as old, QueueDocument() as new:
            return compare_queue_documents(old, new)
        case Document(), _:
            of_queue, other = after, before
        case _:
            of_queue, other = before, after
    raise BenchInputError(
        f"{of_queue} is of `headway bench --target queue` and {other} is not; compare two of one kind"
    )
