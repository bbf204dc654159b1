"""What the next step computes, and what its result changes.

There is no prefill phase and no decode phase (vLLM v1): each step gives sequences their next uncomputed tokens, up to
``max_num_batched_tokens``. A sequence that decodes lacks one token; a prompt, a restored output and the tokens of a
preempted sequence are many, and come in chunks.

    waiting ──join──▶ running ──ends or is withdrawn──▶ finished
       ▲                 │
       └───preempted─────┘      gives its pages up, goes to the head, is recomputed

Decodes come first: as ``max_num_seqs`` ≤ ``max_num_batched_tokens``, each gets its token in every step, whatever
prompts arrive. With a ``tpot_target`` prompts get no more of a step than keeps it short enough (`pacing`). Who may join
is the business of `running` (slots, pages, watermarks); which pages, of `page_tables`.

Every sequence ends. The oldest is preempted at most ``max_preemptions`` times: after that only a newer one can be the
victim or, when it runs alone, nobody, because `add` has made sure that it fits. A preempted sequence waits ahead of
all that have not run yet, nobody passes by the head of the line, and an empty batch takes it whatever the watermarks
say.
"""

from __future__ import annotations

from headway.core.batch import ScheduledChunk, StepOutcome, StepPlan, StepResult
from headway.core.job import FinishReason
from headway.core.pacing import Pacing, PrefillRoom
from headway.core.page_tables import PageTables
from headway.core.pages import PagePool
from headway.core.running import Batch
from headway.core.scheduler_config import Batching, PrefixSharing, SchedulerConfig
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.static_batch import StaticBatch
from headway.core.stats import SchedulerStats
from headway.core.stopping import check_fits, finish_reason
from headway.core.waiting import WaitingLine

__all__ = ["Batching", "PrefixSharing", "Scheduler", "SchedulerConfig"]


