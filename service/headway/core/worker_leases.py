"""The worker's side of the lease stream: which grants it holds, and what it could take.

Everything that says something to the leader about a job is made here, under the grant that is held now; a job that is
not held (any more) makes no message, so every exit path may report and only the first counts. Pure, as all of `core`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from headway.core.job import FinishReason, JobKey
from headway.core.lease_messages import (
    Demand,
    Ended,
    Grant,
    HeldJob,
    Hello,
    JobProgress,
    Progress,
    Refused,
    Returned,
    Welcome,
    WorkerLoad,
)
from headway.core.records import GrantToken
from headway.core.stats import SchedulerStats

BYTES_PER_TOKEN = 4
"""For the pages of a job that the engine has not counted yet: a rough guess for text, and generous for token ids."""
NUM_DEMAND_BITS = 7
"""Binary digits of a number of pages that is told to the leader: within 1.6 %, and exact below 128."""


class GrantVerdict(Enum):
    """What to do with a grant."""

    START = auto()
    """It is held now: read the log, write the attempt, run it."""
    RENEWED = auto()
    """The job runs here already (the leader had taken it for lost): it goes on, under its new grant."""
    STALE = auto()
    """A former leader's, or a repeat: nothing to do and nothing to say."""
    STOPPING = auto()
    """This worker drains: answer with `Returned`."""


