"""Who takes the host back when the controller cannot: the guard, the boot unit, a person.

Every story is told on one host; three of them run side by side, and the slow turns tell each
story on the other two hosts.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rollpin.lab import furnish
from rollpin.lab.host import Host

from .controller import (
    STATE,
    Controller,
    as_it_was,
    await_on_host,
    by_hand,
    frozen,
    furnished,
    gate,
    journal,
    look,
    release_file,
    send,
    side_by_side,
    untouched_since,
)

NEVER_READY = {"ROLLPIN_LAB_FAULT": "slow:600"}
# The guard polls each second; what it starts then is docker's time.
GUARD = 40.0

Story = Callable[[Host], None]


def _production(before: list[str]) -> str:
    return next(x.split()[1] for x in before if " /glm53-pp4 " in x)


def _restored_by(host: Host) -> str:
    """Who ended the last release by going back, as the journal tells it."""
    last = [e for e in journal(host) if e["event"] == "restored"][-1]
    return str(last["detail"]).rsplit(" ", 1)[-1]


def _next_deploy_works(host: Host) -> None:
    with Controller(host) as run:
        assert run.end() == 0
        assert run.word() == "live"


# --- the controller dies --------------------------------------------------------------------------


def killed_before_arming(host: Host) -> None:
    before = furnished(host)
    since = untouched_since(host)
    with frozen(host, "python3"), Controller(host) as run:
        run.wait_for("| Serve")
        await_on_host(host, "ss -Hltn 'sport = :30000' | awk '{ exit !($2 > 0) }'", 60)
        run.kill()
        assert "] arming" not in run.output
    assert untouched_since(host) == since
    furnish.wait_healthy(host)
    containers = [x for x in look(host) if x.startswith("container ") and " running " in x]
    assert containers == [x for x in before if x.startswith("container ")]
    _next_deploy_works(host)


def killed_while_arming(host: Host) -> None:
    before = furnished(host)
    with Controller(host) as run:
        run.wait_for("] arming")
        await_on_host(host, release_file("armed"))
        run.kill()
        assert "] waiting for" not in run.output
    as_it_was(host, before, GUARD)
    assert _restored_by(host) == "guard"


def killed_in_the_swap(host: Host) -> None:
    """The swap stands before its stop; the guard ends it and goes back."""
    before = furnished(host)
    with gate(host, "stop -t 120") as held, Controller(host) as run:
        run.wait_for("] swapping")
        held.reached()
        run.kill()
        await_on_host(host, release_file("restoring"), GUARD)
        held.open()
        as_it_was(host, before, GUARD)
    assert _restored_by(host) == "guard"
    _next_deploy_works(host)


def killed_between_stop_and_start(host: Host) -> None:
    """Nobody serves any more, and nobody watches."""
    before = furnished(host)
    with gate(host, " start ") as held, Controller(host) as run:
        run.wait_for("] swapping")
        held.reached()
        run.kill()
        await_on_host(host, release_file("restoring"), GUARD)
        held.open()
        as_it_was(host, before, GUARD)
    assert _restored_by(host) == "guard"


def killed_while_waiting(host: Host) -> None:
    before = furnished(host)
    with Controller(host, engine=NEVER_READY) as run:
        run.wait_for("] waiting for")
        run.kill()
    as_it_was(host, before, GUARD)
    assert _restored_by(host) == "guard"
    _next_deploy_works(host)


def killed_while_settling(host: Host) -> None:
    before = furnished(host)
    with Controller(host, rollpin_settle="600s") as run:
        run.wait_for("] ready and generating")
        run.kill()
    as_it_was(host, before, GUARD)
    assert _restored_by(host) == "guard"


# --- the controller sleeps ------------------------------------------------------------------------


def stopped_beyond_the_lease(host: Host) -> None:
    """It wakes to a host that was taken back, and does not commit."""
    before = furnished(host)
    with Controller(host, rollpin_settle="1s") as run:
        run.wait_for("] ready and generating")
        run.send(signal.SIGSTOP)
        as_it_was(host, before, GUARD)
        run.send(signal.SIGCONT)
        assert run.end() == 1
        assert run.word() in ("restored", "restored, unverified")
    as_it_was(host, before)
    assert "committed" not in [e["event"] for e in journal(host)]
    assert _restored_by(host) == "guard"


def restored_from_another_shell(host: Host) -> None:
    """deploys/restore.py, while the first controller hangs."""
    before = furnished(host)
    with Controller(host, engine=NEVER_READY, lease="10m") as run:
        run.wait_for("] waiting for")
        run.send(signal.SIGSTOP)
        with Controller(host, "restore") as other:
            assert other.end() == 0
            assert other.word() == "restored"
        as_it_was(host, before)
        run.send(signal.SIGCONT)
        assert run.end() == 1
        assert run.word() in ("restored", "restored, unverified")
    as_it_was(host, before)


def restored_by_hand(host: Host) -> None:
    """A person with a shell, while the controller waits and watches."""
    before = furnished(host)
    with Controller(host, engine=NEVER_READY, lease="10m") as run:
        run.wait_for("] waiting for")
        by_hand(host)
        as_it_was(host, before)
        assert run.end() == 1
        assert run.word() in ("restored", "restored, unverified")
    as_it_was(host, before)
    assert _restored_by(host) == "person"


# --- the lease ------------------------------------------------------------------------------------


def renewed_while_it_lives(host: Host) -> None:
    """A start-up longer than the lease ends live."""
    furnished(host)
    with Controller(host, engine={"ROLLPIN_LAB_FAULT": "slow:8"}, lease="5s") as run:
        assert run.end() == 0
        assert run.word() == "live"


def a_second_controller_is_refused(host: Host) -> None:
    before = furnished(host)
    with Controller(host, engine=NEVER_READY, lease="10m") as run:
        run.wait_for("] waiting for")
        now = look(host)
        with Controller(host, lease="10m") as other:
            assert other.end() == 1
            assert other.word() == "refused"
            said = other.verdict()
        for part in (
            "glm53 release",
            "by ",
            "since 2",
            "s of its lease left",
            f"rollpin abort {host.name} -i INVENTORY",
            f"rollpin resume {host.name} -i INVENTORY",
            f"sudo sh {STATE}/glm53/releases/",
        ):
            assert part in said, said
        assert look(host) == now
        run.send(signal.SIGTERM)
        assert run.end() == 1
    as_it_was(host, before)


def cut_for_less_than_the_lease(host: Host) -> None:
    furnished(host)
    with Controller(host, engine={"ROLLPIN_LAB_FAULT": "slow:5"}, lease="30s") as run:
        run.wait_for("] waiting for")
        with frozen(host):
            # in sshd's place, for as long as the engine takes
            _engine_binds(host)
        assert run.end() == 0
        assert run.word() == "live"


def _engine_binds(host: Host) -> None:
    """Production's port is bound again; asked from outside, for nobody can log in."""
    furnish.wait_healthy(host)


