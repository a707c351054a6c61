"""Containers that cannot simply be stopped: refused by name, permitted with what is lost said
before, and watched until the commit. The owners are real: systemd, loops, containers.

Every story is told on one host; three of them run side by side, and the slow turns tell each
story on the other two hosts.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from rollpin.lab import furnish
from rollpin.lab.host import Host

from .controller import (
    STATE,
    Controller,
    as_it_was,
    await_on_host,
    furnished,
    journal,
    look,
    side_by_side,
    untouched_since,
)

NEVER_READY = {"ROLLPIN_LAB_FAULT": "slow:600"}
CRASHES = {"ROLLPIN_LAB_FAULT": "crash-load"}
PRODUCTION = furnish.PRODUCTION
UNIT = "lab-owner.service"
STOP = f"sudo systemctl stop {UNIT}"
RESTARTS = (
    *(f"/usr/bin/docker start -a {PRODUCTION}", "Restart=always", "RestartSec=0.1"),
    *("[Unit]", "StartLimitIntervalSec=0"),
)

Story = Callable[[Host], None]


def refused(host: Host, *words: str, **data: Any) -> None:
    """A deploy is refused with these words, and touches nothing."""
    since = untouched_since(host)
    said_refused(host, *words, **data)
    assert untouched_since(host) == since


def said_refused(host: Host, *words: str, **data: Any) -> None:
    with Controller(host, **data) as run:
        assert run.end() == 1
        assert run.word() == "refused"
        said = run.verdict()
    for word in words:
        assert word in said, said


def live(host: Host, *words: str, **data: Any) -> None:
    """A deploy goes live, and its plan has these words."""
    with Controller(host, **data) as run:
        assert run.end(120) == 0
        assert run.word() == "live"
        for word in words:
            assert word in run.output


def state_of(host: Host, name: str) -> str:
    found = host.container(name)
    assert found is not None, name
    return str(found["State"]["Status"])


@contextmanager
def relabelled(host: Host, *options: str) -> Iterator[list[str]]:
    """Production, stood up anew with these options; how the host looks then. Gone afterwards."""
    furnished(host)
    words = furnish.production(furnish.image(host))
    words[3:3] = options
    host.run(f"docker rm -f {PRODUCTION} && {shlex.join(words)}", timeout=60)
    furnish.wait_healthy(host)
    try:
        yield look(host)
    finally:
        host.run(["docker", "rm", "-f", PRODUCTION])


def sitting(host: Host, name: str, *options: str, command: Sequence[str] = ()) -> None:
    """A container beside production that only sits there."""
    words = ["docker", "run", "-d", "--name", name, *options, furnish.image(host)]
    host.run([*words, *(command or ("python3", "-c", furnish.SIT))])


@contextmanager
def idle_one(host: Host, *options: str, command: Sequence[str] = ()) -> Iterator[None]:
    """The idle container that the profile displaces, run with these options. Gone afterwards."""
    host.run(f"docker rm -f {furnish.IDLE}", check=False)
    sitting(host, furnish.IDLE, "--gpus", "all", *options, command=command)
    try:
        yield
    finally:
        host.run(f"docker rm -f {furnish.IDLE}", check=False)


@contextmanager
def unit(host: Host, command: str, *lines: str) -> Iterator[None]:
    """A service of the host that runs; its end leaves the container alone."""
    text = "\n".join(["[Service]", f"ExecStart={command}", "KillSignal=SIGKILL", *lines, ""])
    host.run(
        f"cat >/etc/systemd/system/{UNIT} && systemctl daemon-reload && systemctl start {UNIT}",
        stdin=text,
    )
    try:
        yield
    finally:
        host.run(
            f"systemctl stop {UNIT}; rm -f /etc/systemd/system/{UNIT}; systemctl daemon-reload;"
            f" systemctl reset-failed {UNIT}",
            check=False,
        )


# --- who fights back ------------------------------------------------------------------------------


def a_unit_starts_it_again(host: Host) -> None:
    """Refused by the unit's name; permitted, the release is taken back."""
    before = furnished(host)
    with unit(host, *RESTARTS):
        told = f"the systemd unit {UNIT} (Restart=always) runs it"
        refused(host, told, STOP, f"DISPLACES={PRODUCTION}:anyway", f"--data allow={PRODUCTION}")
        with Controller(host, engine=NEVER_READY, lease="10m", allow=PRODUCTION) as run:
            run.wait_for(f"permitted by --data allow: the systemd unit {UNIT} sees it stop")
            assert run.end() == 1
            assert run.word() == "restored"
            assert f"{PRODUCTION} rose again: the systemd unit {UNIT} starts it. {STOP}" in (
                run.verdict()
            )
        as_it_was(host, before)
        last = [e for e in journal(host) if e["event"] == "restoring"][-1]
        assert f"rose again: the systemd unit {UNIT}" in last["detail"]


