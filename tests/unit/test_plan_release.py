"""The plan of a release: what is unchanged, what it replaces and displaces, pins, warnings."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rollpin import releases
from rollpin.observe import (
    HostState,
    Listener,
    Unknown,
)
from rollpin.plan import Pin
from rollpin.plan_release import plan_release, recorded_pin
from rollpin.plan_rollback import plan_rollback
from rollpin.profile_values import Displace

from . import builders as a
from .builders import FREE, STRANGER, next_plan, stranger


def test_a_free_host_is_deployed_to() -> None:
    plan = a.plan(FREE)
    assert not plan.refused
    assert not plan.unchanged
    assert plan.stops == ()
    assert [(s.before, s.live, s.policy) for s in plan.starts] == [
        ("glm53.r1", "glm53", "unless-stopped")
    ]
    assert plan.baseline is None
    assert (plan.number, plan.current, plan.replaces) == (1, 0, 0)


# Unchanged


def serving(**changes: Any) -> HostState:
    """Release 1 as the profile asks for it."""
    history = a.with_release_1()
    return dataclasses.replace(history.state, **changes)


def with_live(**changes: Any) -> HostState:
    state = serving()
    assert not isinstance(state.containers, Unknown)
    first, *rest = state.containers
    return dataclasses.replace(state, containers=(dataclasses.replace(first, **changes), *rest))


def test_nothing_to_do_is_unchanged() -> None:
    plan = a.plan(serving())
    assert not plan.refused
    assert plan.unchanged
    assert plan.current == 1


@pytest.mark.parametrize(
    "state",
    [
        with_live(status="exited"),
        with_live(status="paused"),
        with_live(name="glm53.elsewhere"),
        serving(releases=()),
        serving(containers=()),
    ],
)
def test_unchanged_needs_everything(state: HostState) -> None:
    assert not a.plan(state).unchanged


@pytest.mark.parametrize(
    "changes",
    [
        {"argv": ("python3", "-m", "sglang.launch_server", "--tp-size", "8")},
        {"env": {"A": "b"}},
        {"gpus": "none"},
        {"restart_policy": "always"},
        {"shm_size": "16g"},
    ],
)
def test_another_profile_is_a_change(changes: dict[str, Any]) -> None:
    assert not a.plan(serving(), dataclasses.replace(a.profile(), **changes)).unchanged


def test_somebody_in_the_way_is_a_change() -> None:
    state = a.with_release_1(a.scan()).state
    plan = a.plan(state)
    assert not plan.unchanged
    assert [s.container.name for s in plan.stops] == ["glm53", "dsv4_scan"]
    # The service is not alone on the port: not unchanged, and refused.
    more = serving(listeners=(Listener(30000, 9, "nginx", ""),))
    assert not a.plan(more).unchanged
    assert a.plan(more).refused


def test_a_policy_that_drifted_is_said() -> None:
    plan = a.plan(with_live(policy="no"))
    assert plan.unchanged
    assert any("docker update --restart unless-stopped glm53" in w for w in plan.warnings)


# Predecessors and the displaced


def test_the_next_release_replaces_the_one_that_serves() -> None:
    plan = next_plan(a.with_release_1().state)
    (stop,) = plan.stops
    assert (stop.container.id, stop.moved, stop.ours, stop.policy) == (
        a.R1,
        "glm53.r1",
        True,
        "unless-stopped",
    )
    assert (plan.number, plan.current, plan.replaces) == (2, 1, 1)
    assert plan.displaced == ()
    assert plan.baseline is not None
    assert plan.baseline.container == a.R1


def test_the_predecessor_gets_the_policy_that_its_release_gave_it() -> None:
    plan = next_plan(with_live(policy="no"))
    assert plan.stops[0].policy == "unless-stopped"


def test_numbers_are_never_used_twice() -> None:
    assert a.plan(a.host(numbers_used=(1, 7))).number == 8
    r1 = dataclasses.replace(a.plan(FREE), number=9)
    assert a.plan(a.host(releases=(a.release(r1, state="restored"),))).number == 10


def test_after_a_rollback_to_production_no_release_is_current() -> None:
    history = a.with_release_1()
    back = plan_rollback(history.state, "glm53", a.BY)
    state = a.host(
        a.production(),
        a.retired(history.r1, a.R1),
        releases=(a.release(history.r1, a.R1), a.release(back)),
    )
    plan = a.plan(state)
    assert (plan.number, plan.current, plan.replaces) == (3, 0, 0)
    assert [s.container.name for s in plan.displaced] == ["glm53-pp4"]


def test_a_foreign_container_with_our_name_moves_aside() -> None:
    wanted = dataclasses.replace(a.profile(), displaces=(Displace("glm53"),))
    foreign = a.container("glm53", STRANGER, *a.PP4_ARGV)
    (stop,) = a.plan(a.host(foreign), wanted).stops
    assert stop.moved == "glm53.displaced-7f7f7f7f7f7f"


def test_displaced_twice_keeps_the_first_policy() -> None:
    """Somebody started dsv4_scan by hand while it was displaced: its policy was already taken."""
    history = a.with_release_1(displaced=(a.production(), a.scan()))
    state = history.state
    assert not isinstance(state.containers, Unknown)
    risen = [
        dataclasses.replace(c, status="running", policy="no") if c.id == a.SCAN else c
        for c in state.containers
    ]
    plan = next_plan(dataclasses.replace(state, containers=tuple(risen)))
    assert not plan.refused
    (stop,) = plan.displaced
    assert (stop.container.policy, stop.policy) == ("no", "always")
    # and the release after that one, from the record of this one
    records = (*a.known_releases(state), a.release(plan, a.R2, at="2026-12-01T00:00:00Z"))
    later = dataclasses.replace(state, releases=records)
    assert releases.displaced_now(later)[a.SCAN].policy == "always"


# Baseline


def test_the_baseline_is_whoever_holds_the_port() -> None:
    plan = a.plan(a.host(a.scan(), a.production()))
    assert plan.baseline is not None
    assert plan.baseline.container == a.PP4
    assert plan.baseline.port == 30000


def test_a_container_without_a_known_engine_has_no_baseline() -> None:
    assert a.plan(a.host(a.scan())).baseline is None


# Pins


def nightly(state: HostState) -> str | None:
    return recorded_pin(a.profile(a.NIGHTLY), state)


def recorded(digest: str) -> HostState:
    wanted = a.profile(a.NIGHTLY)
    found = Pin(a.REPOSITORY, wanted.image_tag, digest, "resolved", digest)
    r1 = plan_release(wanted, found, FREE, a.BY)
    return a.host(a.served(r1, a.R1), releases=(a.release(r1, a.R1),))


def test_a_recorded_pin_is_kept() -> None:
    state = recorded(a.DIGEST)
    assert nightly(state) == a.DIGEST
    assert nightly(FREE) is None
    other_tag = dataclasses.replace(a.profile(a.NIGHTLY), image_tag="latest")
    assert recorded_pin(other_tag, state) is None
    elsewhere = dataclasses.replace(a.profile(a.NIGHTLY), image_repository="mirror/sglang")
    assert recorded_pin(elsewhere, state) is None
    kept = Pin(a.REPOSITORY, a.profile(a.NIGHTLY).image_tag, a.DIGEST, "recorded")
    assert plan_release(a.profile(a.NIGHTLY), kept, state, a.BY).unchanged


def test_a_tag_that_moved_is_said_and_the_pin_kept() -> None:
    plan = a.plan(FREE, pin=a.pin(tag_now=a.OTHER_DIGEST))
    assert plan.pin is not None
    assert plan.pin.moved
    assert f"{a.REPOSITORY}@{a.profile().pin}" in plan.create
    (warning,) = (w for w in plan.warnings if "points to" in w)
    assert a.OTHER_DIGEST in warning
    assert f"keeps its pin {a.profile().pin}" in warning
    assert not any("points" in w for w in a.plan(FREE, pin=a.pin(tag_now=a.profile().pin)).warnings)


def test_a_tag_that_could_not_be_asked_is_said() -> None:
    plan = a.plan(FREE, pin=a.pin(tag_now=Unknown("timeout")))
    assert "where the tag latest points now is not known (timeout)" in plan.warnings


def test_live_restore_off_is_said() -> None:
    off = dataclasses.replace(a.ENGINE, live_restore=False)
    assert any("live-restore is off" in w for w in a.plan(a.host(engine=off)).warnings)
    always = dataclasses.replace(a.profile(), restart_policy="always")
    assert not any("live-restore" in w for w in a.plan(a.host(engine=off), always).warnings)


# Purity


def test_the_pure_core_imports_no_io() -> None:
    modules = (
        "plan plan_release plan_rollback scripts note record verdict preflight releases"
        " collisions command_line observe profile policy fingerprint engines"
    )
    code = (
        f"import sys; [__import__('rollpin.' + m) for m in '{modules}'.split()];"
        "print(sorted({'pyinfra', 'docker', 'paramiko', 'gevent', 'requests'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_plan_reads_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    def never(*_: object) -> Callable[[], float]:
        raise AssertionError("a clock was read")

    for clock in ("time", "monotonic", "time_ns"):
        monkeypatch.setattr(time, clock, never)
    for name in ("HOME", "USER", "PATH"):
        monkeypatch.delenv(name, raising=False)
    assert not a.plan(a.host(a.production(), a.scan())).refused


def test_gpu_holders_are_sorted_and_alive() -> None:
    state = a.host(
        a.scan(),
        a.production(),
        a.container("idle", "6f" * 32, status="exited"),
        a.container("runtime", "0c" * 32, gpus=(), Runtime="nvidia"),
        stranger(),
    )
    assert a.plan(state).gpu_holders == ("0c" * 32, a.PP4, a.SCAN)
