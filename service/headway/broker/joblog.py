"""What the log of a job says so far: the records of one subject, folded into one state.

Everything that outlives a worker is in the log (docs/wire.md), so whoever is granted the job, or wants to end
it, reads the log first and goes on from here. The fold knows no NATS: `log_store` reads, this module understands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.broker.errors import LogIncomplete
from headway.core.job import JobKey
from headway.core.records import Attempt, End, GrantToken, Record, Released, Tokens, Usage

HASH_HEADER = "Headway-Payload-Hash"
"""On ``end`` records of the leader: such a log may have no ``attempt`` that names the payload."""
WRITE_HEADER = "Headway-Write-Id"
"""Random per record and writer; how a writer recognises its own record after a lost acknowledgement. It is not
``Nats-Msg-Id``: the broker checks the expected sequence first (so that a repeated write is refused, never
acknowledged as a duplicate), and would keep every id of every token record in memory for its duplicate window."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record as it stands in the stream."""

    sequence: int
    """Its stream sequence, ≥ 1."""
    record: Record | None
    """None: of a kind that this version does not know, to be skipped."""
    write_id: str | None = None
    payload_hash: str | None = None
    """From the header, see `HASH_HEADER`."""


@dataclass(slots=True)
class LogState:
    """The fold of a log. Only `add` changes it."""

    key: JobKey
    last_sequence: int = 0
    """Stream sequence of the newest record; 0: the log is empty. What the next record must expect."""
    num_attempts: int = 0
    num_released: int = 0
    next_seq: int = 0
    """``seq`` of the next ``tokens`` record."""
    output_token_ids: list[int] = field(default_factory=list)
    output_text: str = ""
    payload_hash: str | None = None
    """Of the payload that this log belongs to; None while no record names it."""
    grant: GrantToken | None = None
    """The highest grant that has written here."""
    end: End | None = None

    @property
    def num_counted_attempts(self) -> int:
        """Attempts that count towards ``max_attempts``: those that did not hand the job back in order.

        While a worker runs the job, this includes its attempt; before a grant it is the number of lost attempts.
        """
        return self.num_attempts - self.num_released

    @property
    def usage(self) -> Usage:
        """What is known of the usage without the worker, for an ``end`` that the leader writes."""
        return self.end.usage if self.end is not None else Usage(completion_tokens=len(self.output_token_ids))

    def belongs_to(self, payload_hash: str) -> bool:
        """Whether this is, or may become, the log of that payload."""
        return self.payload_hash is None or self.payload_hash == payload_hash

    def add(self, stored: StoredRecord) -> None:
        """Take in the next record, in order of sequence. Raises `LogIncomplete`."""
        self.last_sequence = stored.sequence
        self.payload_hash = self.payload_hash or stored.payload_hash
        match stored.record:
            case Attempt() as attempt:
                self.num_attempts += 1
                self.payload_hash = self.payload_hash or attempt.payload_hash
                self.grant = attempt.grant if self.grant is None else max(self.grant, attempt.grant)
            case Tokens() as tokens:
                self._add_tokens(tokens)
            case Released():
                self.num_released += 1
            case End() as end:
                self.end = end

    def _add_tokens(self, tokens: Tokens) -> None:
        if tokens.token_start != len(self.output_token_ids):
            raise LogIncomplete(self.key)
        self.next_seq = tokens.seq + 1
        self.output_token_ids.extend(tokens.token_ids)
        self.output_text += tokens.text
