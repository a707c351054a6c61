"""A host's power switch, worked from outside."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from rollpin.errors import LabError
from rollpin.lab import cgroups, machine, network, process
from rollpin.lab.state import Lab


def supervisor(lab: Lab, host: str) -> process.Process | None:
    """The process that keeps the host, or None: then the host is off."""
    own = str(lab.host_directory(host))
    for candidate in process.of_folder(lab.host_directory(host)):
        is_keeper = "rollpin.lab.supervisor" in candidate.argv and own in candidate.argv
        if is_keeper and candidate.alive():
            return candidate
    return None


def is_on(lab: Lab, host: str) -> bool:
    return supervisor(lab, host) is not None


def on(lab: Lab, host: str) -> bool:
    """Boot the host unless it is on; returns at once, with whether it was off."""
    if is_on(lab, host):
        return False
    network.require(lab)
    clear(lab, host)
    own = lab.host_directory(host)
    process.detach(
        ["unshare", "--mount", "--propagation", "slave", sys.executable, "-m",
         "rollpin.lab.supervisor", lab.name, host, str(own)],
        log=own / "console.log",
    )  # fmt: skip
    # `setsid --fork` returns before its child has become the keeper that is looked for
    end = time.monotonic() + 5
    while not is_on(lab, host):
        if time.monotonic() > end:
            raise LabError(f"{host} does not go on: see {own / 'console.log'}")
        time.sleep(0.01)
    return True


def off(lab: Lab, host: str, deadline: float = 10) -> None:
    """Power loss: SIGKILL of the host's init as seen from here. All in it dies at once.

    Killing nspawn itself would leave the host running. Raises LabError when the host is not off
    after `deadline` seconds.
    """
    keeper = supervisor(lab, host)
    if keeper is None:
        return
    for nspawn in keeper.children():
        for init in nspawn.children():
            init.send(signal.SIGKILL)
    if not keeper.wait_gone(deadline):
        raise LabError(f"{host} did not go off within {deadline:.0f} s; `rollpin lab up` clears it")
    clear(lab, host)


def clear(lab: Lab, host: str) -> None:
    """Whatever is left of a host that is to be off: processes, groups, its outer interface."""
    process.kill_folder(lab.host_directory(host))
    left = cgroups.kill(lab.name, host)
    if left:
        raise LabError(f"Processes of {host} would not end: {sorted(left)}")
    cgroups.remove(lab.name, host)
    name = f"vb-{network.mark(lab.name)}-{host}"
    if Path("/sys/class/net", name).exists():
        machine.run(["ip", "link", "del", name], check=False)
