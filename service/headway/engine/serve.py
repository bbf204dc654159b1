"""The loop of the engine child: commands in, one report per step out.

    reader thread ── commands ──▶ queue ──▶ main loop: apply commands, step, send one report ── frames ──▶ parent
                                    ▲          │
                             jobs made ready   │ new jobs
                                    │          ▼
                                 preparing thread (`engine.preparer`)

The main loop waits while there is nothing to do and never waits while there is. What it does between two steps is
little, however long the new jobs' texts are.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from contextlib import suppress

from headway.engine.engine import Engine
from headway.engine.frames import decode_command, encode_frame, read_frame
from headway.engine.messages import Command, StepReport, Submit
from headway.engine.preparer import Prepared, PreparingThread

STALLED_SECONDS = 0.01
"""Pause before a step is tried again that could compute nothing although there is work."""

_Input = Command | Prepared | None
"""None: the parent has closed the stream."""


class EngineLoop:
    """Serves one engine to the parent at the other end of ``connection``."""

    def __init__(self, engine: Engine, connection: socket.socket) -> None:
        self._engine = engine
        self._connection = connection
        self._inputs: queue.SimpleQueue[_Input] = queue.SimpleQueue()
        self._is_stalled = False

    def run(self) -> None:
        """Returns when the parent has closed the stream."""
        preparing = PreparingThread(self._engine.prepare, self._inputs.put)
        threading.Thread(target=self._read_commands, name="read-commands", daemon=True).start()
        self._send(self._engine.step(time.monotonic()))  # nothing to do yet: says what there is room for
        while True:
            for item in self._take_inputs():
                if item is None:
                    return
                self._apply(item, preparing)
            report = self._engine.step(time.monotonic())
            self._is_stalled = report.step is None
            self._send(report)

    def _apply(self, item: Command | Prepared, preparing: PreparingThread) -> None:
        now = time.monotonic()
        match item:
            case Submit():
                preparing.put(self._engine.announce(item, now))
            case Prepared():
                self._engine.start(item, now)
            case _:
                self._engine.apply(item, now)

    def _take_inputs(self) -> list[_Input]:
        """All that has come; if nothing has and there is nothing to compute, the next that comes."""
        inputs: list[_Input] = []
        seconds = self._wait_seconds()
        with suppress(queue.Empty):
            inputs.append(self._inputs.get_nowait() if seconds == 0 else self._inputs.get(timeout=seconds))
            while True:
                inputs.append(self._inputs.get_nowait())
        return inputs

    def _wait_seconds(self) -> float | None:
        """None: for ever."""
        if not self._engine.has_work:
            return None
        return STALLED_SECONDS if self._is_stalled else 0

    def _read_commands(self) -> None:
        try:
            while (frame := read_frame(self._connection)) is not None:
                self._inputs.put(decode_command(frame))
        finally:
            self._inputs.put(None)

    def _send(self, report: StepReport) -> None:
        self._connection.sendall(encode_frame(report))