def a_unit_that_was_stopped(host: Host) -> None:
    """As the refusal says: nothing is to be permitted then."""
    furnished(host)
    with unit(host, *RESTARTS):
        refused(host, STOP)
        host.run(STOP.removeprefix("sudo ").split())
        assert state_of(host, PRODUCTION) == "running"
        live(host)
        assert state_of(host, PRODUCTION) == "exited"


def an_enabled_unit_and_its_script(host: Host) -> None:
    """Not active, but at the next boot it would start the container, by a variable of a script."""
    furnished(host)
    script = f"#!/bin/sh\nNAME={PRODUCTION}\nexec docker \\\n  start $NAME\n"
    host.run("cat >/usr/local/bin/lab-owner && chmod 755 /usr/local/bin/lab-owner", stdin=script)
    install = ("RemainAfterExit=no", "[Install]", "WantedBy=multi-user.target")
    with unit(host, "/usr/local/bin/lab-owner", *install):
        host.run(f"systemctl enable {UNIT}; systemctl stop {UNIT}")
        try:
            refused(host, f"the systemd unit {UNIT} starts it at the next boot")
            live(host, f"starts no unit: sudo systemctl start {UNIT}", allow=PRODUCTION)
            note = host.run(f"cat {STATE}/displaced/*.md").stdout
            assert f"permitted by --data allow: the systemd unit {UNIT} sees it stop" in note
        finally:
            host.run(f"systemctl disable {UNIT}; rm -f /usr/local/bin/lab-owner", check=False)


def a_timer_starts_it_again(host: Host) -> None:
    before = furnished(host)
    timer = UNIT.replace(".service", ".timer")
    text = "[Timer]\nOnActiveSec=0\nOnUnitInactiveSec=1\nAccuracySec=100ms\n"
    path = f"/etc/systemd/system/{timer}"
    host.run(["sh", "-c", f"cat >{path}"], stdin=text)
    try:
        with unit(host, f"/usr/bin/docker start {PRODUCTION}", "Type=oneshot"):
            host.run(["systemctl", "start", timer])
            stop = f"sudo systemctl stop {timer} {UNIT}"
            refused(host, f"the systemd unit {UNIT}, which {timer} runs, starts it again", stop)
            with Controller(host, rollpin_settle="600s", lease="10m", allow=PRODUCTION) as run:
                assert run.end() == 1
                assert run.word() == "restored"
                assert f"{PRODUCTION} rose again: the systemd unit {UNIT}" in run.verdict()
            host.run(["systemctl", "stop", timer])
    finally:
        host.run(f"systemctl stop {timer}; rm -f {path}; systemctl daemon-reload", check=False)
    as_it_was(host, before)


def a_crontab_starts_it_again(host: Host) -> None:
    furnished(host)
    line = f"*/5 * * * * root docker start {PRODUCTION} >/dev/null\n"
    host.run("mkdir -p /etc/cron.d && cat >/etc/cron.d/lab-owner", stdin=line)
    try:
        told = "a line of /etc/cron.d/lab-owner starts it again when its time comes"
        refused(host, told, "Take the line out of /etc/cron.d/lab-owner")
    finally:
        host.run("rm -f /etc/cron.d/lab-owner")


# As an autoheal does: through the socket, whenever it is down.
AUTOHEAL = f"""
import http.client, socket, time
while True:
    engine = http.client.HTTPConnection("engine")
    engine.sock = socket.socket(socket.AF_UNIX)
    engine.sock.connect("/var/run/docker.sock")
    engine.request("POST", "/containers/{PRODUCTION}/start")
    engine.getresponse().read()
    engine.close()
    time.sleep(0.1)
"""


