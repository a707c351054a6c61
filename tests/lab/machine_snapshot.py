"""What a lab could leave on the machine, looked at before and after."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from rollpin.lab import network, state
from rollpin.lab.machine import run

PLACES = ("/run", "/etc/systemd", "/etc/docker", "/var/lib/machines")


@dataclass(frozen=True)
class Snapshot:
    mounts: frozenset[str]
    links: frozenset[str]
    routes: frozenset[str]
    files: frozenset[str]
    groups: frozenset[str]
    processes: frozenset[str]


def take(lab: str) -> Snapshot:
    """The machine as it is; of its processes those that belong to `lab` (others come and go)."""
    return Snapshot(
        mounts=frozenset(Path("/proc/self/mounts").read_text().splitlines()),
        links=frozenset(path.name for path in Path("/sys/class/net").iterdir()),
        routes=frozenset(run(["ip", "route", "show", "table", "all"]).stdout.splitlines()),
        files=frozenset(
            str(Path(folder, name))
            for place in (*PLACES, str(state.directory(lab)))
            for folder, folders, files in os.walk(place)
            for name in (*folders, *files)
        )
        | frozenset(str(path) for path in state.STATE.glob(f"{lab}*")),
        groups=frozenset(
            folder for folder, _, _ in os.walk("/sys/fs/cgroup") if f"/rollpin-lab/{lab}" in folder
        ),
        processes=frozenset(_processes(lab)),
    )


def left(lab: str, before: Snapshot, after: Snapshot) -> dict[str, set[str]]:
    """What `after` has and `before` had not, other labs' doings at the same time excepted."""
    foreign = set()
    for other in state.all_labs():
        if other.name != lab:
            prefix = other.subnet.rsplit(".", 1)[0]
            foreign |= {other.bridge, f"{network.mark(other.name)}-", f"{prefix}."}
    found = {}
    for one in fields(Snapshot):
        new = getattr(after, one.name) - getattr(before, one.name)
        ours = {line for line in new if not any(mark in line for mark in foreign)}
        if ours:
            found[one.name] = ours
    return found


def _processes(lab: str) -> list[str]:
    """Those that name the lab's folder, group or hosts in any way that the kernel shows."""
    marks = (f"/rollpin-lab/{lab}/", f"{network.mark(lab)}-", network.bridge_name(lab))
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or process.name == str(os.getpid()):
            continue
        text = ""
        for name in ("cmdline", "cgroup", "mountinfo"):
            with suppress(OSError):
                text += (process / name).read_bytes().decode(errors="replace").replace("\0", " ")
        if any(mark in text for mark in marks):
            found.append(f"{process.name}: {text[:200]}")
    return found
