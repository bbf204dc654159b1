from __future__ import annotations

from headway.core.job import JobKey, SamplingParams
from headway.core.page_keys import iter_page_keys, next_page_key, root_key
from headway.core.sequence import Sequence


def make_sequence(token_ids: list[int]) -> Sequence:
    return Sequence(1, JobKey("acme", "a"), SamplingParams(), token_ids, len(token_ids), arrived_at=0.0)


def keys(token_ids: list[int], namespace: str = "acme", page_size: int = 4) -> list[bytes]:
    return list(iter_page_keys(make_sequence(token_ids), namespace, page_size, 0, len(token_ids) // page_size))


def test_equal_tokens_behind_equal_prefixes_have_equal_keys():
    assert keys([1, 2, 3, 4, 5, 6, 7, 8, 9])[:2] == keys([1, 2, 3, 4, 5, 6, 7, 8])


def test_a_key_depends_on_every_token_before_its_page():
    one, other = keys([1, 2, 3, 4, 5, 6, 7, 8]), keys([9, 2, 3, 4, 5, 6, 7, 8])
    assert one[0] != other[0]
    assert one[1] != other[1]


def test_a_key_depends_on_the_order_of_tokens():
    assert keys([1, 2, 3, 4]) != keys([2, 1, 3, 4])


def test_namespaces_have_no_key_in_common():
    assert not set(keys([1, 2, 3, 4] * 2, "acme")) & set(keys([1, 2, 3, 4] * 2, "bolt"))


def test_large_token_ids_have_keys_of_their_own():
    assert next_page_key(root_key(""), [2**31]) != next_page_key(root_key(""), [0])


def test_only_the_keys_that_are_asked_for_are_computed():
    sequence = make_sequence(list(range(40)))
    next(iter_page_keys(sequence, "acme", 4, 0, 10))
    assert len(sequence.page_keys) == 1


def test_later_keys_are_the_same_whether_the_earlier_ones_were_asked_for_or_not():
    sequence = make_sequence(list(range(40)))
    assert list(iter_page_keys(sequence, "acme", 4, 7, 10)) == keys(list(range(40)))[7:]
