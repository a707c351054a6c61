"""The scenarios, the faults, and which fault is tried where."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from rollpin.lab.host import Host
from tests.faults.bench import DEADLINE, LEASE, Bench
from tests.faults.judge import Standing, standing
from tests.lab.controller import Controller, frozen, send

SCENARIOS = ("first", "next", "rollback", "failed")
# Lines of the controller that are boundaries of their own: no script runs at that moment.
STEPS = {"baseline": "] baseline:", "waiting": "] waiting for", "ready": "] ready and generating"}


def start(host: Host, scenario: str, mark: str) -> Controller:
    """The run that is hurt. `failed` is a next deploy whose engine dies, so it is taken back."""
    if scenario == "rollback":
        return Controller(host, "rollback", lease=f"{LEASE:g}s")
    engine = {"X": mark}
    if scenario == "failed":
        engine["ROLLPIN_LAB_FAULT"] = "crash-load"
    return Controller(host, engine=engine, lease=f"{LEASE:g}s", rollpin_start_deadline=DEADLINE)


@dataclass(frozen=True)
class Boundary:
    """Before the n-th changing command of the host's scripts, or at a step of the controller."""

    scenario: str
    number: int  # 0: a step of the controller
    words: str

    @property
    def name(self) -> str:
        return f"{self.scenario}/{self.number:02d} {self.words}"

    @property
    def deciding(self) -> bool:
        """After every check: but for the name of a file, what happens here is after the end."""
        last = self.words.split()[-1]
        return self.words.startswith("mv ") and last in ("committed", "restored", "rolled-back")


@dataclass
class Harm:
    """One run being hurt, and what the fault took from the host."""

    bench: Bench
    run: Controller
    mark: str
    boundary: Boundary
    before: Standing
    gone: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    more: list[Controller] = field(default_factory=list)

    @property
    def host(self) -> Host:
        return self.bench.host

    def go_on(self) -> None:
        self.bench.gate.open()

    def removed(self, command: str) -> None:
        """Runs a person's docker command, and notes what it took away."""
        had = standing(self.host)
        self.host.run(command, check=False, timeout=120)
        has = standing(self.host)
        self.gone = frozenset(had.ids) - frozenset(has.ids)
        self.lost = had.rest - has.rest


def _killed(h: Harm) -> None:
    h.run.kill()
    h.go_on()


def _stopped(h: Harm) -> None:
    h.run.send(signal.SIGSTOP)
    h.go_on()
    h.bench.await_ended()
    h.run.send(signal.SIGCONT)


def _interrupted(h: Harm) -> None:
    h.run.send(signal.SIGINT)
    h.go_on()


def _terminated(h: Harm) -> None:
    h.run.send(signal.SIGTERM)
    h.go_on()


def _cut_short(h: Harm) -> None:
    """The host's sshd stands still until its scripts have gone on, at most half a lease."""
    count = h.bench.gate.count()
    with frozen(h.host):
        h.go_on()
        # There may be nothing left of them that goes on.
        with suppress(AssertionError):
            h.bench.await_true("they went on", lambda: h.bench.gate.count() > count, LEASE / 2)


def _cut_long(h: Harm) -> None:
    h.bench.cable("down")
    try:
        h.go_on()
        h.bench.await_ended()
    finally:
        h.bench.cable("up")


def _dockerd(h: Harm) -> None:
    # systemd starts it three times a minute, and a sweep kills it more often
    h.host.run("systemctl reset-failed docker.service docker.socket", check=False)
    assert send(h.host, signal.SIGKILL, "dockerd"), "no dockerd was there"
    h.go_on()


def _reboot(h: Harm) -> None:
    boot = h.host.boot_id()
    h.host.reboot(wait=False)
    h.go_on()
    h.host.wait_up(not_boot=boot)


def _power(h: Harm) -> None:
    h.host.power_off()
    h.host.power_on()


def _full(h: Harm) -> None:
    h.bench.fill()
    h.go_on()


def _registry(h: Harm) -> None:
    h.bench.registry_away(True)
    h.go_on()


def _crash(h: Harm) -> None:
    """The engine that was just judged ready dies by itself: `docker kill` would be a person's."""
    h.host.run("kill -9 $(/usr/bin/docker inspect --format '{{.State.Pid}}' glm53)")
    h.go_on()


def _second(h: Harm) -> None:
    other = start(h.host, h.boundary.scenario, h.mark)
    h.more.append(other)
    try:
        other.wait_for("-->", 30)
    finally:
        h.go_on()


def _removed(h: Harm) -> None:
    """The container that served before."""
    serving = "glm53" if "glm53" in h.before.containers else "glm53-pp4"
    h.removed(f"/usr/bin/docker rm -f {h.before.containers[serving][0]}")
    h.go_on()


def _pruned(h: Harm) -> None:
    h.removed("/usr/bin/docker system prune -af")
    h.go_on()


@dataclass(frozen=True)
class Fault:
    name: str
    inject: Callable[[Harm], None]
    layout: str = "plain"
    only_ready: bool = False  # from the moment on that the engine was judged
    not_failed: bool = False  # not while a failed release is taken back
    ends: bool = True  # the controller lives on and ends by itself
    blind: bool = False  # from outside it cannot be told who serves


FAULTS = {
    f.name: f
    for f in (
        Fault("controller SIGKILL", _killed, ends=False),
        Fault("controller SIGSTOP beyond the lease", _stopped),
        Fault("controller SIGINT", _interrupted),
        Fault("controller SIGTERM", _terminated),
        Fault("connection cut, shorter than the lease", _cut_short),
        Fault("connection cut, longer than the lease", _cut_long, blind=True),
        Fault("dockerd SIGKILL", _dockerd),
        Fault("reboot", _reboot),
        Fault("power loss", _power),
        Fault("disk full, state directory", _full, layout="state"),
        Fault("disk full, docker's", _full, layout="docker"),
        Fault("registry gone", _registry),
        Fault("engine crashes right after ready", _crash, only_ready=True, not_failed=True),
        Fault("second controller, same deploy", _second, not_failed=True),
        Fault("old container removed by hand", _removed),
        Fault("docker system prune -af", _pruned),
    )
}


def applies(fault: Fault, boundary: Boundary, after_ready: bool) -> bool:
    if fault.not_failed and boundary.scenario == "failed":
        return False
    return after_ready or not fault.only_ready


@contextmanager
def cured(h: Harm) -> Iterator[None]:
    """Whatever the fault left on the host that is not the deploy's is taken away again."""
    try:
        yield
    finally:
        for other in h.more:
            other.__exit__(None, None, None)
        h.bench.cable("up")
        if h.bench.layout != "plain":
            h.bench.unfill()
        if h.boundary.scenario:
            h.host.run(
                "while ip rule del priority 100 2>/dev/null; do :; done", check=False, timeout=30
            )
