"""What the three tenants of the demo ask: short and long prompts, short and long answers, all within a small model.

The lengths are mixed on purpose. With equal ones a static batch would be as good as a continuous one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TENANT_WEIGHTS = {"bakery": 1.0, "school": 1.0, "travel": 2.0}
NEWS = (
    "The town council has decided to build a new tram line between the railway station and the hospital. Work will "
    "begin in spring and take about two years. The line will have nine stops, and a tram will come every eight "
    "minutes. The council hopes that fewer people will drive to work and that the air in the old town will get "
    "better. Some shop owners fear the noise of the building site, so there will be a fund that helps them."
)
LETTER = (
    "Dear Sir or Madam, last Saturday I bought two loaves of rye bread and six rolls at your shop. The bread was "
    "very good, but the rolls were hard, and one of them was burnt at the bottom. I have been a customer for ten "
    "years and I have never had a reason to complain before. Kind regards, Martha Field"
)


@dataclass(frozen=True, slots=True)
class DemoJob:
    tenant: str
    id: str
    prompt: str
    max_tokens: int

    def fields(self) -> Mapping[str, Any]:
        """As it is submitted. Greedy, since so small a model has little sense to spare; the penalty keeps it from
        repeating itself."""
        messages = [{"role": "user", "content": self.prompt}]
        sampling = {"temperature": 0.0, "frequency_penalty": 0.4}
        return {"id": self.id, "messages": messages, "max_tokens": self.max_tokens, **sampling}


QUESTIONS: tuple[tuple[str, int, str], ...] = (
    ("bakery", 48, "Write a friendly sentence for a sign that says we close at six o'clock."),
    ("school", 120, "Explain to a child why the sky is blue."),
    ("travel", 16, "What is the capital of France?"),
    ("travel", 96, "What can I see in Rome in one day?"),
    ("bakery", 100, f"Write a short and polite answer to this letter:\n\n{LETTER}"),
    ("school", 12, "What do plants need to grow?"),
    ("travel", 32, "Name three things to pack for a trip to the mountains."),
    ("travel", 140, "Write a short story about a train that was late."),
    ("bakery", 24, "Give me a name for a new chocolate cake."),
    ("school", 64, "What is the difference between a river and a lake?"),
    ("travel", 10, "In which country is Lisbon?"),
    ("travel", 40, "Is it better to visit Norway in summer or in winter?"),
    ("bakery", 80, "How do I bake a simple loaf of white bread?"),
    ("school", 16, "What is the opposite of hot?"),
    ("travel", 72, f"Summarise this in two sentences:\n\n{NEWS}"),
    ("travel", 20, "Ask politely for a seat at the window."),
    ("bakery", 16, "What is the main ingredient of bread?"),
    ("school", 96, "Describe how a seed becomes a plant."),
    ("travel", 56, "Write a postcard from the beach to a friend."),
    ("travel", 12, "Name an animal that lives in the sea."),
    ("bakery", 36, "Suggest two toppings for an apple pie."),
    ("school", 8, "What colour is grass?"),
    ("travel", 88, "How can I sleep well on a night train?"),
    ("travel", 24, "Wish a guest a pleasant journey in one sentence."),
    ("bakery", 64, "Why does dough rise when it is left in a warm place?"),
    ("school", 40, "Who wrote Romeo and Juliet, and what is it about?"),
    ("travel", 30, f"How often will a tram come?\n\n{NEWS}"),
    ("travel", 16, "What is a suitcase for?"),
    ("bakery", 20, "Write a cheerful slogan for fresh rolls."),
    ("school", 48, "Give one good reason to read a book every week."),
)
"""Tenant, max_tokens, prompt; in the order in which they are submitted."""


def demo_jobs(num_jobs: int) -> list[DemoJob]:
    """The first ``num_jobs``, from the beginning again if there are more."""
    jobs = []
    for number in range(num_jobs):
        tenant, max_tokens, prompt = QUESTIONS[number % len(QUESTIONS)]
        jobs.append(DemoJob(tenant, f"job-{number + 1:02}", prompt, max_tokens))
    return jobs
