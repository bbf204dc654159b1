"""`headway result` of a job that does not come to its end in time."""

import click
import pytest

from headway.broker.config import BrokerConfig
from headway.broker.connection import connect
from headway.broker.streams import ensure_streams
from headway.commands.result import _read
from headway.core.job import JobKey

TOKENS = b'{"kind":"tokens","seq":0,"token_start":0,"token_ids":[5],"text":"Well, I"}'


@pytest.fixture
async def config(fresh_nats):
    config = BrokerConfig(nats_url=fresh_nats.url)
    async with await connect(config, "worker", timeout_seconds=10) as worker:
        await ensure_streams(worker.js, config)
        await worker.js.publish("headway.log.acme.runs", TOKENS)
    return config


async def test_a_job_with_output_still_runs_and_its_line_is_ended(config, capsys):
    with pytest.raises(click.ClickException, match="acme/runs: has not ended in 3 s; it still runs"):
        await _read(config, JobKey("acme", "runs"), False, 3.0)
    assert capsys.readouterr().out == "Well, I\n"


async def test_a_job_without_output_may_never_have_been(config):
    with pytest.raises(click.ClickException, match="never was"):
        await _read(config, JobKey("acme", "never"), False, 0.2)
