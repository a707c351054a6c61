"""Going on with a transaction whose controller is gone, and not with one whose controller lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollpin.lab.host import Host

from .controller import (
    ROOT,
    STATE,
    Controller,
    as_it_was,
    await_on_host,
    furnished,
    gate,
    journal,
    look,
    release_file,
    side_by_side,
)

ROLLPIN = str(Path(sys.executable).with_name("rollpin"))
NEVER_READY = {"ROLLPIN_LAB_FAULT": "slow:600"}
# Half of it is watched.
LEASE = "12s"

Story = Callable[[Host], None]


def resume(host: Host) -> Controller:
    return Controller(host, "resume")


def events(host: Host) -> list[str]:
    """Of the newest release: the host may have had others."""
    all_of_them = journal(host)
    return [e["event"] for e in all_of_them if e["release"] == all_of_them[-1]["release"]]


def serves(host: Host) -> None:
    """The release is committed, answers, and nothing of its transaction is left."""
    names = {x.split()[2]: x.split()[3] for x in look(host) if x.startswith("container ")}
    assert names["/glm53"] == "running"
    assert [x for x in look(host) if x.endswith(" committed")]
    assert not [x for x in look(host) if x.startswith(("unit ", "file /etc/", "file /run/"))]


def killed_while_waiting(host: Host) -> None:
    """`rollpin resume` as a person types it."""
    furnished(host)
    with Controller(host, engine={"ROLLPIN_LAB_FAULT": "slow:4"}, lease=LEASE) as run:
        run.wait_for("] waiting for")
        run.kill()
    done = subprocess.run(
        [ROLLPIN, "resume", host.name, "-i", "inventory/lab.py"],
        cwd=ROOT,
        env={**os.environ, "ROLLPIN_LAB": host.lab.name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done
    assert f"{host.name}: glm53 live, release " in done.stdout, done
    assert events(host)[-2:] == ["commit", "committed"]
    assert events(host).count("resume") == 1
    serves(host)


def killed_between_arm_and_swap(host: Host) -> None:
    """It is armed, and arm.sh asks for the last time whether the guard runs."""
    furnished(host)
    asks = "is-active --quiet rollpin-guard"
    with gate(host, asks, "systemctl") as held, Controller(host, lease=LEASE) as run:
        held.reached()
        run.kill()
        await_on_host(host, release_file("armed"))
        held.open()
        assert "swap" not in events(host)
        with resume(host) as other:
            assert other.end() == 0
            assert other.word() == "live"
            assert "following it" not in other.output
    serves(host)


def killed_in_the_swap(host: Host) -> None:
    """The swap stands in its stop; the other controller follows it to its end."""
    furnished(host)
    with gate(host, "stop -t 120") as held, Controller(host, lease=LEASE) as run:
        held.reached()
        run.kill()
        with resume(host) as other:
            other.wait_for("] the swap had been started before")
            held.open()
            assert other.end() == 0
            assert other.word() == "live"
    serves(host)


def the_swap_was_killed_too(host: Host) -> None:
    """Nobody serves, and nobody is at work: it goes back."""
    before = furnished(host)
    with gate(host, " start ") as held, Controller(host, lease=LEASE) as run:
        held.reached()
        run.kill()
        host.run("systemctl kill --signal=KILL 'rollpin-swap-*'")
        held.open()
        with resume(host) as other:
            assert other.end() == 1
            assert other.word() == "restored"
    as_it_was(host, before)


def refused_while_its_controller_lives(host: Host) -> None:
    before = furnished(host)
    with Controller(host, engine=NEVER_READY, lease=LEASE) as run:
        run.wait_for("] waiting for")
        now = look(host)
        with resume(host) as other:
            assert other.end() == 1
            assert other.word() == "refused"
            said = other.verdict()
        by_hand = f"sudo sh {STATE}/glm53/releases/"
        for part in ("is owned by ", " since 2", "of it are left", by_hand, "rollpin abort"):
            assert part in said, said
        assert look(host) == now
        assert "resume" not in events(host)
        run.send(signal.SIGTERM)
        assert run.end() == 1
        assert run.word() == "restored"
    as_it_was(host, before)


def goes_back_when_it_never_gets_ready(host: Host) -> None:
    before = furnished(host)
    with Controller(host, engine=NEVER_READY, rollpin_start_deadline="20s", lease=LEASE) as run:
        run.wait_for("] waiting for")
        run.kill()
    with resume(host) as other:
        assert other.end() == 1
        assert other.word() == "restored"
        assert "not ready within" in other.verdict()
    as_it_was(host, before)
    assert "resume" in events(host)


def its_controller_wakes_up(host: Host) -> None:
    """While the other one waits: it ends, and takes nothing back."""
    furnished(host)
    with Controller(host, engine={"ROLLPIN_LAB_FAULT": "slow:20"}, lease=LEASE) as run:
        run.wait_for("] waiting for")
        run.send(signal.SIGSTOP)
        with resume(host) as other:
            other.wait_for("] taken over from")
            run.send(signal.SIGCONT)
            assert run.end() == 1
            assert run.word() == "in doubt"
            assert "touches nothing more" in run.verdict()
            assert other.end() == 0
            assert other.word() == "live"
    assert "restoring" not in events(host)
    serves(host)


def its_controller_wakes_up_too_late(host: Host) -> None:
    """The other one has committed: it says so."""
    furnished(host)
    with Controller(host, engine={"ROLLPIN_LAB_FAULT": "slow:2"}, lease=LEASE) as run:
        run.wait_for("] waiting for")
        run.send(signal.SIGSTOP)
        with resume(host) as other:
            assert other.end() == 0
        run.send(signal.SIGCONT)
        run.end()
        assert run.word() == "live"
    serves(host)


def interrupted_after_it_was_taken_over(host: Host) -> None:
    """Ctrl-C in the terminal that hung: the other one's work stays."""
    furnished(host)
    with Controller(host, engine={"ROLLPIN_LAB_FAULT": "slow:20"}, lease=LEASE) as run:
        run.wait_for("] waiting for")
        run.send(signal.SIGSTOP)
        with resume(host) as other:
            other.wait_for("] taken over from")
            run.send(signal.SIGINT)
            run.send(signal.SIGCONT)
            assert run.end() == 1
            assert run.word() == "in doubt"
            assert other.end() == 0
            assert other.word() == "live"
    serves(host)


