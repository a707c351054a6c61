"""`rollpin status INVENTORY`: asks every host what it serves. Changes nothing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from typing import Any

import click

from rollpin.errors import UsageError
from rollpin.status import COLUMNS, Status, details, lines, rows, status_of

CONNECT_DEADLINE = 30.0


@click.command()
@click.argument("inventory")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option(
    "--limit", multiple=True, metavar="HOST", help="Only these hosts or groups; may be repeated."
)
def status(inventory: str, as_json: bool, limit: tuple[str, ...]) -> None:
    """Show what every host of INVENTORY serves; the hosts hold the truth.

    Release, digest, profile, since when and by whom; displaced containers with their restore
    notes; an open transaction with what is left of its lease; what people or crashes changed since.
    Ends with status 1 when something is not as it was recorded, or could not be told.
    """
    found = _observe(inventory, limit)
    if as_json:
        click.echo(json.dumps([one.to_json() for one in found], indent=2))
    elif sys.stdout.isatty():
        _table(found)
    else:
        for one in found:
            click.echo("\n".join(lines(one)))
    sys.exit(0 if all(one.good for one in found) else 1)


def _observe(path: str, limit: Sequence[str]) -> list[Status]:
    # Before anything else of pyinfra, paramiko or the standard library's sockets is imported.
    from gevent import monkey

    monkey.patch_all()
    from pyinfra.api.config import Config
    from pyinfra.api.state import State
    from pyinfra.context import ctx_config, ctx_inventory, ctx_state
    from pyinfra_cli.inventory import make_inventory
    from pyinfra_cli.util import exec_file

    if not os.path.exists(path) and "," not in path and "@" not in path:
        raise UsageError(f"there is no inventory {path}; name a file, or hosts with commas")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as pyinfra does: an inventory may import its neighbours
    state, config = State(), Config()
    ctx_state.set(state)
    ctx_config.set(config)
    if os.path.exists("config.py"):
        exec_file("config.py")  # a fleet may say there that it uses sudo
    inventory = make_inventory(path, cwd=os.getcwd())
    ctx_inventory.set(inventory)
    hosts = _chosen(inventory, limit)
    state.init(inventory, config, initial_limit=hosts)
    return list(state.pool.imap(_one, hosts))


def _chosen(inventory: Any, limit: Sequence[str]) -> list[Any]:
    """As pyinfra's --limit: names of groups, or patterns of host names."""
    hosts = list(inventory)
    if not limit:
        return hosts
    chosen: list[Any] = []
    for pattern in limit:
        named = list(inventory.groups.get(pattern, ()))
        matches = named or [h for h in hosts if fnmatch(h.name, pattern)]
        if not matches:
            raise UsageError(f"--limit {pattern}: the inventory has no such host or group")
        chosen += matches
    return [h for h in hosts if h in chosen]


def _one(host: Any) -> Status:
    """One host, connected to and observed. Every failure is a reason, never an exception."""
    import gevent
    from pyinfra.context import ctx_host

    from rollpin.observe import unreachable
    from rollpin.planning import observe

    timer = gevent.Timeout(CONNECT_DEADLINE)
    timer.start()
    try:
        host.connect(show_errors=False, raise_exceptions=True)
    except gevent.Timeout:
        return status_of(unreachable(host.name, f"no connection within {CONNECT_DEADLINE:g} s"))
    except Exception as e:  # ConnectError, or what paramiko leaves untranslated
        return status_of(unreachable(host.name, f"cannot connect: {e}"))
    finally:
        timer.close()
    host.state.activate_host(host)
    try:
        with ctx_host.use(host):
            return status_of(observe(host))
    except Exception as e:
        return status_of(unreachable(host.name, f"{type(e).__name__}: {e}"))
    finally:
        host.disconnect()


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
