"""The jobs' logs as the broker keeps them: a record is stored only if it follows the record that its writer knows.

Of a log only what decides about later records is kept, so that runs which differ in their past alone meet again: "the
writer knows the newest record" is "the newest attempt is the writer's, and nothing has ended the log".

A write is one step here, though it takes a reading, a message there and one back. That loses no behaviour: the broker
compares and stores in one step, so whatever a writer read before still holds at that moment or the write is refused,
and it reads again. A record on its way whose writer has died is stored before another's or never, as if it had been
stored before the death. That the acknowledgement comes later than the record is stored is two steps where somebody
could see the difference (`worker.Phase.WRITTEN`).

A leader's ``end`` is two steps, since between them another leader may take over: it has read the log and shown that it
leads; then the end is stored, if nothing was since the reading. Reading and showing are one, at the moment of the
latter: whatever is written between them makes the stream refuse the end, as if it had been read before.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.core.job import FinishReason
from headway.core.records import Attempt, End, GrantToken, Record, Released, Tokens

HASH = "h"


class Violation(Exception):
    """A promise is broken."""


class Log(NamedTuple):
    """What the records say (`broker.joblog`)."""

    num_tokens: int = 0
    num_counted_attempts: int = 0
    """Without those that handed the job back."""
    grant: GrantToken | None = None
    """Of the newest attempt, whose writer alone may write."""
    end: FinishReason | None = None
    is_past_takeover: bool = False
    """A record was stored after the successor had taken over, while the former leader lived."""

    def append(self, record: Record, writer: GrantToken | None) -> Log:
        """With one more record, by a worker under that grant or (None) by a leader. Raises `Violation`."""
        if self.end is not None:
            raise Violation("a record stands behind the end of a log")
        if writer is not None and not isinstance(record, Attempt) and writer != self.grant:
            raise Violation(f"two writers: {tuple(writer)} wrote after {self.grant} had taken over")
        match record:
            case Attempt(grant=grant):
                return self._taken(grant)
            case Tokens(token_start=start):
                if start != self.num_tokens:
                    raise Violation(f"token {start} was written when {self.num_tokens} tokens stood there")
                return self._replace(num_tokens=start + 1)
            case Released():
                return self._replace(num_counted_attempts=self.num_counted_attempts - 1)
            case End(finish_reason=reason):
                return self._replace(end=reason)

    def _taken(self, grant: GrantToken) -> Log:
        if self.grant is not None and grant <= self.grant:
            raise Violation(f"attempt {tuple(grant)} stands behind attempt {tuple(self.grant)}")
        return self._replace(grant=grant, num_counted_attempts=self.num_counted_attempts + 1)


class Rules:
    """What the stream, and the writers that ask it, go by."""

    must_lead_to_end = True
    """A leader shows that it is the newest one, between reading where a log ends and ending it."""
    is_end_fenced = True
    """A leader's end is stored only if it follows the record that the leader had read."""

    def follows(self, log: Log, writer: GrantToken) -> bool:
        """Whether the stream stores what this writer writes behind the newest record that it knows."""
        return log.grant == writer and log.end is None

    def may_take(self, log: Log, token: GrantToken) -> bool:
        """Whether a worker takes the log over under this grant (`broker.log_writer`)."""
        return log.grant is None or log.grant < token
