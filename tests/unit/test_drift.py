"""What people and crashes changed since a release was committed, and the command for each."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rollpin.drift import Trouble, troubles
from rollpin.observe import Container, HostState, Unknown
from rollpin.profile_values import Displace

from . import builders as a


def after_release_1(served: dict[str, Any] | None, **production: Any) -> HostState:
    """Release 1 displaced production; `served` changes its container, None removes it."""
    plan = a.plan(a.host(a.production()))
    down: Container = dataclasses.replace(a.down(a.production()), **{"policy": "no", **production})
    own = [] if served is None else [dataclasses.replace(a.served(plan, a.R1), **served)]
    return a.host(
        *own,
        down,
        releases=(a.release(plan, a.R1),),
        displaced_notes=frozenset({down.id}),
    )


def test_what_was_recorded_is_no_trouble() -> None:
    assert troubles(after_release_1({})) == ()


@pytest.mark.parametrize(("auto_remove", "told"), [(True, 0), (False, 1)])
def test_one_that_its_stop_deleted_was_said_to_go(auto_remove: bool, told: int) -> None:
    before = a.production(auto_remove=auto_remove, policy="no")
    wanted = a.profile(displaces=(Displace("glm53-pp4", None, "the profile"),))
    plan = a.plan(a.host(before), wanted)
    state = a.host(
        a.served(plan, a.R1),
        releases=(a.release(plan, a.R1),),
        displaced_notes=frozenset({before.id}),
    )
    assert len(troubles(state)) == told


@pytest.mark.parametrize(
    ("served", "what", "do"),
    [
        ({"status": "exited"}, "does not run: it is exited", "sudo docker start"),
        ({"status": "paused"}, "is paused", "sudo docker unpause"),
        ({"status": "restarting"}, "keeps crashing", "sudo docker logs --tail 100"),
        ({"restart_count": 3}, "was restarted 3 times", "sudo docker logs --tail 100"),
        ({"name": "glm53-old"}, "glm53 is called glm53-old", "sudo docker rename"),
        ({"policy": "no"}, "has restart policy no, not unless-stopped", "sudo docker update"),
        (
            None,
            "is gone from this engine",
            "sudo sh /var/lib/rollpin/glm53/releases/1/restore.sh rollback",
        ),
    ],
)
def test_each_change_of_what_serves(served: dict[str, Any] | None, what: str, do: str) -> None:
    (trouble,) = troubles(after_release_1(served))
    assert what in trouble.what
    assert trouble.do.startswith(do)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"status": "running"}, "came back: it is running"),
        ({"policy": "always"}, "has restart policy always again"),
    ],
)
def test_a_displaced_container_that_comes_back(change: dict[str, Any], what: str) -> None:
    (trouble,) = troubles(after_release_1({}, **change))
    assert what in trouble.what
    assert "docker update --restart no" in trouble.do


def test_a_displaced_container_that_is_gone() -> None:
    state = after_release_1({})
    assert not isinstance(state.containers, Unknown)
    (trouble,) = troubles(dataclasses.replace(state, containers=state.containers[:1]))
    assert trouble == Trouble(
        "glm53-pp4, displaced by glm53 release 1, is gone from this engine:"
        " making it again leaves it stopped",
        f"sudo sh /var/lib/rollpin/glm53/releases/1/recreate-{a.PP4[:12]}.sh",
    )


def beside(state: HostState, other: Container) -> HostState:
    assert not isinstance(state.containers, Unknown)
    return dataclasses.replace(state, containers=(*state.containers, other))


def test_one_that_was_replaced() -> None:
    other = a.container("glm53", a.R3, "python3", image="other/image")
    (trouble,) = troubles(beside(after_release_1(None), other))
    assert "was replaced" in trouble.what
    assert "other/image" in trouble.what
    assert trouble.do == (
        "sudo sh -c 'docker update --restart no 5e5e5e5e5e5e && docker stop 5e5e5e5e5e5e &&"
        " docker rename 5e5e5e5e5e5e glm53.5e5e5e5e5e5e &&"
        " sh /var/lib/rollpin/glm53/releases/1/restore.sh rollback'"
    )


def test_one_that_was_renamed_while_another_took_its_name() -> None:
    other = a.container("glm53", a.R3, "sleep", image="other/image", status="exited")
    (trouble,) = troubles(beside(after_release_1({"name": "glm53-old"}), other))
    assert (
        "glm53 is called glm53-old, and 5e5e5e5e5e5e (other/image) bears its name" in trouble.what
    )
    assert trouble.do == (
        "sudo sh -c 'docker rename 5e5e5e5e5e5e glm53.5e5e5e5e5e5e &&"
        " docker rename 3c3c3c3c3c3c glm53'"
    )


STARTED = "2026-11-29T20:00:00.123456789Z"


@pytest.mark.parametrize(
    ("now", "uptime", "told"),
    [
        ({"started_at": STARTED}, 1e6, False),
        ({"started_at": "2026-11-29T21:00:00Z"}, 1e6, True),
        # the host was started since: so was everything on it
        ({"started_at": "2026-11-29T21:00:00Z"}, 3600.0, False),
        ({"started_at": "2026-11-29T21:00:00Z", "status": "exited"}, 1e6, False),
    ],
)
def test_one_that_was_restarted_by_hand(now: dict[str, Any], uptime: float, told: bool) -> None:
    state = dataclasses.replace(
        after_release_1(now), uptime=uptime, verified={("glm53", 1): (a.R1, STARTED)}
    )
    found = [t for t in troubles(state) if "was restarted after its commit" in t.what]
    assert bool(found) is told
    if told:
        assert found[0].minor
        assert found[0].do == (
            "sudo docker logs --since 2026-11-29T21:00:00Z --tail 100 3c3c3c3c3c3c"
        )


def test_one_that_was_updated() -> None:
    state = after_release_1({})
    assert not isinstance(state.containers, Unknown)
    own, *rest = state.containers
    limits = {"Memory": 1073741824, "NanoCpus": 0, "CpusetCpus": "0-3", "PidsLimit": None}
    record = {**own.record, "HostConfig": {**own.record["HostConfig"], **limits}}
    own = dataclasses.replace(own, record=record)
    (trouble,) = troubles(dataclasses.replace(state, containers=(own, *rest)))
    assert "was updated: Memory is 1073741824, CpusetCpus is 0-3" in trouble.what
    assert trouble.do == (
        "sudo docker inspect --format"
        " 'Memory={{.HostConfig.Memory}} CpusetCpus={{.HostConfig.CpusetCpus}}' 3c3c3c3c3c3c"
    )


def test_a_transaction_under_way_is_no_drift() -> None:
    state = after_release_1(None)
    assert not isinstance(state.releases, Unknown)
    opened = dataclasses.replace(state.releases[0], state="armed")
    assert troubles(dataclasses.replace(state, releases=(opened,))) == ()


def test_what_a_command_is_made_of_is_quoted() -> None:
    state = after_release_1({"name": "glm53-old"})
    assert not isinstance(state.releases, Unknown)
    (release,) = state.releases
    serves = {**release.record["serves"], "name": "x; reboot"}
    hostile = dataclasses.replace(release, record={**release.record, "serves": serves})
    (trouble,) = troubles(dataclasses.replace(state, releases=(hostile,)))
    assert trouble.do.endswith(" 'x; reboot'")
