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

**Steps in flight.** A step may be planned while the one before it runs: `schedule` takes it that the plan will run, and
counts its tokens as computed and what it samples as pending. Nothing is planned beyond a sequence's last token where
that follows from its length. An end that follows from the token itself (EOS, a stop), a cancel or a failure comes too
late for the step after: its row of that sequence is wasted, and nobody hears of the token. So with two steps in flight
a sequence wastes one row at the most, once.

*Pages are free at once all the same*, although a step in flight may still write to them: the device runs steps in their
order, so whoever gets a page writes and reads it after that. To hold them back would only make others be preempted for
want of pages that are nobody's. What a page holds is published once the step that filled it has ended, and only if the
sequence still holds it. A preempted sequence keeps a token that was on its way, and does not join again before it has
come.
"""

from __future__ import annotations

from headway.core.batch import SampledToken, ScheduledChunk, StepOutcome, StepPlan, StepResult
from headway.core.draft import StepDraft
from headway.core.job import FinishReason
from headway.core.pacing import Pacing
from headway.core.page_tables import PageTables
from headway.core.pages import PagePool
from headway.core.running import Batch
from headway.core.scheduler_config import Batching, PrefixSharing, SchedulerConfig
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.static_batch import StaticBatch
from headway.core.stats import SchedulerStats
from headway.core.steps_in_flight import StepsInFlight
from headway.core.stopping import check_fits, finish_reason, has_last_token
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
        self._in_flight = StepsInFlight()
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
        """The next step, which will run after those in flight; steps with something to compute are numbered from 1."""
        preempted = self._grow()
        draft = StepDraft(self._config, self._pool.page_size)
        growing = [sequence for sequence in self._batch.running if not has_last_token(sequence, self._max_model_len)]
        for sequence in growing:
            if sequence.num_uncomputed_tokens == 1:
                draft.take(sequence)
        if self._pacing is not None:
            draft.open(self._pacing.allow(draft.chunks, self._in_flight.begin_at(now)), self._count_prompts())
        for sequence in growing:
            if sequence.num_uncomputed_tokens > 1:
                draft.take(sequence)
        self._batch.begin_admission()
        while self._admit_next(draft, now):
            draft.take(self._batch.running[-1])
        return self._close(draft, preempted, now)

    def update(self, plan: StepPlan, result: StepResult, now: float) -> StepOutcome:
        """Append what the oldest step in flight has sampled; end, and free the pages of, every sequence that is done
        with its token."""
        if plan.chunks:
            self._in_flight.remove(plan, now)
        if self._pacing is not None and result.seconds is not None:
            self._pacing.observe(plan, result.seconds)
        appended: list[Sequence] = []
        finished: list[Sequence] = []
        for chunk in plan.chunks:
            sequence = chunk.sequence
            sampled = self._settle(chunk, result)
            if sampled is None:
                continue
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

        What failed may have left anything in its pages (a NaN, say): nobody finds them afterwards, even if it was
        preempted meanwhile.
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
        self._in_flight.check_integrity((*self._batch.running, *self._waiting))

    def _grow(self) -> list[Sequence]:
        """Give every running sequence the page that its next token needs, the first to join first; preempt while
        there is none. Returns the preempted."""
        preempted: list[Sequence] = []
        for sequence in self.running:
            if has_last_token(sequence, self._max_model_len):
                continue
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

    def _admit_next(self, draft: StepDraft, now: float) -> bool:
        """Let the head of the line join if there is a slot, a token and pages for it. Nobody passes it by."""
        sequence = self._waiting.head
        if sequence is None or (self._batch.waits_for_tokens and draft.is_full):
            return False
        if sequence.num_steps_in_flight:
            return False  # it was preempted while they ran: their results are of pages that it held then
        if not self._batch.join(sequence):
            return False
        self._waiting.remove(sequence)
        sequence.status = SequenceStatus.RUNNING
        if sequence.first_scheduled_at is None:
            sequence.first_scheduled_at = now
            sequence.num_cached_tokens = min(sequence.num_computed_tokens, sequence.num_prompt_tokens)
        return True

    def _close(self, draft: StepDraft, preempted: list[Sequence], now: float) -> StepPlan:
        predicted = None if self._pacing is None else self._pacing.predict(draft.chunks)
        number = self._step_number + bool(draft.chunks)
        plan = StepPlan(number, tuple(draft.chunks), tuple(preempted), draft.prefill_budget, predicted)
        if plan.chunks:
            self._step_number = number
            self._num_busy_slots += len(plan.chunks)
            self._num_slots += self._batch.num_slots
            self._num_recomputed_tokens += sum(map(_num_recomputed, plan.chunks))
            self._in_flight.add(plan, now)
        return plan

    def _count_prompts(self) -> int:
        """Sequences that could take a part of the step's room for prompts."""
        num_partial = sum(sequence.num_uncomputed_tokens > 1 for sequence in self._batch.running)
        num_free_slots = self._batch.num_slots - len(self._batch.running)
        return num_partial + min(len(self._waiting), num_free_slots)

    def _settle(self, chunk: ScheduledChunk, result: StepResult) -> SampledToken | None:
        """The chunk's keys and values exist, and its pending token has come; None if there is none."""
        sequence = chunk.sequence
        if sequence.status is SequenceStatus.FINISHED:
            return None  # while the step was in flight: a wasted row
        if sequence.status is SequenceStatus.RUNNING:
            self._tables.publish(sequence, chunk.start, chunk.end)
        if not chunk.is_sampled:
            return None
        sampled = result.sampled.get(sequence.number)
        if sampled is None:
            assert sequence.status is SequenceStatus.WAITING, f"sequence {sequence.number} got no token"
            self._waiting.lose_pending(sequence)
            return None
        sequence.num_pending_tokens -= 1
        sequence.token_ids.append(sampled.token_id)
        return sampled

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


def _num_recomputed(chunk: ScheduledChunk) -> int:
    """How many of its tokens had been computed before a preemption."""
    return max(0, min(chunk.end, chunk.sequence.num_discarded_tokens) - chunk.start)