def an_autoheal_starts_it_again(host: Host) -> None:
    before = furnished(host)
    sock = ("-v", "/var/run/docker.sock:/var/run/docker.sock")
    env = ("-e", "AUTOHEAL_CONTAINER_LABEL=all", "--network", "host")
    sitting(host, "autoheal", *sock, *env, command=("python3", "-c", AUTOHEAL))
    try:
        refused(host, "autoheal (autoheal) starts it again", "docker stop autoheal")
        both = f"{PRODUCTION},{furnish.IDLE}"
        with Controller(host, rollpin_settle="600s", lease="10m", allow=both) as run:
            assert run.end() == 1
            assert run.word() == "restored"
            assert f"{PRODUCTION} rose again: autoheal (autoheal) starts it" in run.verdict()
    finally:
        host.run(["docker", "rm", "-f", "autoheal"])
    as_it_was(host, before)


def somebody_starts_it_again(host: Host) -> None:
    """A loop in somebody's shell tells nothing before; while it settles it is found out."""
    before = furnished(host)
    with Controller(host, rollpin_settle="600s", lease="10m") as run:
        run.wait_for("] ready and generating")
        host.run(["docker", "start", PRODUCTION])
        assert run.end() == 1
        assert run.word() == "restored"
        assert f"{PRODUCTION} rose again: who starts it is not known" in run.verdict()
    as_it_was(host, before)


def somebody_started_it_for_a_moment(host: Host) -> None:
    """It is down again when it is looked at: its start tells."""
    before = furnished(host)
    with Controller(host, rollpin_settle="600s", lease="10m") as run:
        run.wait_for("] ready and generating")
        host.run(f"docker start {PRODUCTION} && docker kill {PRODUCTION}")
        assert run.end() == 1
        assert f"{PRODUCTION} rose again" in run.verdict()
    as_it_was(host, before)


def another_takes_its_place(host: Host) -> None:
    """A swarm does not start the container again: it makes another one."""
    labels = [f"--label=com.docker.swarm.service.{x}" for x in ("id=s1", "name=chat")]
    with relabelled(host, *labels) as before:
        refused(host, "the swarm service chat owns it", "docker service scale chat=0")
        with Controller(host, rollpin_settle="600s", lease="10m", allow=PRODUCTION) as run:
            run.wait_for("] ready and generating")
            sitting(host, "chat.1.next", "--network", "host", *labels)
            assert run.end() == 1
            assert run.word() == "restored"
            said = f"chat.1.next (in place of {PRODUCTION}) rose again: the swarm service chat"
            assert said in run.verdict()
        host.run(["docker", "rm", "-f", "chat.1.next"])
        as_it_was(host, before)


# --- who suffers ----------------------------------------------------------------------------------


def one_of_its_project_depends_on_it(host: Host) -> None:
    def labels(service: str, needs: str = "") -> tuple[str, ...]:
        key = "com.docker.compose"
        named = {f"{key}.project": "chat", f"{key}.service": service, f"{key}.depends_on": needs}
        return tuple(w for k, v in named.items() for w in ("--label", f"{k}={v}"))

    who = "gateway of the compose project chat"
    with relabelled(host, *labels("engine")):
        needs = labels("gateway", "engine:service_started:false")
        sitting(host, "gateway", "--network", "host", *needs)
        refused(host, f"{who} depends on it", "docker compose -p chat stop gateway")
        live(host, f"{who} goes on without it", allow=PRODUCTION)
        assert state_of(host, "gateway") == "running"


def a_sidecar_shares_its_network(host: Host) -> None:
    furnished(host)
    sitting(host, "metrics", "--network", f"container:{PRODUCTION}")
    refused(host, "metrics shares its network namespace", "docker stop metrics")
    live(host, "when it is back: docker restart metrics", allow=PRODUCTION)
    assert state_of(host, "metrics") == "running"


def a_sidecar_is_displaced_with_it(host: Host) -> None:
    """Nothing is refused: it goes too, and comes back after the one that it needs."""
    furnished(host)
    with idle_one(host, "--restart", "always", "--network", f"container:{PRODUCTION}"):
        before = look(host)
        with Controller(host, engine=CRASHES) as run:
            assert run.end() == 1
            assert run.word() == "restored"
        as_it_was(host, before)


def the_orphan_of_a_sidecar(host: Host) -> None:
    """What it shares was another container's, which is gone: docker starts it no more."""
    furnished(host)
    sitting(host, "other", "--network", "host")
    with idle_one(host, "--restart", "always", "--network", "container:other"):
        host.run(["docker", "rm", "-f", "other"])
        refused(host, f"{furnish.IDLE} (", "once stopped it cannot be started again")