@dataclass(slots=True)
class HeldGrant:
    """One job that this worker answers for."""

    key: JobKey
    token: GrantToken
    num_pages: int
    """Pages that it needs to start, estimated from its payload."""
    alone: bool
    in_engine: bool = False
    started: bool = False
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker says of itself when it connects."""

    incarnation: str
    name: str
    model: str
    page_size: int
    num_pages: int
    max_num_seqs: int


class WorkerLeases:
    """The grants that one worker process holds, over all its streams."""

    def __init__(self, facts: WorkerFacts, prefetch: int) -> None:
        """``prefetch``: jobs held beyond ``max_num_seqs``, to hide the round trip of a grant."""
        self._facts = facts
        self._prefetch = prefetch
        self._held: dict[JobKey, HeldGrant] = {}
        self._newest = GrantToken(0, 0)
        self._last_grant_of_stream = 0
        self._is_stopping = False

    # -- from the leader -----------------------------------------------------------------------------------------

    def welcome(self, welcome: Welcome) -> bool:
        """Whether to go on with this leader; False: it is a former one, so close the stream and connect again."""
        if welcome.epoch < self._newest.epoch:
            return False
        self._newest = max(self._newest, GrantToken(welcome.epoch, 0))
        return True

    def accept(self, grant: Grant) -> GrantVerdict:
        """Grant numbers only rise within an epoch, so whatever is not newer than the newest is stale."""
        if grant.token <= self._newest:
            return GrantVerdict.STALE
        self._newest = grant.token
        self._last_grant_of_stream = grant.token.number
        held = self._held.get(grant.key)
        if held is not None:
            held.token = grant.token
            return GrantVerdict.RENEWED
        num_pages = self._pages(len(grant.payload) // BYTES_PER_TOKEN + 1)
        self._held[grant.key] = HeldGrant(grant.key, grant.token, num_pages, grant.alone)
        return GrantVerdict.STOPPING if self._is_stopping else GrantVerdict.START

    def holds(self, key: JobKey, token: GrantToken) -> bool:
        """Whether a `Recall` or `CancelJob` is about the grant that is held now; else ignore it."""
        held = self._held.get(key)
        return held is not None and held.token == token

    # -- from the engine -----------------------------------------------------------------------------------------

    def submitted(self, key: JobKey) -> None:
        """The engine has the job, so its stats count it."""
        if key in self._held:
            self._held[key].in_engine = True

    def report(self, key: JobKey, num_prompt_tokens: int, num_cached_tokens: int, num_output_tokens: int) -> None:
        """The job has started; cumulative counts."""
        held = self._held.get(key)
        if held is not None:
            held.started = True
            held.num_prompt_tokens = num_prompt_tokens
            held.num_cached_tokens = num_cached_tokens
            held.num_output_tokens = num_output_tokens

    def engine_restarted(self, facts: WorkerFacts) -> None:
        """The new engine may have other pages; connect again, so that the next hello says so."""
        self._facts = facts

    def stop(self) -> None:
        """Take nothing more (drain). Send the demand that follows from it before anything is handed back."""
        self._is_stopping = True

    # -- the ways out: each gives up the job, and returns what to send; None if it is not held --------------------

    def ended(self, key: JobKey, finish_reason: FinishReason, num_output_tokens: int = 0) -> Ended | None:
        """The job's ``end`` is stored."""
        held = self._held.pop(key, None)
        return None if held is None else Ended(key, held.token, finish_reason, num_output_tokens)

    def returned(self, key: JobKey, reason: str, num_lost_attempts: int = 0) -> Returned | None:
        """The job goes back: drained, recalled, or not to be run now; or its engine died under it."""
        held = self._held.pop(key, None)
        return None if held is None else Returned(key, held.token, reason, num_lost_attempts)

    def refused(self, key: JobKey, conflict: bool, newest_epoch: int = 0) -> Refused | None:
        """The job's log belongs to a newer grant (of that epoch, if it is known), or to another job."""
        held = self._held.pop(key, None)
        return None if held is None else Refused(key, held.token, conflict, newest_epoch)

    # -- to the leader -------------------------------------------------------------------------------------------

    def hello(self) -> Hello:
        """The first message of a new stream: build it when that stream opens."""
        self._last_grant_of_stream = 0
        facts = self._facts
        return Hello(
            incarnation=facts.incarnation,
            name=facts.name,
            model=facts.model,
            page_size=facts.page_size,
            num_pages=facts.num_pages,
            max_num_seqs=facts.max_num_seqs,
            held=tuple(HeldJob(held.key, held.token, held.started) for held in self._held.values()),
            newest_epoch=self._newest.epoch,
        )

    def progress(self, load: WorkerLoad) -> Progress:
        jobs = tuple(
            JobProgress(
                key=held.key,
                grant=held.token,
                started=held.started,
                num_prompt_tokens=held.num_prompt_tokens,
                num_cached_tokens=held.num_cached_tokens,
                num_output_tokens=held.num_output_tokens,
            )
            for held in self._held.values()
        )
        return Progress(jobs, load)

    def demand(self, stats: SchedulerStats | None) -> Demand:
        """What it could take beside all that it holds: running + granted ≤ max_num_seqs + prefetch.

        ``stats`` None: there is no engine now, so nothing.

        The stats are those of the last step, so they may count a job that is over, or not yet one that was submitted;
        the larger of the two counts holds. An idle worker offers every page, whatever admission holds back. Others
        round their pages down, since running sequences take some at nearly every step, and each change is a message.
        """
        if stats is None:
            return Demand(0, 0, self._last_grant_of_stream)
        waits = [held for held in self._held.values() if not held.in_engine]
        num_held = max(len(self._held), stats.num_running + stats.num_waiting + len(waits))
        num_sequences = max(0, self._facts.max_num_seqs + self._prefetch - num_held)
        num_pages = _rounded(stats.admissible_pages - stats.waiting_pages - sum(held.num_pages for held in waits))
        if num_held == 0:
            num_pages = self._facts.num_pages
        if self._is_stopping or any(held.alone for held in self._held.values()):
            num_sequences, num_pages = 0, 0
        return Demand(num_sequences, num_pages, self._last_grant_of_stream)

    @property
    def held_keys(self) -> tuple[JobKey, ...]:
        return tuple(self._held)

    def find(self, key: JobKey) -> HeldGrant | None:
        return self._held.get(key)

    def _pages(self, num_prompt_tokens: int) -> int:
        return -(-(num_prompt_tokens + 1) // self._facts.page_size)


def _rounded(num_pages: int) -> int:
    """Down to `NUM_DEMAND_BITS`; a negative number to 0."""
    num_lost_bits = max(0, num_pages.bit_length() - NUM_DEMAND_BITS)
    return max(0, num_pages >> num_lost_bits << num_lost_bits)
