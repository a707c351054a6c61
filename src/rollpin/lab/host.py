"""One host of the lab, as tests and people use it: over SSH, and by its power switch."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rollpin.errors import LabError, Lost, StepFailed
from rollpin.lab import network, power
from rollpin.lab.state import Lab, Seat, load

User = Literal["root", "deploy"]
NO_CONNECTION = 255  # ssh's own exit status


@dataclass(frozen=True)
class Result:
    """How a command on a host ended."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Host:
    """A host of a lab. All deadlines are in seconds."""

    lab: Lab
    seat: Seat

    @property
    def name(self) -> str:
        return self.seat.name

    @property
    def address(self) -> str:
        return self.seat.address

    def ssh(self, user: User = "root") -> list[str]:
        """The ssh command line up to, and without, the remote command."""
        options = {
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.lab.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ControlMaster": "no",
            "ControlPath": "none",
            "ConnectTimeout": "5",
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "3",
            "LogLevel": "ERROR",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return ["ssh", "-F", "/dev/null", "-i", str(self.lab.key), *words, f"{user}@{self.address}"]

    def run(
        self,
        command: Sequence[str] | str,
        user: User = "root",
        *,
        check: bool = True,
        timeout: float = 60,
        stdin: str | None = None,
    ) -> Result:
        """Run an argv, or a script (a string, for `sh -c`), on the host.

        Raises StepFailed (with `check`) for a status other than 0, Lost when there is no answer
        within `timeout` or no connection, LabError when the lab's network is down.
        """
        network.require(self.lab)
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        try:
            done = subprocess.run(
                [*self.ssh(user), "--", shlex.join(argv)],
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Lost(f"{self.name} did not end `{argv[0]}` within {timeout:.0f} s") from error
        if check and done.returncode == NO_CONNECTION:
            raise Lost(f"{self.name} cannot be reached over SSH: {done.stderr.strip()}")
        if check and done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise StepFailed(
                f"`{argv[0]}` on {self.name} ended with status {done.returncode}: {said}",
                done.returncode,
                done.stdout + done.stderr,
            )
        return Result(done.returncode, done.stdout, done.stderr)

    def containers(self) -> list[dict[str, Any]]:
        """`docker inspect` of every container, running or not, ordered by name."""
        script = 'ids=$(docker ps -aq --no-trunc); [ -z "$ids" ] || docker inspect $ids'
        found: list[dict[str, Any]] = json.loads(self.run(script).stdout or "[]")
        return sorted(found, key=lambda container: str(container["Name"]))

    def container(self, name: str) -> dict[str, Any] | None:
        """`docker inspect` of the container of that name, or None."""
        wanted = f"/{name}"
        return next((one for one in self.containers() if one["Name"] == wanted), None)

    def boot_id(self) -> str:
        """Changes at every boot."""
        return self.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip()

    def wait_up(
        self, deadline: float = 60, *, not_boot: str | None = None, docker: bool = True
    ) -> None:
        """Return once the host takes SSH logins and (unless `docker` is False) dockerd answers.

        With `not_boot`, only a boot of another id counts. Raises LabError after `deadline`,
        or at once when the host is off.
        """
        end = time.monotonic() + deadline
        # docker.socket answers before dockerd is there: the call waits for it
        script = "cat /proc/sys/kernel/random/boot_id"
        if docker:
            script += " && docker version >/dev/null"
        said = "no SSH server on port 22"
        while time.monotonic() < end:
            if not power.is_on(self.lab, self.name):
                raise LabError(f"{self.name} is off: see {self.console_log}")
            if self._listens():
                try:
                    answer = self.run(script, check=False, timeout=max(end - time.monotonic(), 1))
                except Lost as error:
                    raise LabError(f"{self.name} is up but dockerd does not answer") from error
                if answer.status == 0 and answer.stdout.strip() != not_boot:
                    return
                said = answer.stderr.strip() or said
            time.sleep(0.05)
        raise LabError(f"{self.name} was not up after {deadline:.0f} s ({said})")

    def _listens(self) -> bool:
        network.require(self.lab)
        try:
            with socket.create_connection((self.address, 22), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    @property
    def console_log(self) -> Path:
        """What systemd said on the console, all boots; kept by this machine."""
        return self.lab.host_directory(self.name) / "console.log"

    def power_off(self) -> None:
        """Power loss: everything on the host dies at once. Returns when it is off."""
        power.off(self.lab, self.name)

    def power_on(self, *, wait: bool = True) -> None:
        """Boot a host that is off; with `wait`, until it is up."""
        power.on(self.lab, self.name)
        if wait:
            self.wait_up()

    def reboot(self, *, wait: bool = True) -> None:
        """`systemctl reboot` from inside; with `wait`, until it is up again."""
        before = self.boot_id()
        # the connection often ends before ssh hears the exit status
        self.run(["systemctl", "reboot"], check=False)
        if wait:
            self.wait_up(not_boot=before)

    def reset(self) -> None:
        """Back to what `rollpin lab up` left: only the production containers, serving."""
        from rollpin.lab import furnish

        furnish.reset(self)


def hosts(lab: Lab) -> list[Host]:
    """The lab's hosts, in order."""
    return [Host(lab, seat) for seat in lab.seats]


def open_host(name: str, lab: str | None = None) -> Host:
    """The host of that name in a lab that is up (default: the lab of ROLLPIN_LAB)."""
    opened = load(lab)
    return Host(opened, opened.seat(name))
