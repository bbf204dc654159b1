"""Messages between the worker's I/O process and its engine child, as bytes: length-prefixed msgpack.

┌──────────────────────┬──────────────┐
│ length, 4 bytes, big-│ msgpack      │
│ endian               │              │
└──────────────────────┴──────────────┘
"""

from __future__ import annotations

import asyncio
import socket

import msgspec

from headway.core.scheduler_config import SchedulerConfig
from headway.engine.config import EngineConfig
from headway.engine.messages import Command, Event
from headway.telemetry.config import LogFormat, LogLevel

NUM_LENGTH_BYTES = 4


class Start(msgspec.Struct, frozen=True):
    """The first frame to the child: what to serve, and how."""

    engine: EngineConfig
    scheduler: SchedulerConfig
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.TEXT


_encoder = msgspec.msgpack.Encoder()
decode_start = msgspec.msgpack.Decoder(Start).decode
decode_command = msgspec.msgpack.Decoder(Command).decode
decode_event = msgspec.msgpack.Decoder(Event).decode


def encode_frame(message: Start | Command | Event) -> bytes:
    return frame(_encoder.encode(message))


def frame(body: bytes) -> bytes:
    """The body with its length before it."""
    return len(body).to_bytes(NUM_LENGTH_BYTES, "big") + body


def read_frame(connection: socket.socket) -> bytes | None:
    """The body of the next frame, blocking; None at the end of the stream."""
    header = _read_exactly(connection, NUM_LENGTH_BYTES)
    return None if header is None else _read_exactly(connection, int.from_bytes(header, "big"))


async def receive_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The body of the next frame; None at the end of the stream."""
    try:
        header = await reader.readexactly(NUM_LENGTH_BYTES)
        return await reader.readexactly(int.from_bytes(header, "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _read_exactly(connection: socket.socket, num_bytes: int) -> bytes | None:
    received = bytearray()
    while len(received) < num_bytes:
        try:
            data = connection.recv(num_bytes - len(received))
        except ConnectionError:
            return None
        if not data:
            return None
        received += data
    return bytes(received)
