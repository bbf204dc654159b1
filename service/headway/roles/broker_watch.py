"""A connection to NATS that has ended for good ends its role too.

A lost connection comes back by itself. One that nats-py gave up (after an error of the protocol, say) does not, and a
process that only seems to work is worse than one that is started again.
"""

from __future__ import annotations

from headway.broker.connection import Connection
from headway.broker.errors import BrokerUnavailable


async def fail_when_closed(connection: Connection) -> None:
    """Raises `BrokerUnavailable`; cancelled by whoever closes the connection on purpose."""
    await connection.wait_closed()
    raise BrokerUnavailable("serve", f"the connection to NATS is {connection.state.reason}")
