from __future__ import annotations

import socket
import threading

from headway.engine.child import SharedSocket
from headway.engine.frames import frame, read_frame

NUM_THREADS = 4
NUM_FRAMES = 20
TIMEOUT_SECONDS = 30.0
NUM_BYTES = 500_000
"""More than a socket takes at once, so that a frame is sent in several pieces."""


def test_frames_of_several_threads_arrive_whole() -> None:
    theirs, ours = socket.socketpair()
    with ours, SharedSocket(theirs.detach()) as shared:
        ours.settimeout(TIMEOUT_SECONDS)

        def send(number: int) -> None:
            for _ in range(NUM_FRAMES):
                shared.sendall(frame(bytes([number]) * NUM_BYTES))

        for number in range(NUM_THREADS):
            threading.Thread(target=send, args=(number,), daemon=True).start()
        for _ in range(NUM_THREADS * NUM_FRAMES):
            body = read_frame(ours)
            assert body is not None
            assert (len(body), len(set(body))) == (NUM_BYTES, 1)