def cut_for_longer_than_the_lease(host: Host) -> None:
    """The guard restores meanwhile; the controller comes back to that and says so."""
    before = furnished(host)
    with Controller(host, engine=NEVER_READY) as run:
        run.wait_for("] waiting for")
        with frozen(host):
            # production answers again, while nobody can log in
            _engine_binds(host)
        assert run.end() == 1
        assert run.word() in ("restored", "restored, unverified")
    as_it_was(host, before)
    assert _restored_by(host) == "guard"


# --- the host changes under it --------------------------------------------------------------------


def changed_after_it_was_shown(host: Host) -> None:
    """Between the two operations: refused, with what changed; nothing is stopped."""
    before = furnished(host)
    with Controller(host) as run:
        run.wait_for("| Serve")
        run.send(signal.SIGSTOP)
        host.run(["docker", "restart", "glm53-pp4"])
        furnish.wait_healthy(host)
        since = untouched_since(host)
        run.send(signal.SIGCONT)
        assert run.end() == 1
        assert run.word() == "refused"
        assert "glm53-pp4" in run.verdict()
        assert "changed" in run.verdict()
    as_it_was(host, before)
    assert untouched_since(host) == since


def changed_after_arming(host: Host) -> None:
    """swap.sh looks once more, at the last moment, and ends untouched."""
    before = furnished(host)
    words = "{{.Name}} {{.State.Status}} {{.State.StartedAt}}"
    with gate(host, words) as held, Controller(host, lease="10m") as run:
        held.reached()
        host.run(["docker", "restart", "glm53-pp4"])
        furnish.wait_healthy(host)
        since = untouched_since(host)
        held.open()
        assert run.end() == 1
        assert run.word() == "refused"
        assert "changed since the plan" in run.verdict()
    as_it_was(host, before)
    assert untouched_since(host) == since


