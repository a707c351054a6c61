"""`rollpin status INVENTORY`: asks every host what it serves. Changes nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from rollpin.cli import hosts
from rollpin.errors import Lost
from rollpin.status import COLUMNS, Status, details, lines, rows, status_of


@click.command()
@click.argument("inventory")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option(
    "--limit", multiple=True, metavar="HOST", help="Only these hosts or groups; may be repeated."
)
@click.option("--no-health", is_flag=True, help="Ask neither the engines nor the registry.")
def status(inventory: str, as_json: bool, limit: tuple[str, ...], no_health: bool) -> None:
    """Show what every host of INVENTORY serves; the hosts hold the truth.

    Release, digest, profile, since when and by whom; its health now, by a real generation;
    displaced containers with their restore notes; an open transaction with what is left of its
    lease; what people or crashes changed since, with one command for the host each.
    Ends with status 1 when something is not as it was recorded, is not good, or could not be told.
    """
    found = _observe(inventory, limit, not no_health)
    if as_json:
        click.echo(json.dumps([one.to_json() for one in found], indent=2))
    elif sys.stdout.isatty():
        _table(found)
    else:
        for one in found:
            click.echo("\n".join(lines(one)))
    sys.exit(0 if all(one.good for one in found) else 1)


def _observe(path: str, limit: Sequence[str], ask: bool) -> list[Status]:
    found = hosts.chosen(path, limit)
    return list(found[0].state.pool.imap(partial(_one, ask), found))


def _one(ask: bool, host: Any) -> Status:
    """One host, connected to and observed. Every failure is a reason, never an exception."""
    from rollpin.asking import answers
    from rollpin.observe import unreachable
    from rollpin.planning import observe, remote_for

    try:
        with hosts.connected(host):
            state = observe(host)
            return status_of(state, answers(remote_for(host), state) if ask else None)
    except Lost as e:
        return status_of(unreachable(host.name, str(e)))
    except Exception as e:
        return status_of(unreachable(host.name, f"{type(e).__name__}: {e}"))


def _table(found: Sequence[Status]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for one in found:
        for row in rows(one):
            table.add_row(*row)
    console = Console(highlight=False, markup=False)
    console.print(table)
    for one in found:
        told = details(one)
        if told:
            console.print(f"\n{one.host}", style="bold")
        for line in told:
            # Commands are for pasting: never broken by us.
            console.print(f"  {line}", soft_wrap=True)
