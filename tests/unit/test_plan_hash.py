"""The hash of a plan, over what decided it; and the words for a difference."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rollpin.observe import (
    Disk,
    HostState,
    Unknown,
)
from rollpin.plan import decided_difference

from . import builders as a
from .builders import FREE, next_plan, stranger

BOTH = a.host(a.production(), a.scan())


def both(index: int, **changes: Any) -> HostState:
    assert not isinstance(BOTH.containers, Unknown)
    containers = list(BOTH.containers)
    containers[index] = dataclasses.replace(containers[index], **changes)
    return dataclasses.replace(BOTH, containers=tuple(containers))


def test_the_hash_is_a_word() -> None:
    assert a.plan(BOTH).hash[0] == "p"
    assert len(a.plan(BOTH).hash) == 13


@pytest.mark.parametrize(
    "state",
    [
        dataclasses.replace(BOTH, now=a.NOW + 900, uptime=5000.0),
        dataclasses.replace(
            BOTH,
            disks={
                p: dataclasses.replace(d, free=7 * 1024**3)
                for p, d in BOTH.disks.items()
                if isinstance(d, Disk)
            },
        ),
        dataclasses.replace(BOTH, numbers_used=(1, 2, 3)),
        dataclasses.replace(BOTH, image=a.IMAGE),
        dataclasses.replace(BOTH, last_log={a.SCAN: a.NOW - 90000, a.PP4: a.NOW}),
        dataclasses.replace(
            BOTH, gpus=tuple(dataclasses.replace(g, memory_used_mib=5) for g in a.gpus())
        ),
        a.host(a.production(), a.scan(), stranger("bystander")),
    ],
)
def test_the_hash_does_not_change_with(state: HostState) -> None:
    assert a.plan(state).hash == a.plan(BOTH).hash


def test_the_hash_does_not_change_when_the_release_is_staged() -> None:
    plan = a.plan(BOTH)
    created = a.served(plan, a.R1, status="created", policy="no")
    created = dataclasses.replace(created, name="glm53.r1")
    staged = a.host(a.production(), a.scan(), created, releases=(a.release(plan, a.R1, "staged"),))
    again = a.plan(staged, number=1, staged=a.R1)
    assert not again.refused
    assert again.hash == plan.hash


@pytest.mark.parametrize(
    "state",
    [
        both(0, id="8e" * 32),
        both(0, started_at="2026-11-01T08:00:00.123456790Z"),
        both(0, policy="always"),
        both(1, policy="on-failure:3"),
        both(1, status="exited"),
        a.host(a.production()),
        dataclasses.replace(BOTH, engine=dataclasses.replace(a.ENGINE, id="other")),
        dataclasses.replace(BOTH, engine=dataclasses.replace(a.ENGINE, root="/elsewhere")),
        dataclasses.replace(BOTH, missing_tools=("flock",)),
        dataclasses.replace(BOTH, last_log={a.SCAN: a.NOW}),
        a.host(a.production(network="bridge", ports=(30000,)), a.scan()),
    ],
)
def test_the_hash_changes_with(state: HostState) -> None:
    assert a.plan(state).hash != a.plan(BOTH).hash


def test_the_hash_changes_with_what_is_asked_for() -> None:
    hashes = {
        a.plan(BOTH).hash,
        a.plan(BOTH, pin=a.pin(a.DIGEST)).hash,
        a.plan(BOTH, dataclasses.replace(a.profile(), env={"A": "b"})).hash,
        a.plan(BOTH, dataclasses.replace(a.profile(), service="other")).hash,
    }
    assert len(hashes) == 4


def test_the_hash_changes_with_the_current_release() -> None:
    first, second = a.with_release_1().state, a.with_release_2().state
    assert next_plan(first).hash != next_plan(second).hash


def test_the_hash_changes_with_who_holds_gpus() -> None:
    wanted = dataclasses.replace(a.profile(), gpus="none")
    assert a.plan(FREE, wanted).hash != a.plan(a.host(stranger(gpus=("2",))), wanted).hash


# The words of a difference


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (
            a.host(a.production()),
            ["dsv4_scan is in the way no longer", "other containers hold GPUs"],
        ),
        (both(0, policy="always"), ["glm53-pp4: policy unless-stopped -> always"]),
        (
            both(0, status="exited", policy="always"),
            [
                "glm53-pp4: state running -> exited, policy unless-stopped -> always",
                "other containers hold GPUs",
            ],
        ),
        (
            both(1, started_at="later"),
            ["dsv4_scan: started 2026-11-01T08:00:00.123456789Z -> later"],
        ),
        (
            dataclasses.replace(BOTH, missing_tools=("flock",)),
            [
                "the host lacks flock: restore.sh needs them."
                " Install coreutils, util-linux and docker there."
            ],
        ),
    ],
)
def test_decided_difference(after: HostState, words: list[str]) -> None:
    assert decided_difference(a.plan(BOTH), a.plan(after)) == words


def test_decided_difference_of_releases_and_pins() -> None:
    one, two = a.with_release_1().state, a.with_release_2().state
    said = decided_difference(a.plan(one), a.plan(two))
    assert "the current release is 2, was 1" in said
    assert "it drifted" in said
    assert "the service became what was asked for" in decided_difference(a.plan(two), a.plan(one))
    moved = decided_difference(a.plan(FREE), a.plan(FREE, pin=a.pin(a.DIGEST)))
    assert moved == [f"the pin is {a.DIGEST}"]
    assert "dsv4_scan is in the way now" in decided_difference(
        a.plan(a.host(a.production())), a.plan(BOTH)
    )
