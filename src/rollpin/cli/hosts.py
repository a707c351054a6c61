"""Hosts of a pyinfra inventory, for commands that are no deploy. pyinfra is imported here only
after gevent has patched the standard library.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from typing import Any

import click

from rollpin.errors import Lost, UsageError

CONNECT_DEADLINE = 30.0

inventory_option = click.option(
    "-i",
    "--inventory",
    envvar="ROLLPIN_INVENTORY",
    required=True,
    help="The inventory that HOST is in; or the variable ROLLPIN_INVENTORY.",
)


def chosen(path: str, limit: Sequence[str] = ()) -> list[Any]:
    """The inventory's hosts that `limit` names: groups, or patterns as pyinfra's --limit takes.

    Raises UsageError for an inventory or a limit that names nothing.
    """
    # Before anything else of pyinfra, paramiko or the standard library's sockets is imported.
    from gevent import monkey

    monkey.patch_all()
    from pyinfra.api.config import Config
    from pyinfra.api.state import State
    from pyinfra.context import ctx_config, ctx_inventory, ctx_state
    from pyinfra_cli.inventory import make_inventory
    from pyinfra_cli.util import exec_file

    if not os.path.exists(path) and ("," not in path or not path.strip(", ")) and "@" not in path:
        raise UsageError(f"there is no inventory {path}; name a file, or hosts with commas")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as pyinfra does: an inventory may import its neighbours
    state, config = State(), Config()
    ctx_state.set(state)
    ctx_config.set(config)
    if os.path.exists("config.py"):
        exec_file("config.py")  # a fleet may say there that it uses sudo
    try:
        inventory = make_inventory(_spelt_for_pyinfra(path), cwd=os.getcwd())
    except Exception as e:  # whatever the inventory's own code raises; pyinfra wraps some of it
        cause = getattr(e, "exception", e)
        raise UsageError(f"inventory {path}: {type(cause).__name__}: {cause}") from e
    ctx_inventory.set(inventory)
    hosts = _limited(inventory, limit)
    if not hosts:
        raise UsageError(f"inventory {path} has no host")
    state.init(inventory, config, initial_limit=hosts)
    return hosts


def _spelt_for_pyinfra(path: str) -> str:
    """A file, or names between commas; pyinfra stumbles over an empty one, and over one alone."""
    if os.path.exists(path):
        return path
    names = [name.strip() for name in path.split(",") if name.strip()]
    return ",".join(names) if len(names) > 1 or names[0].startswith("@") else f"@ssh/{names[0]}"


def _limited(inventory: Any, limit: Sequence[str]) -> list[Any]:
    hosts = list(inventory)
    if not limit:
        return hosts
    found: list[Any] = []
    for pattern in limit:
        named = list(inventory.groups.get(pattern, ()))
        matches = named or [h for h in hosts if fnmatch(h.name, pattern)]
        if not matches:
            raise UsageError(f"{pattern}: the inventory has no such host or group")
        found += matches
    return [h for h in hosts if h in found]


@contextmanager
def connected(host: Any) -> Iterator[None]:
    """The host is connected in the block. Raises Lost when it is not within the deadline."""
    import gevent
    from pyinfra.context import ctx_host

    timer = gevent.Timeout(CONNECT_DEADLINE)
    timer.start()
    try:
        host.connect(show_errors=False, raise_exceptions=True)
    except gevent.Timeout as e:
        raise Lost(f"no connection within {CONNECT_DEADLINE:g} s") from e
    except Exception as e:  # ConnectError, or what paramiko leaves untranslated
        raise Lost(f"cannot connect: {e}") from e
    finally:
        timer.close()
    host.state.activate_host(host)
    try:
        with ctx_host.use(host):
            yield
    finally:
        host.disconnect()
