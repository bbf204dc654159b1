"""What a server takes of OpenAI's protocol and of the usual extensions to it, found out by asking.

To do the same work as others, a server must take prompts as token ids, and go on after its end-of-sequence token until
a request has its exact length. vLLM, SGLang and llama.cpp do both. What another does not take is left out of its
requests, and said in the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from loadtest.workloads.requests import Request

WORDS = (
    *("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state"),
    *("family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system"),
    *("program", "question", "work", "number", "night", "point", "home", "water", "room", "mother", "area", "money"),
    *("story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business", "issue", "side"),
)
"""Each about one token, in most vocabularies."""


@dataclass(frozen=True, slots=True)
class Dialect:
    takes_token_ids: bool
    keeps_lengths: bool
    """Takes ``ignore_eos`` and ``min_tokens``."""
    counts_tokens: bool
    """Tells with every piece how many tokens there are by now; else a piece counts as one token until the end tells."""

    def body(self, model: str, request: Request) -> dict[str, Any]:
        """Of a streamed completion, greedy."""
        prompt = request.prompt_token_ids
        body: dict[str, Any] = {
            "model": model,
            "prompt": list(prompt) if self.takes_token_ids else as_text(prompt),
            "max_tokens": request.num_output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.keeps_lengths:
            body |= {"ignore_eos": True, "min_tokens": request.num_output_tokens}
        if self.counts_tokens:
            body["stream_options"] |= {"continuous_usage_stats": True}
        return body

    @property
    def facts(self) -> Mapping[str, str]:
        """For the report."""
        return {
            "prompts": "token ids" if self.takes_token_ids else "text of about as many tokens",
            "lengths": "exact" if self.keeps_lengths else "at most: the server takes no ignore_eos, so some end early",
        }


DIALECTS = tuple(Dialect(*takes) for takes in product((True, False), repeat=3))
"""From the one that says most to the one that says least."""


def as_text(prompt: Sequence[int]) -> str:
    return " ".join(WORDS[token % len(WORDS)] for token in prompt)
