"""The process group of all ranks: how they find each other, and what they settle before the first step.

They meet on the loopback interface and nowhere else: the store through which torch's ranks exchange their addresses has
no password, and a socket of its own would listen to the whole network. Rank 0 brings one that does not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch import distributed

from headway.engine.config import EngineConfig
from headway.engine.device import choose_device
from headway.engine.parallel.other_ranks import HOST

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
TIMEOUT = timedelta(hours=2)
"""For what one rank waits for the others: only reading a large model takes long. A step that hangs is the worker's
``step_timeout_seconds`` to end."""


def join(config: EngineConfig, rank: int, port: int, listener: int | None = None) -> None:
    """Wait for all ranks and be one of them from now on. ``listener`` is rank 0's listening socket on ``port``, as a
    file descriptor, which is taken over. Raises ``SettingError`` if there are too few GPUs."""
    is_gpu = choose_device(config).type == "cuda"
    if is_gpu:
        torch.cuda.set_device(rank)
    # transformers binds the process to the GPU of this number; the others keep NCCL's and gloo's own sockets at home.
    os.environ["LOCAL_RANK"] = str(rank)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", LOOPBACK)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    store = distributed.TCPStore(
        HOST,
        port,
        world_size=config.tensor_parallel_size,
        is_master=rank == 0,
        timeout=TIMEOUT,
        wait_for_workers=False,
        master_listen_fd=listener,
    )
    distributed.init_process_group(
        "nccl" if is_gpu else "gloo",
        store=store,
        rank=rank,
        world_size=config.tensor_parallel_size,
        timeout=TIMEOUT,
        device_id=torch.device("cuda", rank) if is_gpu else None,
    )


@contextmanager
def first_rank_first() -> Iterator[None]:
    """For what one rank makes and the others then find made. No more than the body if there is one rank."""
    if _is_divided() and distributed.get_rank() > 0:
        distributed.barrier()
    yield
    if _is_divided() and distributed.get_rank() == 0:
        distributed.barrier()


def smallest_of_ranks(number: int) -> int:
    """Of all ranks' numbers; the number itself if there is one rank."""
    if not _is_divided():
        return number
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    agreed = torch.tensor(number, device=device)
    distributed.all_reduce(agreed, distributed.ReduceOp.MIN)
    return int(agreed)


def _is_divided() -> bool:
    return distributed.is_available() and distributed.is_initialized()
