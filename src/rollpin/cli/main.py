"""The `rollpin` command: wires the groups together, one file each."""

from __future__ import annotations

import sys

import click

from rollpin import __version__
from rollpin.cli.lab import lab
from rollpin.errors import RollpinError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rollpin")
def rollpin() -> None:
    """Deploys LLM inference containers to GPU hosts, and can always take the deploy back."""


rollpin.add_command(lab)


def main() -> None:
    """Run the command line; an error of ours is one message on stderr and exit status 1."""
    try:
        rollpin()
    except RollpinError as error:
        click.echo(f"rollpin: {error}", err=True)
        sys.exit(1)
