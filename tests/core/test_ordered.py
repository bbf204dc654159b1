import math

from hypothesis import given
from hypothesis import strategies as st

from headway.core.ordered import FirstFit, Rank

RANKS = st.builds(Rank, st.integers(-3, 3).map(float), st.integers(0, 8))
OPERATIONS = st.lists(st.tuples(RANKS, st.integers(0, 9)), max_size=60)


def first_by_scan(sizes: dict[Rank, float], max_size: float) -> Rank | None:
    return min((rank for rank, size in sizes.items() if size <= max_size), default=None)


@given(OPERATIONS)
def test_the_first_that_fits_is_the_one_that_a_scan_in_order_finds(operations: list[tuple[Rank, int]]) -> None:
    index: FirstFit[Rank] = FirstFit()
    sizes: dict[Rank, float] = {}
    for rank, size in operations:
        if rank in sizes and sizes[rank] == size:
            index.discard(rank)
            del sizes[rank]
        elif rank in sizes:
            index.resize(rank, size)
            sizes[rank] = size
        else:
            index.insert(rank, size, rank)
            sizes[rank] = size
        assert [index.first(limit) for limit in range(10)] == [first_by_scan(sizes, limit) for limit in range(10)]
        assert index.least_size == min(sizes.values(), default=math.inf)
        assert len(index) == len(sizes)


def test_entries_that_come_in_order_do_not_make_the_tree_deep() -> None:
    index: FirstFit[int] = FirstFit()
    for number in range(20_000):
        index.insert(Rank(float(number), number), 1.0, number)
    assert depth(index._root) < 60


def test_entries_that_leave_in_order_do_not_make_the_tree_deep() -> None:
    """As jobs do: each takes the first, and another comes behind all."""
    index: FirstFit[int] = FirstFit()
    for number in range(2_000):
        index.insert(Rank(float(number), number), 1.0, number)
    for number in range(2_000, 6_000):
        index.discard(Rank(float(number - 2_000), number - 2_000))
        index.insert(Rank(float(number), number), 1.0, number)
    for number in range(4_001, 6_000, 2):
        index.discard(Rank(float(number), number))
    assert len(index) == 1_000
    assert depth(index._root) < 45


def depth(node: object) -> int:
    deepest, level = 0, [node]
    while level := [child for node in level if node for child in (node.left, node.right)]:
        deepest += 1
    return deepest


def test_an_entry_of_infinite_size_keeps_its_place_and_is_found_only_without_a_limit() -> None:
    index: FirstFit[str] = FirstFit()
    index.insert(Rank(1.0, 0), math.inf, "hidden")
    index.insert(Rank(2.0, 0), 3.0, "seen")
    assert index.first() == "hidden"
    assert index.first(1e9) == "seen"
