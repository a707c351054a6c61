"""The lab's own bridge and subnet.

Subnets are taken from 198.18.0.0/15, which is set aside for benchmarks and never routed on the
Internet. While a lab exists its subnet is also `unreachable` at the lowest priority, so that
nothing sent towards it can leave by the default route when the bridge is down.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable
from pathlib import Path

from rollpin.errors import LabError
from rollpin.lab.machine import run
from rollpin.lab.state import Lab

POOL = ipaddress.IPv4Network("198.18.0.0/15")
LAST_RESORT = "4294967294"  # the metric of the unreachable route: after the bridge's own
FIRST_HOST = 11


def bridge_name(lab: str) -> str:
    """An interface name (at most 15 characters) that is the lab's own."""
    return f"rl-{mark(lab)}"


def mark(lab: str) -> str:
    """Six characters that stand for the lab where names must be short."""
    return hashlib.sha256(lab.encode()).hexdigest()[:6]


def choose(taken: Iterable[str]) -> ipaddress.IPv4Network:
    """The first free /24 of the pool, given the subnets that routes and other labs hold."""
    held = [ipaddress.IPv4Network(subnet) for subnet in taken]
    for subnet in POOL.subnets(new_prefix=24):
        if not any(subnet.overlaps(other) for other in held):
            return subnet
    raise LabError(f"No /24 of {POOL} is free on this machine: routes or other labs hold them all.")


def routed() -> list[str]:
    """Every IPv4 destination that this machine has a route to, the default excepted."""
    answer = run(["ip", "-json", "-4", "route", "show", "table", "all"]).stdout
    found = []
    for route in json.loads(answer or "[]"):
        destination = str(route.get("dst", "default"))
        if destination != "default" and ipaddress.IPv4Network(destination).prefixlen > 0:
            found.append(destination)
    return found


def is_up(lab: Lab) -> bool:
    """Whether the bridge stands and bears the lab's address."""
    if not Path("/sys/class/net", lab.bridge).exists():
        return False
    shown = run(["ip", "-json", "-4", "addr", "show", "dev", lab.bridge, "up"], check=False)
    links = json.loads(shown.stdout or "[]") if shown.returncode == 0 else []
    addresses = {entry.get("local") for link in links for entry in link.get("addr_info", [])}
    return lab.gateway in addresses


def require(lab: Lab) -> None:
    """Raises LabError unless the bridge is up: nothing is ever sent towards a lab without it."""
    if not is_up(lab):
        raise LabError(f"The network of the lab {lab.name!r} is down: run `rollpin lab up`.")


def up(lab: Lab) -> None:
    """Make the bridge, whatever a killed run left of it."""
    if is_up(lab):
        return
    run(["ip", "route", "replace", "unreachable", lab.subnet, "metric", LAST_RESORT])
    if not Path("/sys/class/net", lab.bridge).exists():
        run(["ip", "link", "add", lab.bridge, "type", "bridge", "forward_delay", "0"])
    no_ipv6 = Path("/proc/sys/net/ipv6/conf", lab.bridge, "disable_ipv6")
    if no_ipv6.exists():
        no_ipv6.write_text("1")
    run(["ip", "addr", "replace", f"{lab.gateway}/24", "dev", lab.bridge])
    run(["ip", "link", "set", lab.bridge, "up"])
    for end in links(lab.name):
        # A host that outlived the bridge of before hangs in the air.
        if end != lab.bridge:
            run(["ip", "link", "set", end, "master", lab.bridge, "up"])
    if not is_up(lab):
        raise LabError(f"The bridge {lab.bridge} was made but does not bear {lab.gateway}.")


def links(lab: str) -> list[str]:
    """The interfaces of the lab on this machine: its bridge and its hosts' outer ends."""
    ends = f"vb-{mark(lab)}-"
    return sorted(
        path.name
        for path in Path("/sys/class/net").iterdir()
        if path.name == bridge_name(lab) or path.name.startswith(ends)
    )


def down(lab: str, others: Iterable[str]) -> None:
    """Remove the interfaces, then the unreachable routes (in this order, see above).

    `others` are the subnets of the labs that stay: a lab whose lab.json was lost has a route too.
    """
    for link in links(lab):
        run(["ip", "link", "del", link], check=False)
    left = links(lab)
    if left:
        raise LabError(f"These interfaces could not be removed: {', '.join(left)}")
    kept = set(others)
    answer = run(["ip", "-json", "-4", "route", "show", "type", "unreachable"]).stdout
    for route in json.loads(answer or "[]"):
        subnet = str(route["dst"])
        if str(route.get("metric")) == LAST_RESORT and subnet not in kept:
            run(["ip", "route", "del", "unreachable", subnet, "metric", LAST_RESORT], check=False)
