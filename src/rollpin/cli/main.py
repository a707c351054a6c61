"""The `rollpin` command: wires the groups together, one file each."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from rollpin import __version__
from rollpin.errors import RollpinError

# A command is imported when it is called: `status` must patch gevent in before the standard
# library's sockets and threads are used, and `lab` uses both.
COMMANDS = ("abort", "lab", "log", "logs", "resume", "rollback", "status")


class Commands(click.Group):
    """The commands by name, each in rollpin/cli/<name>.py."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"rollpin.cli.{cmd_name}"), cmd_name)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rollpin")
def rollpin() -> None:
    """Deploys LLM inference containers to GPU hosts, and can always take the deploy back."""


def main() -> None:
    """Run the command line; an error of ours is one message on stderr and exit status 1."""
    try:
        rollpin()
    except RollpinError as error:
        click.echo(f"rollpin: {error}", err=True)
        sys.exit(1)
