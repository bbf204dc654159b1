"""How a command comes to NATS: it says so if that takes long, and what to do if it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from headway.broker.client import Client
    from headway.broker.config import BrokerConfig
    from headway.broker.connection import Connection

QUIET_SECONDS = 1.0
"""After so long people begin to wonder whether anything happens."""
DEFAULT_MODEL = "default"
"""Of a client that submits nothing."""
HINT = "start one with `headway up`, or give the address of another with --nats-url"

T = TypeVar("T")


@asynccontextmanager
async def connection_to(config: BrokerConfig, name: str) -> AsyncIterator[Connection]:
    """Open for the time of the block. Raises `BrokerUnavailable` after ``nats_timeout_seconds``, with a way out."""
    from headway.broker.connection import connect

    opening = connect(config, name, timeout_seconds=config.nats_timeout_seconds)
    async with await _reached(opening, config) as connection:
        yield connection


@asynccontextmanager
async def client_of(config: BrokerConfig, tenant: str, model: str = DEFAULT_MODEL) -> AsyncIterator[Client]:
    """As `connection_to`, for a client. Raises `JobRejected` for a tenant or a model that no subject can carry."""
    from headway.broker.client import Client

    timeout = config.nats_timeout_seconds
    client = Client.connect(tenant=tenant, model=model, config=config, timeout_seconds=timeout)
    await _reached(client.open(), config)
    try:
        yield client
    finally:
        await client.close()


async def _reached(opening: Awaitable[T], config: BrokerConfig) -> T:
    from headway.broker.errors import BrokerUnavailable

    telling = asyncio.create_task(_tell(config), name="tell that we connect")
    try:
        return await opening
    except BrokerUnavailable as error:
        if "authorization" in error.reason.lower():
            raise
        raise BrokerUnavailable(error.operation, f"{error.reason}; {HINT}") from error
    finally:
        telling.cancel()


async def _tell(config: BrokerConfig) -> None:
    from headway.broker.connection import without_password

    await asyncio.sleep(QUIET_SECONDS)
    click.echo(f"headway: trying to reach NATS at {without_password(config)} ...", err=True)
