from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.engine.stop_strings import StopStrings

texts = st.text(alphabet="ab<", max_size=12)
stops = st.lists(st.text(alphabet="ab<", min_size=1, max_size=4), max_size=4).map(tuple)


@given(texts, stops)
def test_the_safe_part_ends_where_a_stop_string_could_begin(text: str, stops: tuple[str, ...]) -> None:
    could_begin = [i for i in range(len(text)) if any(s.startswith(text[i:]) and s != text[i:] for s in stops)]
    assert StopStrings(stops).safe_length(text) <= min(could_begin, default=len(text))
    complete = [len(text) - len(s) for s in stops if text.endswith(s)]
    assert StopStrings(stops).safe_length(text) >= min(could_begin + complete, default=len(text))


@given(texts, texts, stops)
def test_the_match_that_ends_first_is_found(before: str, new: str, stops: tuple[str, ...]) -> None:
    text = before + new
    ends = [
        (end, end - len(stop))
        for end in range(len(before) + 1, len(text) + 1)
        for stop in stops
        if text[:end].endswith(stop)
    ]
    assert StopStrings(stops).find(text, len(before)) == (min(ends)[1] if ends else None)


def test_without_stop_strings_all_text_is_safe() -> None:
    assert StopStrings(()).safe_length("any text") == 8
    assert StopStrings(()).find("any text", 0) is None
