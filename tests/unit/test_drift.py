"""What people and crashes changed since a release was committed, and the command for each."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rollpin.drift import Trouble, troubles
from rollpin.observe import Container, HostState, Unknown

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
        " it cannot be given back",
        f"sudo cat /var/lib/rollpin/displaced/{a.production().id}.md",
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