def two_at_once(host: Host) -> None:
    furnished(host)
    with Controller(host, engine={"ROLLPIN_LAB_FAULT": "slow:6"}, lease=LEASE) as run:
        run.wait_for("] waiting for")
        run.kill()
    with resume(host) as one, resume(host) as two:
        ends = sorted([one.end(), two.end()])
        assert ends == [0, 1]
        assert sorted([one.word(), two.word()]) == ["live", "refused"]
    assert events(host).count("resume") == 1
    serves(host)


def taken_over_twice(host: Host) -> None:
    furnished(host)
    with Controller(host, engine={"ROLLPIN_LAB_FAULT": "slow:15"}, lease=LEASE) as run:
        run.wait_for("] waiting for")
        run.kill()
    with resume(host) as other:
        other.wait_for("] waiting for")
        other.kill()
    with resume(host) as third:
        assert third.end() == 0
        assert third.word() == "live"
    assert events(host).count("resume") == 2
    serves(host)


def nothing_is_open(host: Host) -> None:
    before = furnished(host)
    with resume(host) as run:
        assert run.end() == 0
        assert f"{host.name}: resume unchanged" in run.output
    assert look(host) == before


def a_rollback(host: Host) -> None:
    """Its container was there before, and so was its own service."""
    furnished(host)
    with Controller(host) as first:
        assert first.end() == 0
    with Controller(host, lease="5s") as second:
        assert second.end() == 0
    with gate(host, " start ") as held, Controller(host, "rollback", lease=LEASE) as run:
        held.reached()
        run.kill()
        held.open()
    with resume(host) as other:
        assert other.end() == 0
        assert other.word() == "live"
        assert "rolled back to release" in other.output
    serves(host)


def none_after_a_reboot(host: Host) -> None:
    """The boot unit has gone back: there is nothing to go on with."""
    before = furnished(host)
    with Controller(host, engine=NEVER_READY, lease="10m") as run:
        run.wait_for("] waiting for")
        run.kill()
    host.reboot()
    as_it_was(host, before, 40)
    with resume(host) as other:
        assert other.end() == 0
        assert "unchanged" in other.output
    as_it_was(host, before)


STORIES: list[Story] = [
    killed_while_waiting, refused_while_its_controller_lives, its_controller_wakes_up,
    # slow from here on
    killed_between_arm_and_swap, goes_back_when_it_never_gets_ready, two_at_once,
    killed_in_the_swap, its_controller_wakes_up_too_late, interrupted_after_it_was_taken_over,
    the_swap_was_killed_too, taken_over_twice, nothing_is_open,
    a_rollback, none_after_a_reboot,
]  # fmt: skip


def _rounds() -> Iterator[Any]:
    """Three stories a round, one on each host."""
    for first in range(0, len(STORIES), 3):
        three = STORIES[first : first + 3]
        marks = [pytest.mark.slow] if first else []
        yield pytest.param(three, marks=marks, id=", ".join(s.__name__ for s in three))


@pytest.mark.parametrize("stories", list(_rounds()))
def test_stories(all_hosts: list[Host], stories: list[Story]) -> None:
    hosts = all_hosts[: len(stories)]
    side_by_side(hosts, lambda host: stories[all_hosts.index(host)](host))