# --- what it loses --------------------------------------------------------------------------------


def a_paused_one_comes_back_running(host: Host) -> None:
    before = furnished(host)
    host.run(["docker", "pause", PRODUCTION])
    refused(host, "it is paused, and a stop loses that", f"docker unpause {PRODUCTION}")
    with Controller(host, engine=CRASHES, allow=PRODUCTION) as run:
        run.wait_for("permitted by --data allow: it is paused: what it held in memory is lost")
        assert run.end() == 1
        assert run.word() == "restored"
    as_it_was(host, before)


def one_that_keeps_crashing(host: Host) -> None:
    furnished(host)
    options = ("--restart", "always", "--network", "host")
    with idle_one(host, *options, command=("sh", "-c", "exit 3")):
        # docker waits twice as long each time
        count = f"$(docker inspect -f '{{{{.RestartCount}}}}' {furnish.IDLE})"
        await_on_host(host, f'[ "{count}" -ge 7 ]', 60)
        restarting = f"docker inspect -f '{{{{.State.Status}}}}' {furnish.IDLE}"
        await_on_host(host, f"{restarting} | grep -q restarting")
        said_refused(host, f"{furnish.IDLE} (", "it is restarting: it cannot be said")
        live(host, "it comes back by one start, which may fail", allow=furnish.IDLE)
        assert state_of(host, furnish.IDLE) == "exited"


def one_that_a_stop_deletes(host: Host) -> None:
    """Refused; permitted, it comes back made again, after a failure and after a rollback."""
    furnished(host)
    with idle_one(host, "--rm", "--network", "host", "--env", "KEPT=here"):
        first = host.container(furnish.IDLE)
        assert first is not None
        words = (f"{furnish.IDLE} (", "it was run with --rm: a stop deletes it")
        refused(host, *words)
        with Controller(host, allow=furnish.IDLE, engine=CRASHES) as run:
            assert run.end(120) == 1
            assert run.word() == "restored"
            assert "it was run with --rm: the stop deletes it" in run.output
        made_again(host, first)
        live(host, "it was run with --rm: the stop deletes it", allow=furnish.IDLE)
        assert host.container(furnish.IDLE) is None
        with Controller(host, "rollback") as run:
            assert run.end(120) == 0
        made_again(host, first)
    with Controller(host, allow="nobody") as run:
        assert run.end() == 1
        assert "--data allow: 'nobody' is not in DISPLACES of the profile" in run.output


def made_again(host: Host, first: dict[str, Any]) -> None:
    """The idle one runs, like the first, under another id, and goes with its stop as before."""
    now = host.container(furnish.IDLE)
    assert now is not None
    assert now["Id"] != first["Id"]
    assert now["State"]["Status"] == "running"
    for key in ("Path", "Args", "Image"):
        assert now[key] == first[key]
    assert sorted(now["Config"]["Env"]) == sorted(first["Config"]["Env"])
    assert now["HostConfig"]["AutoRemove"] is True


def refused_before_anything_is_stopped(host: Host) -> None:
    a_crontab_starts_it_again(host)
    the_orphan_of_a_sidecar(host)


STORIES: list[Story] = [
    a_unit_starts_it_again, a_paused_one_comes_back_running, somebody_starts_it_again,
    # slow from here on
    an_autoheal_starts_it_again, an_enabled_unit_and_its_script, one_that_a_stop_deletes,
    another_takes_its_place, one_of_its_project_depends_on_it, a_sidecar_shares_its_network,
    a_sidecar_is_displaced_with_it, one_that_keeps_crashing, somebody_started_it_for_a_moment,
    a_unit_that_was_stopped, a_timer_starts_it_again, refused_before_anything_is_stopped,
]  # fmt: skip


def _rounds() -> Iterator[Any]:
    """Three stories a round, one on each host; the second and third turn move them on."""
    for turn in range(3):
        for first in range(0, len(STORIES), 3):
            three = STORIES[first : first + 3]
            turned = three[turn:] + three[:turn]
            marks = [pytest.mark.slow] if turn or first else []
            yield pytest.param(turned, marks=marks, id=", ".join(s.__name__ for s in turned))


@pytest.mark.parametrize("stories", list(_rounds()))
def test_stories(all_hosts: list[Host], stories: list[Story]) -> None:
    side_by_side(all_hosts[:3], lambda host: stories[all_hosts.index(host)](host))
