"""One control group per lab process tree, in every hierarchy this machine has.

nspawn (with --keep-unit and no systemd outside) makes its groups below the caller's, so each host
gets a group of its own to be called from: two hosts would otherwise share `system.slice`. The
same groups say, later, which processes belong to a lab, even when the run that made them died.
Seen on cgroup v1 (hybrid). What is done for v2 follows the kernel's documentation and is untried.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
TOP = "rollpin-lab"


def is_v2() -> bool:
    """Whether the machine has the unified hierarchy only."""
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """The mount points of all hierarchies, links (cpu -> cpu,cpuacct) left out."""
    if is_v2():
        return [ROOT]
    return [
        path
        for path in sorted(ROOT.iterdir())
        if path.is_dir() and not path.is_symlink() and (path / "cgroup.procs").exists()
    ]


def join(lab: str, member: str) -> None:
    """Move this process into the group of a lab's member, made when it is not there."""
    for hierarchy in hierarchies():
        group = hierarchy
        for part in (TOP, lab, member):
            if is_v2():
                _hand_down_controllers(group)
            group = group / part
            group.mkdir(exist_ok=True)
            _inherit_cpuset(group)
        (group / "cgroup.procs").write_text(str(os.getpid()))


def _hand_down_controllers(group: Path) -> None:
    for controller in (group / "cgroup.controllers").read_text().split():
        # one at a time: a controller that cannot be handed down must not keep the others
        with suppress(OSError):
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


def _inherit_cpuset(group: Path) -> None:
    # a v1 cpuset group is born empty and takes no process until it names CPUs and memory nodes
    for name in ("cpuset.cpus", "cpuset.mems"):
        own = group / name
        if not is_v2() and own.exists() and not own.read_text().strip():
            own.write_text((group.parent / name).read_text())


def groups(lab: str, member: str = "") -> list[Path]:
    """The groups of a lab (or of one member of it) that exist, children before parents."""
    found: list[Path] = []
    for hierarchy in hierarchies():
        top = hierarchy / TOP / lab / member
        if top.is_dir():
            for path, _, _ in os.walk(top, topdown=False):
                found.append(Path(path))
    return found


def members(lab: str, member: str = "") -> set[int]:
    """The pids in those groups."""
    found: set[int] = set()
    for group in groups(lab, member):
        with suppress(OSError):
            found.update(int(pid) for pid in (group / "cgroup.procs").read_text().split())
    found.discard(0)
    return found


def kill(lab: str, member: str = "", deadline: float = 10) -> set[int]:
    """SIGKILL everything in those groups until they are empty; returns who is left.

    Safe from pids used again: membership is read from the kernel right before each signal.
    """
    end = time.monotonic() + deadline
    while (left := members(lab, member)) and time.monotonic() < end:
        for pid in left - {os.getpid()}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return left


def remove(lab: str, member: str = "") -> list[Path]:
    """Remove the empty groups; returns those that would not go."""
    for group in groups(lab, member):
        with suppress(OSError):
            group.rmdir()
    left = groups(lab, member)
    for hierarchy in hierarchies():
        for parent in (hierarchy / TOP / lab, hierarchy / TOP):
            # goes only when no other member and no other lab is in it
            with suppress(OSError):
                parent.rmdir()
    return left
