"""Which stopped containers a commit removes: two of the service are kept, no way back is cut."""

from __future__ import annotations

import dataclasses
from typing import Any

from rollpin.observe import HostState, Release, Unknown
from rollpin.plan import Plan
from rollpin.plan_rollback import plan_rollback

from . import builders as a

IDS = [f"{n:02x}" * 32 for n in range(0xC1, 0xC9)]


def after(count: int) -> HostState:
    """`count` releases of the service were committed, the last one serves, none was pruned."""
    state = a.host(a.production())
    releases: list[Release] = []
    for n in range(count):
        digest = f"sha256:{n:064x}"
        wanted = dataclasses.replace(a.profile(), pin=digest)
        plan = a.plan(state, wanted, pin=a.pin(digest))
        assert not plan.refused, plan.refusals
        at = f"2026-11-30T{n:02}:00:00Z"
        releases.append(a.release(plan, IDS[n], at=at))
        old = tuple(
            dataclasses.replace(c, name=f"glm53.r{n}", status="exited", policy="no")
            if c.name == "glm53"
            else c
            for c in known(state)
            if c.name != "glm53-pp4"
        )
        state = a.host(
            a.served(plan, IDS[n]),
            *old,
            a.down(a.production()),
            releases=tuple(releases),
            displaced_notes=frozenset({a.PP4}),
            numbers_used=tuple(r.number for r in releases),
            image=a.IMAGE,
        )
    return state


def known(state: HostState) -> tuple[Any, ...]:
    assert not isinstance(state.containers, Unknown)
    return tuple(state.containers)


def pruned(plan: Plan) -> list[str]:
    assert not plan.refused, plan.refusals
    return [p.id for p in plan.prune]


def test_two_are_kept_beside_the_one_that_serves() -> None:
    assert pruned(a.next_plan(after(1))) == []
    assert pruned(a.next_plan(after(2))) == []
    # r3 is stopped by this release, r2 is the other one that is kept
    assert pruned(a.next_plan(after(3))) == [IDS[0]]
    assert pruned(a.next_plan(after(4))) == [IDS[0], IDS[1]]


def test_the_plan_says_it_as_the_command_that_is_run() -> None:
    plan = a.next_plan(after(3))
    (one,) = plan.prune
    assert one.name == "glm53.r1"
    assert one.tags == ("rollpin/glm53:1",)
    assert one.image == ""  # rollpin did not pull it


def test_what_a_rollback_starts_is_not_pruned() -> None:
    assert pruned(plan_rollback(after(4), "glm53", a.BY, 1)) == [IDS[1]]


def test_somebody_elses_container_is_never_pruned() -> None:
    state = after(4)
    foreign = tuple(
        dataclasses.replace(c, labels={}) if c.id == IDS[0] else c for c in known(state)
    )
    assert pruned(a.next_plan(dataclasses.replace(state, containers=foreign))) == [IDS[1]]


def test_one_that_somebody_started_is_not_pruned() -> None:
    state = after(3)
    up = tuple(
        dataclasses.replace(c, status="running", network="bridge", gpus=(), argv=("true",))
        if c.id == IDS[0]
        else c
        for c in known(state)
    )
    plan = a.next_plan(dataclasses.replace(state, containers=up))
    assert IDS[0] not in [p.id for p in plan.prune]


def test_without_a_record_to_make_it_again_it_stays() -> None:
    state = after(3)
    assert not isinstance(state.releases, Unknown)
    bare = tuple(
        dataclasses.replace(
            r,
            record={
                **r.record,
                "serves": {**r.record["serves"], "made": ""},
                "stops": [{k: v for k, v in s.items() if k != "losses"} for s in r.record["stops"]],
            },
        )
        for r in state.releases
    )
    assert pruned(a.next_plan(dataclasses.replace(state, releases=bare))) == []


def test_what_another_service_displaced_is_its_way_back() -> None:
    """A release of another service that stopped r1 needs it to go back."""
    state = after(3)
    assert not isinstance(state.releases, Unknown)
    last = state.releases[-1]
    other = dataclasses.replace(
        last,
        service="other",
        record={
            **last.record,
            "serves": {"id": "ee" * 32, "policy": "no"},
            "stops": [{"id": IDS[0], "name": "glm53", "ours": False, "policy": "no"}],
        },
    )
    state = dataclasses.replace(state, releases=(*state.releases, other))
    assert pruned(a.next_plan(state)) == []


def test_a_displaced_container_with_a_note_stays() -> None:
    state = after(3)
    state = dataclasses.replace(state, displaced_notes=frozenset({a.PP4, IDS[0]}))
    assert pruned(a.next_plan(state)) == []
