from headway.broker.config import BrokerConfig
from headway.broker.connection import connect
from headway.broker.streams import RESULTS, ensure_streams
from tests.nats_cluster import NatsCluster


async def test_the_streams_of_a_cluster_have_a_new_leader_after_the_loss_of_the_old_one(
    nats_cluster: NatsCluster,
) -> None:
    config = BrokerConfig(nats_url=nats_cluster.url, num_stream_replicas=3)
    async with await connect(config, "tests", timeout_seconds=10) as connection:
        await ensure_streams(connection.js, config)
    former = await nats_cluster.leader_of(RESULTS)
    await nats_cluster.kill(former)
    assert await nats_cluster.leader_of(RESULTS) != former
    await nats_cluster.start(former)
    await nats_cluster.is_whole(RESULTS)
