"""`--data plan=`: the plans that an unattended run is bound to. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

from rollpin.errors import UsageError

_HASH = re.compile("p[0-9a-f]{12}")


def read(given: str, hosts: Collection[str]) -> dict[str, str]:
    """Host -> hash, from `HASH` or `HOST:HASH,…`; one for all hosts is under "". Raises UsageError
    for what cannot be read, and for a host that the inventory lacks.
    """
    out: dict[str, str] = {}
    for item in given.split(","):
        name, _, value = item.strip().rpartition(":")
        if not _HASH.fullmatch(value):
            raise UsageError(
                f"--data plan={given}: {value!r} is no plan's hash; write plan=HASH or"
                " plan=HOST:HASH,HOST:HASH as --dry prints it"
            )
        if name in out:
            raise UsageError(f"--data plan={given}: {name or 'one for all hosts'} is there twice")
        out[name] = value
    strangers = sorted(set(out) - {"", *hosts})
    if strangers:
        raise UsageError(f"--data plan={given}: the inventory has no host {', '.join(strangers)}")
    return out


def of(host: str, given: str, hosts: Collection[str]) -> str:
    """The hash that this host's plan must have. Raises UsageError when none is named."""
    plans = read(given, hosts)
    if host in plans:
        return plans[host]
    if "" in plans:
        return plans[""]
    raise UsageError(f"--data plan={given} names no plan for {host}; see it with --dry")
