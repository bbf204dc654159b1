import asyncio

import pytest

from headway.broker.connection import Connection
from headway.broker.state import StateStore
from headway.broker.streams import STATE_BUCKET
from headway.core.errors import BrokerError


@pytest.fixture
def store(connection: Connection) -> StateStore:
    return StateStore(connection.js)


async def put(connection: Connection, key: str, value: bytes) -> None:
    await (await connection.js.key_value(STATE_BUCKET)).put(key, value)


async def test_the_first_epoch_is_one_and_each_is_higher(store: StateStore) -> None:
    assert await store.epoch() == 0
    assert [await store.raise_epoch() for _ in range(3)] == [1, 2, 3]
    assert await store.epoch() == 3


async def test_racing_leaders_never_share_an_epoch(connection: Connection) -> None:
    stores = [StateStore(connection.js) for _ in range(8)]
    epochs = await asyncio.gather(*(store.raise_epoch() for store in stores for _ in range(3)))
    assert sorted(epochs) == list(range(1, 25))


async def test_an_epoch_can_be_raised_above_one_that_the_bucket_has_forgotten(store: StateStore) -> None:
    assert await store.raise_epoch(above=7) == 8
    assert await store.raise_epoch(above=3) == 9


async def test_a_deleted_epoch_can_be_raised_again(store: StateStore, connection: Connection) -> None:
    await store.raise_epoch()
    await (await connection.js.key_value(STATE_BUCKET)).delete("epoch")
    assert await store.epoch() == 0
    assert await store.raise_epoch() == 1


@pytest.mark.parametrize("value", [b"nonsense", b"{}", b'{"version":2,"epoch":5}'])
async def test_an_epoch_that_cannot_be_read_is_an_error(
    store: StateStore, connection: Connection, value: bytes
) -> None:
    await put(connection, "epoch", value)
    with pytest.raises(BrokerError, match="epoch"):
        await store.raise_epoch()


async def test_capacity_is_kept_per_model(store: StateStore) -> None:
    await store.put_capacity("small", num_pages=100, page_size=16)
    await store.put_capacity("large", num_pages=900, page_size=32, max_num_seqs=8)
    small, large = await store.capacity("small"), await store.capacity("large")
    assert small is not None
    assert large is not None
    assert (small.num_pages, small.page_size, small.max_num_seqs) == (100, 16, None)
    assert (large.num_pages, large.page_size, large.max_num_seqs) == (900, 32, 8)
    assert await store.capacity("unseen") is None


async def test_the_last_snapshot_of_the_counters_survives(store: StateStore, connection: Connection) -> None:
    await store.put_counters("default", {"acme": 1.5}, now=10.0)
    await store.put_counters("default", {"acme": 2.5, "beta": 1.0}, now=11.0)
    saved = await StateStore(connection.js).counters("default")
    assert saved is not None
    assert saved.saved_at == 11.0
    assert saved.counters == {"acme": 2.5, "beta": 1.0}


@pytest.mark.parametrize("value", [b"\xff", b'{"version":9,"saved_at":1,"counters":{}}'])
async def test_counters_of_another_version_are_as_good_as_none(
    store: StateStore, connection: Connection, value: bytes
) -> None:
    await put(connection, "fairness.default", value)
    assert await store.counters("default") is None
