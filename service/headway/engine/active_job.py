"""A job while it is in the engine: its sequence, its text, and what its client has had of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.batch import SampledToken
from headway.core.job import FinishReason, JobKey
from headway.core.records import ErrorInfo, Usage
from headway.core.sequence import Sequence
from headway.engine.detokenizer import Detokenizer, Piece
from headway.engine.messages import SequenceOutput
from headway.engine.sampling import ending_token_ids


@dataclass(slots=True)
class ActiveJob:
    sequence: Sequence
    detokenizer: Detokenizer
    stream: bool
    """False: its tokens are kept until its end."""
    expires_at: float | None
    last_token_at: float | None = None
    is_introduced: bool = False
    """Whether its first output was given."""
    ending_token_ids: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.ending_token_ids = ending_token_ids(self.sequence)

    @property
    def key(self) -> JobKey:
        return self.sequence.key

    @property
    def usage(self) -> Usage:
        sequence = self.sequence
        return Usage(sequence.num_prompt_tokens, sequence.num_cached_tokens, sequence.num_output_tokens)

    def restore(self, text: str) -> None:
        """Take over the output that the sequence starts with, delivered with this text."""
        token_ids = tuple(self.sequence.output_token_ids)
        is_stopped = bool(token_ids) and token_ids[-1] in self.ending_token_ids
        self.detokenizer.restore(token_ids, text, is_stopped)

    def read(self, token: SampledToken) -> bool:
        """Read the next token's text; returns whether that completes a stop string."""
        self.detokenizer.push(token.token_id, token.logprobs, is_stop=token.token_id in self.ending_token_ids)
        return self.detokenizer.found_stop

    def progress(self) -> SequenceOutput | None:
        """What can be shown now; None if nothing new. The first output comes with the first token, text or not."""
        piece = self.detokenizer.take() if self.stream else Piece()
        if self.is_introduced and not piece.token_ids:
            return None
        usage = None if self.is_introduced else self.usage
        self.is_introduced = True
        return SequenceOutput(self.key, piece.token_ids, piece.text, piece.logprobs, usage=usage)

    def end(self, reason: FinishReason | None, is_delivered: bool, error: ErrorInfo | None = None) -> SequenceOutput:
        """The last output, with all text that is left if ``is_delivered``. No reason: the job is handed back."""
        piece = self.detokenizer.finish() if is_delivered else Piece()
        return SequenceOutput(
            self.key,
            piece.token_ids,
            piece.text,
            piece.logprobs,
            finish_reason=reason,
            error=error,
            withdrawn=reason is None,
            usage=self.usage,
            first_scheduled_at=self.sequence.first_scheduled_at,
            first_token_at=self.sequence.first_token_at,
            last_token_at=self.last_token_at,
        )