def dockerd_killed_while_waiting(host: Host) -> None:
    """The new container dies with it (its policy is `no` until the commit): restored."""
    before = furnished(host)
    with Controller(host, engine=NEVER_READY, lease="10m") as run:
        run.wait_for("] waiting for")
        assert send(host, signal.SIGKILL, "dockerd")
        assert run.end(120) == 1
        assert run.word() in ("restored", "restored, unverified")
    as_it_was(host, before)


# --- the host itself goes away --------------------------------------------------------------------


def rebooted_while_waiting(host: Host) -> None:
    """`systemctl reboot`, and a controller that sees nothing of it until all is over."""
    before = furnished(host)
    with Controller(host, engine=NEVER_READY, lease="10m") as run:
        run.wait_for("] waiting for")
        run.send(signal.SIGSTOP)
        host.reboot()
        as_it_was(host, before, GUARD)
        run.send(signal.SIGCONT)
        assert run.end(120) == 1
        assert run.word() in ("restored", "restored, unverified")
    assert _restored_by(host) == "boot"


def power_cut_in_the_swap(host: Host) -> None:
    before = furnished(host)
    with gate(host, " start ") as held, Controller(host) as run:
        held.reached()
        host.power_off()
        host.power_on()
        as_it_was(host, before, GUARD)
        assert run.end(120) == 1
        assert run.word() in ("restored", "restored, unverified")
    assert _restored_by(host) == "boot"


def power_cut_in_the_restore(host: Host) -> None:
    before = furnished(host)
    with (
        gate(host, f"start {_production(before)}") as held,
        Controller(host, engine={"ROLLPIN_LAB_FAULT": "crash-load"}) as run,
    ):
        held.reached()
        host.power_off()
        host.power_on()
        as_it_was(host, before, GUARD)
        assert run.end(120) == 1
        assert run.word() in ("restored", "restored, unverified")
    assert _restored_by(host) == "boot"


def power_cut_after_the_commit(host: Host) -> None:
    """Live stays live; nothing of the transaction comes up at boot."""
    furnished(host)
    _next_deploy_works(host)
    before = look(host)
    host.power_off()
    host.power_on()
    as_it_was(host, before, GUARD)
    assert not [x for x in before if x.startswith(("unit ", "file /etc/", "file /run/"))]
    host.run(["test", "!", "-e", "/etc/systemd/system/multi-user.target.wants/rollpin-boot-glm53"])


def nothing_is_left_in_the_state_directory(host: Host) -> None:
    """After a restore and a commit: no half-written file anywhere."""
    furnished(host)
    with Controller(host, engine={"ROLLPIN_LAB_FAULT": "crash-load"}) as run:
        assert run.end() == 1
        assert run.word() == "restored"
    _next_deploy_works(host)
    left = host.run(
        f"find {STATE} /run/rollpin -name '.*' ! -name .launched -print; ls -A {STATE}"
    ).stdout.split()
    assert sorted(left) == ["RESTORE-glm53", "displaced", "glm53", "mutate.lock"]
    for line in host.run(["cat", f"{STATE}/glm53/journal.jsonl"]).stdout.splitlines():
        json.loads(line)


STORIES: list[Story] = [
    killed_in_the_swap, killed_while_waiting, renewed_while_it_lives,
    a_second_controller_is_refused, cut_for_less_than_the_lease, stopped_beyond_the_lease,
    rebooted_while_waiting, power_cut_in_the_swap, power_cut_after_the_commit,
    # slow from here on, for they resemble the ones above
    cut_for_longer_than_the_lease, restored_by_hand, changed_after_arming,
    killed_while_arming, killed_before_arming, killed_between_stop_and_start,
    killed_while_settling, restored_from_another_shell, changed_after_it_was_shown,
    power_cut_in_the_restore, dockerd_killed_while_waiting, nothing_is_left_in_the_state_directory,
]  # fmt: skip
# The kills of the first round are cells of the fault sweep's sample too.
QUICK_ROUNDS = (1, 2)


def _rounds() -> Iterator[Any]:
    """Three stories a round, one on each host; the second and third turn move them on."""
    for turn in range(3):
        for number, first in enumerate(range(0, len(STORIES), 3)):
            three = STORIES[first : first + 3]
            turned = three[turn:] + three[:turn]
            marks = [pytest.mark.slow] if turn or number not in QUICK_ROUNDS else []
            yield pytest.param(turned, marks=marks, id=", ".join(s.__name__ for s in turned))


@pytest.mark.parametrize("stories", list(_rounds()))
def test_stories(all_hosts: list[Host], stories: list[Story]) -> None:
    side_by_side(all_hosts[:3], lambda host: stories[all_hosts.index(host)](host))
