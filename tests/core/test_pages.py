from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.pages import PagePool


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def cached_pool(num_cached: int, num_pages: int = 4) -> tuple[PagePool, list[int]]:
    """A pool and pages of it that are cached under the keys 0, 1, ... and held by nobody."""
    pool = PagePool(num_pages, page_size=4)
    pages = pool.allocate(num_cached)
    assert pages is not None
    for number, page in enumerate(pages):
        pool.publish(page, key(number))
    pool.release(pages)
    return pool, pages


def test_pages_are_handed_out_once_each():
    pool = PagePool(4, page_size=4)
    first, second = pool.allocate(3), pool.allocate(1)
    assert sorted([*first, *second]) == [0, 1, 2, 3]
    pool.check_integrity([first, second])


def test_running_out_of_pages_is_a_return_value_and_changes_nothing():
    pool = PagePool(4, page_size=4)
    held = pool.allocate(3)
    assert pool.allocate(2) is None
    assert pool.stats().num_free == 1
    pool.check_integrity([held])


def test_no_pages_are_allocated_when_none_are_asked_for():
    pool = PagePool(2, page_size=4)
    assert pool.allocate(0) == []
    assert pool.stats().num_free == 2


def test_a_published_page_is_cached_when_its_last_holder_gives_it_back():
    pool, pages = cached_pool(2)
    stats = pool.stats()
    assert (stats.num_free, stats.num_cached, stats.num_used, stats.num_available) == (2, 2, 0, 4)
    assert pool.find_prefix([key(0), key(1)]) == pages


def test_an_unpublished_page_is_free_when_given_back():
    pool = PagePool(4, page_size=4)
    pool.release(pool.allocate(2))
    assert pool.stats().num_free == 4


def test_a_shared_page_is_used_until_both_holders_gave_it_back():
    pool, pages = cached_pool(1)
    pool.share(pages)
    pool.share(pages)
    pool.release(pages)
    assert pool.stats().num_used == 1
    pool.check_integrity([pages])
    pool.release(pages)
    assert pool.stats().num_used == 0
    pool.check_integrity([])


def test_a_prefix_ends_at_the_first_page_that_is_missing():
    pool, pages = cached_pool(3)
    assert pool.find_prefix([key(0), key(9), key(2)]) == pages[:1]


def test_the_page_that_was_used_longest_ago_is_evicted_first():
    pool, pages = cached_pool(3, num_pages=3)
    pool.share(pages[2:])
    pool.release(pages[2:])  # the last page of the prefix would be the first to go, but was just used
    assert pool.allocate(1) == [pages[1]]
    assert pool.find_prefix([key(1)]) == []
    assert pool.find_prefix([key(0)]) == [pages[0]]
    assert pool.find_prefix([key(2)]) == [pages[2]]


def test_the_end_of_a_prefix_is_evicted_before_its_beginning():
    pool, pages = cached_pool(3, num_pages=3)
    pool.allocate(2)
    assert pool.find_prefix([key(0), key(1), key(2)]) == pages[:1]


def test_free_pages_are_taken_before_cached_ones():
    pool, pages = cached_pool(2)
    pool.allocate(2)
    assert pool.find_prefix([key(0), key(1)]) == pages


def test_a_page_in_use_is_never_evicted():
    pool, pages = cached_pool(2, num_pages=2)
    pool.share(pages[:1])
    assert pool.allocate(2) is None
    assert pool.allocate(1) == pages[1:]


def test_the_second_page_with_the_same_content_stays_its_holders_own():
    pool = PagePool(2, page_size=4)
    first, second = pool.allocate(1), pool.allocate(1)
    pool.publish(first[0], key(0))
    pool.publish(second[0], key(0))
    pool.release(second)
    pool.release(first)
    stats = pool.stats()
    assert (stats.num_free, stats.num_cached) == (1, 1)
    assert pool.find_prefix([key(0)]) == first


def test_sharing_cached_pages_makes_fewer_available_and_used_ones_not():
    pool, pages = cached_pool(2)
    pool.share(pages[:1])
    assert pool.num_cached_of(pages) == 1


def test_giving_a_page_back_twice_is_a_bug_that_is_caught():
    pool = PagePool(2, page_size=4)
    pages = pool.allocate(1)
    pool.release(pages)
    with pytest.raises(AssertionError, match="released twice"):
        pool.release(pages)


def test_a_leaked_page_is_found():
    pool = PagePool(2, page_size=4)
    pool.allocate(1)
    with pytest.raises(AssertionError):
        pool.check_integrity([])


operations = st.lists(st.tuples(st.sampled_from(["allocate", "share", "publish", "release"]), st.integers(0, 9)))


@settings(deadline=None)
@given(operations)
def test_free_cached_and_used_pages_make_up_the_total_whatever_happens(history):
    pool = PagePool(8, page_size=4)
    tables: list[list[int]] = []
    published: set[int] = set()
    for name, number in history:
        if name == "allocate" and (pages := pool.allocate(number % 5)) is not None:
            tables.append(pages)
            published -= set(pages)
        elif name == "share" and (pages := pool.find_prefix([key(number)])):
            pool.share(pages)
            tables.append(pages)
        elif name == "publish" and tables:
            for page in set(tables[number % len(tables)]) - published:
                pool.publish(page, key(number))
                published |= {page} & set(pool.find_prefix([key(number)]))
        elif name == "release" and tables:
            pool.release(tables.pop(number % len(tables)))
        pool.check_integrity(tables)
