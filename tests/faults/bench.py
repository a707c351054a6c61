"""A host of the sweep: brought to where a scenario starts, hurt, and looked at from outside."""

from __future__ import annotations

import json
import os
import shlex
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from rollpin.errors import RollpinError
from rollpin.lab import furnish, machine, network
from rollpin.lab.host import Host
from tests.faults.gate import Counter
from tests.faults.judge import standing
from tests.lab.controller import QUICK, STATE, Controller, untouched_since

LEASE = 4.0  # seconds; the guard acts that long after the last renewal
DEADLINE = "40s"  # from a start to ready
BOUND = 90.0  # seconds within which a hurt host must have ended live or restored

# A data root or a state directory that can be filled without filling this machine.
_ON_TMPFS = {
    "state": (STATE, "48m", ""),
    "docker": ("/var/lib/docker", "1500m", "docker.service docker.socket"),
}


class Bench:
    """One host of the lab. Every wait is bounded by BOUND and raises AssertionError."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.gate = Counter(host)
        self.layout = "plain"

    # Where a scenario starts.

    def fresh(self, layout: str = "plain") -> None:
        """Production and dsv4_scan serve, nothing of rollpin is there."""
        self.host.power_on()
        self._on_disk()
        self.host.reset()
        image = furnish.image(self.host)
        quick = [word for k, v in QUICK.items() for word in ("--env", f"{k}={v}")]
        production = furnish.production(image)
        production[3:3] = quick
        self.host.run(
            f"docker rm -f {furnish.PRODUCTION} {furnish.IDLE} >/dev/null 2>&1;"
            f" {shlex.join(production)} >/dev/null && {shlex.join(furnish.idle(image))} >/dev/null",
            timeout=120,
        )
        furnish.wait_healthy(self.host)
        if layout != "plain":
            self._on_tmpfs(layout)
            furnish.wait_healthy(self.host)

    def ensure(self, scenario: str, layout: str) -> None:
        """The state that this scenario starts from; anew when what is there does not do."""
        try:
            done = self.releases() if self.layout == layout and self.whole() else None
        except (RollpinError, ValueError):
            done = None
        if done is None or (scenario == "first" and done):
            self.fresh(layout)
            done = []
        while len(done) < {"first": 0, "next": 1, "failed": 1, "rollback": 2}[scenario]:
            self.deploy()
            done = self.releases()
        if scenario == "rollback" and not self._replaces(done[-1]):
            self.deploy()

    def releases(self) -> list[int]:
        text = self.host.run(f"ls -d {STATE}/glm53/releases/*/committed 2>/dev/null || true").stdout
        return sorted(int(line.split("/")[-2]) for line in text.splitlines())

    def whole(self) -> bool:
        """Somebody serves, and nothing is open or half there."""
        now = standing(self.host)
        ours = now.containers.get("glm53")
        done = [n for n, s in now.releases.items() if s == "committed"]
        if len(done) != len(now.releases):
            return False
        if done:
            down = ("exited", "created")
            alone = [n for n, (_, s, _) in now.containers.items() if s not in down] == ["glm53"]
            return alone and ours is not None and ours[1:] == ("running", "unless-stopped:0")
        wanted = {furnish.PRODUCTION: "running", furnish.IDLE: "running"}
        return {n: s for n, (_, s, _) in now.containers.items()} == wanted

    def _replaces(self, number: int) -> int:
        text = self.host.run(f"cat {STATE}/glm53/releases/{number}/release.json").stdout
        record = json.loads(text)
        target = int(record.get("replaces") or 0)
        # One that was pruned would be made again first, which moves every boundary.
        kept = f"glm53.r{target}" in standing(self.host).containers
        return target if kept and (record.get("serves") or {}).get("id") else 0

    def deploy(self) -> None:
        """A deploy that nobody hurts ends live."""
        with Controller(self.host, rollpin_start_deadline=DEADLINE) as run:
            status = run.end(BOUND)
            assert status == 0, f"an undisturbed deploy ended with {status}:\n{run.output[-3000:]}"
            assert run.word() == "live"

    # A small filesystem under what is to be filled.

    def _on_tmpfs(self, layout: str) -> None:
        path, size, units = _ON_TMPFS[layout]
        stop = f"systemctl stop {units};" if units else ""
        start = f"systemctl reset-failed {units}; systemctl start docker.service;" if units else ""
        running = self.host.run("docker ps -q --no-trunc").stdout.split()
        self.host.run(
            f"set -e; {stop} mkdir -p {path} /run/own; mount --bind {path} /run/own;"
            # what is mounted over it must not appear there too
            " mount --make-private /run/own;"
            f" mount -t tmpfs -o size={size},mode=755 none {path}; cp -a /run/own/. {path}/;"
            f" umount /run/own; {start}",
            timeout=120,
        )
        if units:
            self.host.run(["docker", "start", *running], timeout=120)
        self.layout = layout

    def _on_disk(self) -> None:
        """Also after a sweep that died with one of them mounted."""
        for path, _, units in _ON_TMPFS.values():
            stop = f"systemctl stop {units};" if units else ""
            start = "systemctl reset-failed; systemctl start docker.service;" if units else ""
            self.host.run(
                f'small() {{ [ "$(findmnt -n -o FSTYPE --target {path} | tail -n 1)" = tmpfs ]; }};'
                f" small || exit 0; {stop} while small; do umount -l {path}; done; {start}",
                check=False,
                timeout=120,
            )
        self.layout = "plain"

    def fill(self) -> None:
        path = _ON_TMPFS[self.layout][0]
        for size in ("1M", "4k"):
            self.host.run(
                f"dd if=/dev/zero bs={size} of={path}/filler-of-the-sweep"
                " oflag=append conv=notrunc status=none",
                check=False,
            )

    def unfill(self) -> None:
        with suppress(RollpinError, KeyError):
            self.host.run(["rm", "-f", f"{_ON_TMPFS[self.layout][0]}/filler-of-the-sweep"])

    # From outside.

    def open_release(self) -> str:
        """`armed`, `restoring` or `rolling-back`; "" when no transaction is open."""
        folder = self.gate.inside(STATE.lstrip("/"))
        if folder is None:
            return "off"
        for state in ("armed", "restoring", "rolling-back"):
            if list(folder.glob(f"*/releases/*/{state}")):
                return state
        return ""

    def await_true(self, what: str, condition: Callable[[], bool], within: float = BOUND) -> None:
        end = time.monotonic() + within
        while not condition():
            assert time.monotonic() < end, f"{self.host.name}: not within {within:g} s: {what}"
            time.sleep(0.03)

    def await_ended(self) -> None:
        """No transaction is open any more, whoever ended it."""
        self.await_true("the transaction has ended", lambda: self.open_release() == "")

    def cable(self, state: str) -> None:
        """Pulls the host's network cable (`down`) or puts it back (`up`)."""
        name = f"vb-{network.mark(self.host.lab.name)}-{self.host.name}"
        if Path("/sys/class/net", name).exists():
            machine.run(["ip", "link", "set", name, state])

    def registry_away(self, away: bool) -> None:
        address, _, port = self.host.lab.registry.partition(":")
        rule = f"to {address} ipproto tcp dport {port} unreachable priority 100"
        self.host.run(f"ip rule {'add' if away else 'del'} {rule}", check=away)

    def running_since(self) -> str:
        return untouched_since(self.host)


class Watch:
    """Asks the service for its health from outside; `seconds` is how long it was last away after
    `start`, None when it never was asked with success at all.
    """

    def __init__(self, host: Host) -> None:
        self._url = f"http://{host.address}:{furnish.PORT}/health"
        self._over = Event()
        self._last_bad = self._began = time.monotonic()
        self._thread = Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while not self._over.wait(0.1):
            try:
                with urllib.request.urlopen(self._url, timeout=2) as answer:
                    good = answer.status == 200
            except OSError:
                good = False
            if not good:
                self._last_bad = time.monotonic()

    def seconds(self) -> float:
        """From the fault to the last time that nobody served."""
        self._over.set()
        self._thread.join(5)
        return round(self._last_bad - self._began, 1)


def token() -> str:
    """Makes one deploy another release than the last."""
    return os.urandom(6).hex()
