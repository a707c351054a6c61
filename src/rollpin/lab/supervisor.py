"""The one process that keeps a host: it boots nspawn, and boots it again after a reboot.

    python -m rollpin.lab.supervisor LAB HOST FOLDER

It runs in a mount namespace of its own (`unshare --mount`), where it lays the host's folder over
the base tree: when it and its host end, however they end, no mount is left on the machine.
It holds a lock on the host's folder, so that a host is never booted twice.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from rollpin.lab import cgroups
from rollpin.lab.network import mark
from rollpin.lab.state import Lab, load

REBOOT = 133  # nspawn's exit status when the host asked for a reboot


def nspawn(lab: Lab, host: str) -> list[str]:
    """The command line that boots a host from its laid-over root."""
    own = lab.host_directory(host)
    argv = [
        "systemd-nspawn",
        "--quiet",
        f"--directory={own / 'root'}",
        # part of an interface name, hence short and of this lab only
        f"--machine={mark(lab.name)}-{host}",
        f"--hostname={host}",
        "--boot",
        "--register=no",
        "--keep-unit",
        "--link-journal=no",
        "--resolv-conf=off",
        "--timezone=off",
        "--console=pipe",
        f"--network-bridge={lab.bridge}",
        "--capability=all",
        "--system-call-filter=@keyring bpf",
        # Docker's overlay2 does not run on overlayfs: its roots come from the plain filesystem
        f"--bind={own / 'docker'}:/var/lib/docker",
        f"--bind={own / 'containerd'}:/var/lib/containerd",
        f"--bind={own / 'data'}:/data",
    ]
    if not cgroups.is_v2():
        # systemd 257 refuses to boot on cgroup v1 without it; 252 does not know it
        argv.append("--setenv=SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1")
    return argv


def lay_over(own: Path) -> None:
    """Mount the host's root: its own changes over the base tree."""
    options = f"lowerdir={(own / 'base').read_text()},upperdir={own / 'upper'},workdir="
    argv = ["mount", "-t", "overlay", "overlay", "-o", f"{options}{own / 'work'}"]
    subprocess.run([*argv, str(own / "root")], check=True, timeout=30)


def keep(lab: Lab, host: str) -> int:
    """Boot, and boot again as long as the host reboots; returns nspawn's last exit status."""
    own = lab.host_directory(host)
    handle = os.open(own, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"{host} is kept by another process already", flush=True)
        return 0
    lay_over(own)
    while True:
        # groups that containers left would be found again, stale, by the next boot
        cgroups.remove(lab.name, host)
        status = subprocess.run(
            nspawn(lab, host),
            stdin=subprocess.DEVNULL,
            check=False,
            # nspawn only: on cgroup v2 a group that hands down controllers holds no process
            preexec_fn=lambda: cgroups.join(lab.name, host),
        ).returncode
        print(f"nspawn of {host} ended with status {status}", flush=True)
        if status != REBOOT:
            return status


def main() -> int:
    # the third argument, the host's folder, is there to be seen: process.of_folder looks for it
    name, host, _ = sys.argv[1:]
    return keep(load(name), host)


if __name__ == "__main__":
    sys.exit(main())
