"""The plan of a rollback: to a release, to what stood before release 1, and why not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rollpin.observe import Container, HostState, Listener, Unknown
from rollpin.plan import Plan
from rollpin.plan_rollback import plan_rollback

from . import builders as a


def back(state: HostState, to: int | None = None, **arguments: Any) -> Plan:
    return plan_rollback(state, "glm53", a.BY, to, **arguments)


def only(plan: Plan) -> str:
    assert len(plan.refusals) == 1, plan.refusals
    return str(plan.refusals[0])


def without(state: HostState, ident: str) -> HostState:
    assert not isinstance(state.containers, Unknown)
    kept = tuple(c for c in state.containers if c.id != ident)
    return dataclasses.replace(state, containers=kept)


def changed(state: HostState, ident: str, **changes: Any) -> HostState:
    assert not isinstance(state.containers, Unknown)
    return dataclasses.replace(
        state,
        containers=tuple(
            dataclasses.replace(c, **changes) if c.id == ident else c for c in state.containers
        ),
    )


def starts(plan: Plan) -> list[tuple[str, str, str, bool]]:
    return [(s.id, s.live, s.policy, s.main) for s in plan.starts]


@pytest.mark.parametrize("to", [None, 1])
def test_to_the_release_before(to: int | None) -> None:
    plan = back(a.with_release_2().state, to)
    assert not plan.refused
    assert (plan.kind, plan.number, plan.current, plan.target, plan.replaces) == (
        "rollback",
        3,
        2,
        1,
        0,
    )
    assert starts(plan) == [(a.R1, "glm53", "unless-stopped", True)]
    assert not plan.main.created
    (stop,) = plan.stops
    assert (stop.container.id, stop.moved, stop.ours) == (a.R2, "glm53.r2", True)
    assert plan.target_health is not None
    assert plan.target_health.container == a.R1
    assert plan.target_health.port == 30000
    assert plan.baseline is not None
    assert plan.baseline.container == a.R2
    assert plan.profile == a.DELIVERED
    assert plan.fingerprint == a.with_release_2().r1.fingerprint
    assert plan.create == ()


@pytest.mark.parametrize(
    ("state", "to"), [(a.with_release_1().state, None), (a.with_release_2().state, 0)]
)
def test_to_what_stood_before_release_1(state: HostState, to: int | None) -> None:
    plan = back(state, to)
    assert not plan.refused
    assert plan.target == 0
    assert starts(plan) == [(a.PP4, "glm53-pp4", "unless-stopped", True)]
    assert plan.main.displaced
    assert plan.target_health is not None
    assert (plan.target_health.engine, plan.target_health.port) == ("sglang", 30000)
    assert plan.target_health.expect == "42"  # the question is the service's own


def test_everything_displaced_since_comes_back_with_its_first_policy() -> None:
    history = a.with_release_1(displaced=(a.scan(), a.production()))
    assert starts(back(history.state)) == [
        (a.SCAN, "dsv4_scan", "always", False),
        (a.PP4, "glm53-pp4", "unless-stopped", True),
    ]


def test_a_displaced_container_that_was_down_stays_down() -> None:
    history = a.with_release_1(displaced=(a.scan(status="exited"), a.production()))
    assert [s.id for s in back(history.state).starts] == [a.PP4]


def test_what_release_1_displaced_stays_away_on_the_way_to_release_1() -> None:
    history = a.with_release_1(a.scan())
    wanted = dataclasses.replace(a.profile(), pin=a.OTHER_DIGEST)
    r2 = a.plan(history.state, wanted, pin=a.pin(a.OTHER_DIGEST))
    state = a.host(
        a.served(r2, a.R2),
        a.retired(history.r1, a.R1),
        a.down(a.production()),
        a.down(a.scan()),
        releases=(a.release(history.r1, a.R1), a.release(r2, a.R2, at="2026-12-01T00:00:00Z")),
        displaced_notes=frozenset((a.PP4, a.SCAN)),
    )
    plan = back(state)
    assert starts(plan) == [
        (a.R1, "glm53", "unless-stopped", True),
        (a.SCAN, "dsv4_scan", "always", False),
    ]
    everything = back(state, 0)
    assert {s.id for s in everything.starts} == {a.PP4, a.SCAN}
    assert everything.main.id == a.PP4


def test_one_that_was_given_back_is_left_alone() -> None:
    history = a.with_release_1(displaced=(a.production(), a.scan()))
    given = dataclasses.replace(
        changed(history.state, a.SCAN, status="running", gpus=()),
        displaced_notes=frozenset((a.PP4,)),
    )
    assert [s.id for s in back(given).starts] == [a.PP4]


def test_a_rollback_can_be_rolled_back_no_further_than_what_came_before_its_target() -> None:
    history = a.with_release_2()
    third = back(history.state)
    state = a.host(
        dataclasses.replace(a.served(history.r1, a.R1), name="glm53"),
        dataclasses.replace(a.retired(history.r1, a.R2), name="glm53.r2"),
        a.down(a.production()),
        releases=(
            *a.known_releases(history.state),
            a.release(third, at="2026-12-01T00:00:00Z"),
        ),
        displaced_notes=frozenset((a.PP4,)),
    )
    assert back(state).target == 0
    forward = back(state, 2)
    assert not forward.refused
    assert starts(forward) == [(a.R2, "glm53", "unless-stopped", True)]
    assert forward.stops[0].moved == "glm53.r3"
    said = only(back(state, 1))
    assert "the container of release 1 of glm53 serves already: release 3 went back to it" in said


def test_a_release_after_a_rollback_to_production_goes_back_to_production() -> None:
    history = a.with_release_1()
    second = back(history.state)
    records = (*a.known_releases(history.state), a.release(second, at="2026-12-01T00:00:00Z"))
    victims = (a.scan(), a.production())
    third = a.plan(a.host(*victims, a.retired(history.r1, a.R1), releases=records))
    assert third.number == 3
    state = a.host(
        a.served(third, a.R3),
        a.retired(history.r1, a.R1),
        *(a.down(v) for v in victims),
        releases=(*records, a.release(third, a.R3, at="2026-12-02T00:00:00Z")),
        displaced_notes=frozenset((a.PP4, a.SCAN)),
    )
    for to in (None, 2):
        plan = back(state, to)
        assert not plan.refused
        assert sorted(starts(plan)) == [
            (a.PP4, "glm53-pp4", "unless-stopped", True),
            (a.SCAN, "dsv4_scan", "always", False),
        ]
        assert plan.main.displaced


# Refusals


def test_nothing_serves() -> None:
    assert "no release of glm53 serves on this host" in only(back(a.host()))
    r1 = a.plan(a.host())
    for ended in ("restored", "rolled-back", "staged"):
        assert back(a.host(releases=(a.release(r1, a.R1, ended),))).refused
    # Production came back: there is nothing of ours to roll back.
    history = a.with_release_1()
    done = a.release(back(history.state), at="2026-12-01T00:00:00Z")
    state = a.host(a.production(), releases=(*a.known_releases(history.state), done))
    assert "no release of glm53 serves" in only(back(state))


@pytest.mark.parametrize("to", [2, 7])
def test_no_such_release(to: int) -> None:
    said = only(back(a.with_release_2().state, to))
    assert f"there is no release {to} of glm53" in said
    assert "release 2 serves; committed were: 1, 2" in said


def test_a_container_that_is_gone_is_made_again_by_the_release_that_stopped_it() -> None:
    two = a.with_release_2().state
    plan = back(without(two, a.R1))
    assert not plan.refused
    (way,) = plan.remake
    assert way.id == a.R1
    assert way.script == f"/var/lib/rollpin/glm53/releases/2/recreate-{a.R1[:12]}.sh"
    one = a.with_release_1().state
    plan = back(without(one, a.PP4))
    assert not plan.refused
    assert [w.id for w in plan.remake] == [a.PP4]


def test_one_that_was_removed_while_it_served_is_made_again_by_its_own_release() -> None:
    two = a.with_release_2().state
    assert not isinstance(two.releases, Unknown)
    unstopped = tuple(
        dataclasses.replace(r, record={**r.record, "stops": []}) if r.number == 2 else r
        for r in two.releases
    )
    plan = back(without(dataclasses.replace(two, releases=unstopped), a.R1))
    (way,) = plan.remake
    assert (way.id, way.name) == (a.R1, "glm53.r1")
    assert way.script == f"/var/lib/rollpin/glm53/releases/1/recreate-{a.R1[:12]}.sh"


def test_a_container_that_is_gone_and_was_not_recorded_cannot_come_back() -> None:
    def unrecorded(state: HostState) -> HostState:
        assert not isinstance(state.releases, Unknown)
        return dataclasses.replace(
            state,
            releases=tuple(
                dataclasses.replace(
                    r,
                    record={
                        **r.record,
                        "serves": {**r.record["serves"], "made": ""},
                        "stops": [
                            {k: v for k, v in s.items() if k != "losses"} for s in r.record["stops"]
                        ],
                    },
                )
                for r in state.releases
            ),
        )

    two = unrecorded(a.with_release_2().state)
    assert "the container of release 1 (3c3c3c3c3c3c) is gone" in only(back(without(two, a.R1)))
    one = unrecorded(a.with_release_1().state)
    assert "the container of glm53-pp4, displaced by release 1 (1a1a1a1a1a1a) is gone" in only(
        back(without(one, a.PP4))
    )


def test_nothing_stood_before_release_1() -> None:
    r1 = a.plan(a.host())
    state = a.host(a.served(r1, a.R1), releases=(a.release(r1, a.R1),))
    assert "nothing stood before release 1 of glm53" in only(back(state))


@pytest.mark.parametrize(
    ("intruder", "words"),
    [
        (a.container("intruder", "7f" * 32, network="bridge"), "intruder asks for GPUs all"),
        (
            a.container("intruder", "7f" * 32, network="bridge", gpus=(), ports=(30000,)),
            "intruder publishes port 30000",
        ),
    ],
)
def test_a_rollback_displaces_nobody(intruder: Container, words: str) -> None:
    state = a.with_release_2(intruder).state
    said = only(back(state))
    assert words in said
    assert "a rollback displaces nobody new" in said


def test_a_process_of_the_host_on_the_port() -> None:
    state = dataclasses.replace(
        a.with_release_2().state, listeners=(Listener(30000, 9, "nginx", ""),)
    )
    assert "nginx" in only(back(state))


@pytest.mark.parametrize("field", ["engine", "containers", "releases", "transaction"])
def test_unknown_plans_nothing(field: str) -> None:
    unknown: dict[str, Any] = {field: Unknown("why")}
    state = dataclasses.replace(a.with_release_2().state, **unknown)
    assert any("could not be observed (why)" in r.found for r in back(state).refusals)


def test_a_service_that_is_down_can_be_rolled_back() -> None:
    state = changed(a.with_release_2().state, a.R2, status="exited")
    plan = back(state)
    assert not plan.refused
    assert not plan.stops[0].was_running
    assert plan.baseline is None
    state = dataclasses.replace(a.with_release_2().state, listeners=(), gpu_apps=())
    gone = back(without(state, a.R2))
    assert not gone.refused
    assert gone.stops == ()


def test_the_hash_follows_the_target() -> None:
    state = a.with_release_2().state
    assert back(state, 1).hash != back(state, 0).hash
    assert back(state, 1).hash == back(state).hash == back(state, number=9).hash
    assert back(changed(state, a.R1, name="glm53.elsewhere")).hash == back(state).hash


def test_a_service_without_a_guard_goes_back_without_one() -> None:
    wanted = dataclasses.replace(a.profile(), guard=False)
    r1 = a.plan(a.host(a.production(), systemd=False), wanted)
    state = a.host(
        a.served(r1, a.R1),
        a.down(a.production()),
        releases=(a.release(r1, a.R1),),
        displaced_notes=frozenset((a.PP4,)),
        systemd=False,
    )
    plan = back(state)
    assert not plan.refused
    assert not plan.guard
    guarded = dataclasses.replace(a.with_release_1().state, systemd=False)
    assert "does not run systemd" in only(back(guarded))


def test_the_digest_is_that_of_the_release_it_goes_to() -> None:
    history = a.with_release_2()
    plan = plan_rollback(history.state, "glm53", a.BY, to=1)
    assert plan.digest == history.r1.digest != ""
    assert plan_rollback(history.state, "glm53", a.BY, to=0).digest == ""