class Scheduler:
    """Decides; never runs the model. Changes sequences and pages, and is the only one that does.

    ``now`` is in seconds on the clock of the sequences' ``arrived_at``.
    """

    def __init__(self, config: SchedulerConfig, pool: PagePool, max_model_len: int) -> None:
        self._config = config
        self._pool = pool
        self._max_model_len = max_model_len
        self._tables = PageTables(pool, config.prefix_sharing)
        self._batch = (
            StaticBatch(config, pool, self._tables, max_model_len)
            if config.batching is Batching.STATIC
            else Batch(config, pool, self._tables)
        )
        self._waiting = WaitingLine(self._batch.num_pages_to_join)
        target = config.tpot_target
        self._pacing = None if target is None else Pacing(target, least_tokens=pool.page_size)
        self._step_number = 0
        self._num_preemptions = 0
        self._num_recomputed_tokens = 0
        self._num_busy_slots = 0
        self._num_slots = 0

    @property
    def has_work(self) -> bool:
        return bool(self._batch.running or self._waiting)

    @property
    def running(self) -> tuple[Sequence, ...]:
        """In order of joining."""
        return tuple(self._batch.running)

    @property
    def waiting(self) -> tuple[Sequence, ...]:
        """In the order in which they will join."""
        return tuple(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Let the sequence wait for its turn.

        Raises `JobRejected` (``too_long``) if it could never run to its end. A resumed sequence whose restored output
        is complete already has ended when this returns, and is not run.
        """
        check_fits(sequence, self._pool, self._max_model_len)
        sequence.num_restored_tokens = sequence.num_output_tokens
        reason = finish_reason(sequence, self._max_model_len)
        if reason is None:
            self._waiting.append(sequence)
        else:
            _finish(sequence, reason, sequence.arrived_at)

    def schedule(self, now: float) -> StepPlan:
        """The next step; steps with something to compute are numbered from 1. Its `update` comes before the next."""
        preempted = self._grow()
        draft = _Draft(self._config, self._pool.page_size)
        running = self._batch.running
        for sequence in running:
            if sequence.num_uncomputed_tokens == 1:
                draft.take(sequence)
        if self._pacing is not None:
            draft.open(self._pacing.allow(draft.chunks, now), self._count_prompts())
        for sequence in running:
            if sequence.num_uncomputed_tokens > 1:
                draft.take(sequence)
        self._batch.begin_admission()
        while self._admit_next(draft, now):
            draft.take(running[-1])
        return self._close(draft, preempted)

    def update(self, plan: StepPlan, result: StepResult, now: float) -> StepOutcome:
        """Append the sampled tokens; end, and free the pages of, every sequence that is done with its own."""
        if self._pacing is not None and result.seconds is not None:
            self._pacing.observe(plan, result.seconds)
        appended: list[Sequence] = []
        finished: list[Sequence] = []
        for chunk in plan.chunks:
            sequence = chunk.sequence
            if sequence.status is not SequenceStatus.RUNNING:
                continue  # it was ended or withdrawn while the step ran
            is_sampled = chunk.is_sampled
            self._mark_computed(chunk)
            if not is_sampled:
                continue
            sampled = result.sampled[sequence.number]
            sequence.token_ids.append(sampled.token_id)
            if sequence.first_token_at is None:
                sequence.first_token_at = now
            appended.append(sequence)
            reason = finish_reason(sequence, self._max_model_len, sampled.completes_stop)
            if reason is not None:
                self.end(sequence, reason, now)
                finished.append(sequence)
        return StepOutcome(tuple(appended), tuple(finished))

    def end(self, sequence: Sequence, reason: FinishReason, now: float) -> bool:
        """End the sequence wherever it is. False, and nothing changed, if it had ended before.

        What failed may have left anything in its pages (a NaN, say): nobody finds them afterwards.
        """
        if reason is FinishReason.ERROR:
            self._tables.forget(sequence)
        if not self._leave(sequence):
            return False
        _finish(sequence, reason, now)
        return True

    def withdraw(self, sequence: Sequence) -> bool:
        """Drop the sequence wherever it is, to be run elsewhere: it has finished with no reason. False if it had
        ended before."""
        return self._leave(sequence)

    def stats(self) -> SchedulerStats:
        """O(1)."""
        return SchedulerStats(
            num_running=len(self._batch.running),
            num_waiting=len(self._waiting),
            waiting_pages=self._waiting.num_pages,
            admissible_pages=self._batch.num_promised_pages,
            pages=self._pool.stats(),
            num_preemptions_total=self._num_preemptions,
            num_recomputed_tokens_total=self._num_recomputed_tokens,
            num_busy_slots_total=self._num_busy_slots,
            num_slots_total=self._num_slots,
        )

    def check_integrity(self) -> None:
        """Assert that pages and sequences agree. O(pages): for tests and idle moments."""
        self._pool.check_integrity(sequence.page_table for sequence in self._batch.holders)
        assert all(sequence.status is SequenceStatus.RUNNING for sequence in self._batch.running)
        assert all(sequence.status is SequenceStatus.WAITING for sequence in self._waiting)
        assert not any(sequence.page_table for sequence in self._waiting)
        assert self._waiting.num_pages == sum(map(self._batch.num_pages_to_join, self._waiting))

    def _grow(self) -> list[Sequence]:
        """Give every running sequence the page that its next token needs, the first to join first; preempt while
        there is none. Returns the preempted."""
        preempted: list[Sequence] = []
        for sequence in self.running:
            while sequence.status is SequenceStatus.RUNNING and self._tables.lacks_page(sequence):
                if not self._tables.extend(sequence):
                    preempted.append(self._preempt_one())
        return preempted

    def _preempt_one(self) -> Sequence:
        """Preempt the newest, which has the least work to lose; but sooner one that was not preempted too often.

        Its full pages stay cached as long as nobody needs them, so it may find them again.
        """
        most = self._config.max_preemptions
        victim = max(self._batch.running, key=lambda sequence: (sequence.num_preemptions < most, sequence.number))
        self._batch.leave(victim)
        victim.status = SequenceStatus.WAITING
        victim.num_preemptions += 1
        victim.num_discarded_tokens = max(victim.num_discarded_tokens, victim.num_computed_tokens)
        victim.num_computed_tokens = 0
        self._waiting.put_first(victim)
        self._num_preemptions += 1
        return victim

    def _admit_next(self, draft: _Draft, now: float) -> bool:
        """Let the head of the line join if there is a slot, a token and pages for it. Nobody passes it by."""
        sequence = self._waiting.head
        if sequence is None or (self._batch.waits_for_tokens and draft.is_full):
            return False
        if not self._batch.join(sequence):
            return False
        self._waiting.remove(sequence)
        sequence.status = SequenceStatus.RUNNING
        if sequence.first_scheduled_at is None:
            sequence.first_scheduled_at = now
            sequence.num_cached_tokens = min(sequence.num_computed_tokens, sequence.num_prompt_tokens)
        return True

    def _close(self, draft: _Draft, preempted: list[Sequence]) -> StepPlan:
        if draft.chunks:
            self._step_number += 1
            self._num_busy_slots += len(draft.chunks)
            self._num_slots += self._batch.num_slots
        predicted = None if self._pacing is None else self._pacing.predict(draft.chunks)
        return StepPlan(self._step_number, tuple(draft.chunks), tuple(preempted), draft.prefill_budget, predicted)

    def _count_prompts(self) -> int:
        """Sequences that could take a part of the step's room for prompts."""
        num_partial = sum(sequence.num_uncomputed_tokens > 1 for sequence in self._batch.running)
        num_free_slots = self._batch.num_slots - len(self._batch.running)
        return num_partial + min(len(self._waiting), num_free_slots)

    def _mark_computed(self, chunk: ScheduledChunk) -> None:
        """The chunk's keys and values exist now."""
        sequence = chunk.sequence
        if chunk.start < sequence.num_discarded_tokens:
            self._num_recomputed_tokens += min(chunk.end, sequence.num_discarded_tokens) - chunk.start
        sequence.num_computed_tokens = chunk.end
        self._tables.publish(sequence, chunk.start, chunk.end)

    def _leave(self, sequence: Sequence) -> bool:
        """The one way out, whatever the sequence is doing. False if it is out."""
        if sequence.status is SequenceStatus.FINISHED:
            return False
        if sequence.status is SequenceStatus.RUNNING:
            self._batch.leave(sequence)
        else:
            self._waiting.remove(sequence)
        sequence.status = SequenceStatus.FINISHED
        return True


def _finish(sequence: Sequence, reason: FinishReason, now: float) -> None:
    sequence.status = SequenceStatus.FINISHED
    sequence.finish_reason = reason
    sequence.finished_at = now


class _Draft:
    """A step in the making: its chunks, and how many tokens it still takes."""

    def __init__(self, config: SchedulerConfig, page_size: int) -> None:
        self.chunks: list[ScheduledChunk] = []
        self.num_tokens_left = config.num_step_tokens
        self.prefill_budget: int | None = None
        """Tokens of a new prompt that there was room for; None: only their number counted."""
        self._max_chunk = config.num_chunk_tokens
        self._max_prompts = config.num_step_tokens // config.num_chunk_tokens
        self._page_size = page_size
        self._room: PrefillRoom | None = None

    def open(self, room: PrefillRoom | None, num_prompts: int) -> None:
        """From now on prompts are taken: only what there is room for, and of each a share, as a long one must not keep
        short ones behind it waiting; one that is alone gets all. ``room`` None: the fixed budgets do both."""
        if room is None:
            return
        self._room = room
        self.prefill_budget = int(min(self.num_tokens_left, room.num_tokens))
        share = -(-self.prefill_budget // max(1, min(num_prompts, self._max_prompts)))
        self._max_chunk = min(self._max_chunk, max(self._page_size, share))

    @property
    def is_full(self) -> bool:
        return not self.num_tokens_left or (self._room is not None and self._room.is_full)

    def take(self, sequence: Sequence) -> None:
        """Add as much of what the sequence lacks as there is room for."""
        start = sequence.num_computed_tokens
        num_tokens = min(sequence.num_uncomputed_tokens, self._max_chunk, self.num_tokens_left)
        if num_tokens and self._room is not None:
            num_tokens = self._room.take(start, num_tokens)
        if num_tokens:
            self.chunks.append(ScheduledChunk(sequence, start, num_tokens))
            self.num_tokens_left -= num_tokens
