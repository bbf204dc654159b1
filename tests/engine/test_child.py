from __future__ import annotations

import socket
import threading

from headway.engine.child import SharedSocket
from headway.engine.frames import frame, read_frame

NUM_THREADS = 4
NUM_FRAMES = 20
NUM_BYTES = 500_000
"""More than a socket takes at once, so that a frame is sent in several pieces."""


def test_frames_of_several_threads_arrive_whole() -> None:
    theirs, ours = socket.socketpair()
    with ours, SharedSocket(theirs.detach()) as shared:
        data = [frame(bytes([number]) * NUM_BYTES) for number in range(NUM_THREADS)]
        threads = [
            threading.Thread(target=lambda item=item: [shared.sendall(item) for _ in range(NUM_FRAMES)])
            for item in data
        ]
        for thread in threads:
            thread.start()
        bodies = [read_frame(ours) for _ in range(NUM_THREADS * NUM_FRAMES)]
        for thread in threads:
            thread.join()
    assert all(body is not None and len(body) == NUM_BYTES and len(set(body)) == 1 for body in bodies)
