"""`headway version`."""

from __future__ import annotations

import platform
from importlib.metadata import version

import click


@click.command("version")
def command() -> None:
    """Show the version."""
    click.echo(f"headway {version('headway')}, Python {platform.python_version()}")
