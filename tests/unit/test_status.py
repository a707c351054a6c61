"""What `rollpin status` says, from states of hosts as the fact reports them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from rollpin.observe import (
    Container,
    Engine,
    HostState,
    Release,
    Transaction,
    Unknown,
    unreachable,
)
from rollpin.observe_parse import container
from rollpin.status import COLUMNS, Answers, details, lines, rows, status_of

NEW, OLD, SCAN = "a" * 64, "b" * 64, "c" * 64
DIGEST = "sha256:" + "d" * 64


def a_container(ident: str, name: str, status: str = "running", **labels: str) -> Container:
    return container(
        {
            "Id": ident,
            "Name": f"/{name}",
            "Config": {"Image": "x", "Labels": labels},
            "HostConfig": {
                "RestartPolicy": {"Name": "no" if status == "exited" else "unless-stopped"},
                "DeviceRequests": [{"Count": -1}],
            },
            "State": {"Status": status},
        }
    )


def a_release(number: int, state: str, **record: Any) -> Release:
    stops = [
        {"id": i, "name": n, "policy": "always", "running": True, "ours": False}
        for i, n in ((OLD, "glm53-pp4"), (SCAN, "dsv4_scan"))
    ]
    told: dict[str, Any] = {
        "at": "2026-09-10T01:02:03Z",
        "by": "mk@ops",
        "profile": "glm53_autotune",
        "image": {"digest": DIGEST},
        "serves": {"id": NEW, "name": "glm53", "policy": "unless-stopped"},
        "stops": stops,
        "transaction": f"glm53-{number}-x",
        **record,
    }
    return Release("glm53", number, state, record=told)


@pytest.fixture
def state() -> HostState:
    """glm53 release 1 serves; it displaced two."""
    seen = unreachable("gpu1", "")
    return dataclasses.replace(
        seen,
        now=1.8e9,
        engine=Engine("E", "/var/lib/docker", "26.1", "overlay2", live_restore=True),
        containers=(
            a_container(NEW, "glm53", **{"rollpin.service": "glm53", "rollpin.release": "1"}),
            a_container(OLD, "glm53-pp4", "exited"),
            a_container(SCAN, "dsv4_scan", "exited"),
        ),
        releases=(a_release(1, "committed"),),
        transaction=None,
        displaced_notes=frozenset({OLD, SCAN}),
    )


def test_a_serving_release(state: HostState) -> None:
    status = status_of(state)
    assert status.known
    assert rows(status) == [
        (
            "gpu1",
            "glm53",
            "1",
            "sha256:dddddddddddd",
            "glm53_autotune",
            "2026-09-10T01:02:03Z",
            "mk@ops",
            "glm53 running",
            "",
        )
    ]
    assert len(rows(status)[0]) == len(COLUMNS)
    said = lines(status)
    assert said[0] == (
        "gpu1: glm53 release 1, sha256:dddddddddddd, glm53_autotune,"
        " since 2026-09-10T01:02:03Z by mk@ops, container glm53 running"
    )
    assert details(status) == [
        f"displaced: dsv4_scan (exited) by glm53 release 1,"
        f" note /var/lib/rollpin/displaced/{SCAN}.md",
        "  to give it back: sudo sh /var/lib/rollpin/glm53/releases/1/giveback-cccccccccccc.sh",
        f"displaced: glm53-pp4 (exited) by glm53 release 1,"
        f" note /var/lib/rollpin/displaced/{OLD}.md",
        "  to give it back: sudo sh /var/lib/rollpin/glm53/releases/1/giveback-bbbbbbbbbbbb.sh",
    ]
    assert json.loads(json.dumps(status.to_json()))["services"][0]["digest"] == DIGEST


def judged(state: HostState) -> HostState:
    """The same, with what health and tag are asked by."""
    image = {"repository": "repo/sglang", "tag": "latest", "digest": DIGEST}
    starts = [{"id": NEW, "live": "glm53", "main": True}]
    return dataclasses.replace(
        state, releases=(a_release(1, "committed", image=image, starts=starts),)
    )


@pytest.mark.parametrize(
    ("failures", "health", "good"),
    [
        ((), "good", True),
        (("generation: it answers 41", "port owner: x"), "bad", False),
        (Unknown("no answer within 45 s"), "unknown", False),
        (None, "", True),
    ],
)
def test_health_now(
    state: HostState, failures: tuple[str, ...] | Unknown | None, health: str, good: bool
) -> None:
    status = status_of(judged(state), {"glm53": Answers(failures)})
    assert rows(status)[0][-1] == health
    assert (f", health {health}" in lines(status)[0]) is bool(health)
    assert status.good is good
    assert status.to_json()["good"] is good
    told = "\n".join(details(status))
    if isinstance(failures, Unknown):
        assert (
            "unknown: the health of glm53: no answer within 45 s\n"
            "  on the host: sudo docker logs --tail 100 aaaaaaaaaaaa"
        ) in told
    elif failures:
        assert (
            "TROUBLE: glm53 release 1 is not good: generation: it answers 41; port owner: x\n"
            "  on the host: sudo docker logs --tail 100 aaaaaaaaaaaa"
        ) in told


def test_a_tag_that_moved_is_told_and_no_trouble(state: HostState) -> None:
    now = "sha256:" + "e" * 64
    status = status_of(judged(state), {"glm53": Answers((), now)})
    assert status.good
    assert details(status)[:2] == [
        f"note: the tag of glm53 release 1 moved: repo/sglang:latest is {now} now; the release"
        f" keeps {DIGEST}",
        f"  on the host: sudo docker image inspect repo/sglang@{DIGEST}",
    ]


@pytest.mark.parametrize("tag", [DIGEST, Unknown("no registry"), None])
def test_a_tag_that_did_not_move_or_cannot_be_asked_is_not_told(
    state: HostState, tag: str | Unknown | None
) -> None:
    status = status_of(judged(state), {"glm53": Answers((), tag)})
    assert status.good
    assert not [x for x in details(status) if "tag" in x]


def test_a_host_that_does_not_answer() -> None:
    status = status_of(unreachable("gpu2", "cannot connect: no route"))
    assert not status.known
    assert lines(status) == [
        "gpu2: unknown",
        "gpu2:   unknown: cannot connect: no route",
        "gpu2:     from here: ssh gpu2",
    ]
    assert rows(status)[0][:2] == ("gpu2", "unknown")


def test_an_engine_that_does_not_answer(state: HostState) -> None:
    dead = Unknown("engine: status 1: Cannot connect to the Docker daemon")
    status = status_of(dataclasses.replace(state, engine=dead, containers=dead))
    assert not status.known
    assert status.services[0].container == "glm53 unknown"
    assert {d.state for d in status.displaced} == {"unknown"}
    assert details(status)[:2] == [
        f"unknown: {dead.reason}",
        "  on the host: sudo systemctl status --no-pager docker",
    ]


def test_a_host_without_releases_says_who_is_on_the_gpus(state: HostState) -> None:
    seen = dataclasses.replace(
        state,
        releases=(),
        displaced_notes=frozenset(),
        containers=(a_container(OLD, "glm53-pp4"), a_container(SCAN, "dsv4_scan", "exited")),
    )
    assert lines(status_of(seen)) == [
        "gpu1: no release of rollpin",
        "gpu1:   also on the GPUs: glm53-pp4 running",
    ]


@pytest.mark.parametrize(
    ("containers", "said"),
    [
        ((), "glm53 gone"),
        ((a_container(NEW, "glm53", "exited"),), "glm53 exited"),
        ((a_container(NEW, "glm53.r1", "exited"),), "glm53 exited as glm53.r1"),
    ],
)
def test_the_container_as_it_is(
    state: HostState, containers: tuple[Container, ...], said: str
) -> None:
    seen = dataclasses.replace(state, containers=containers)
    assert status_of(seen).services[0].container == said


@pytest.mark.parametrize(
    ("lease", "said"),
    [
        (95.4, "lease 95 s: the guard goes back then, unless it is renewed"),
        (-5.0, "its lease ended 5 s ago: the guard ends it, unless GUARD=off"),
        (None, "no lease is known (a reboot?): the boot guard ends it, unless GUARD=off"),
    ],
)
def test_an_open_transaction(state: HostState, lease: float | None, said: str) -> None:
    running = lease is not None and Transaction(
        "glm53-2-y", "glm53", 2, "jo@ops", "2026-09-11T00:00:00Z", lease
    )
    seen = dataclasses.replace(
        state,
        releases=(a_release(1, "committed"), a_release(2, "armed")),
        transaction=running or None,
    )
    status = status_of(seen)
    assert status.services[0].release == 1
    told = details(status)
    who = "jo@ops since 2026-09-11T00:00:00Z" if running else "mk@ops since 2026-09-10T01:02:03Z"
    assert told[0].startswith(f"open: glm53 release 2 is armed, by {who}, transaction glm53-2-")
    assert told[0].endswith(said)
    assert told[1] == (
        "  to end it by going back: sudo sh /var/lib/rollpin/glm53/releases/2/restore.sh"
    )
    assert told[2] == ("  to go on, if its controller is gone: rollpin resume gpu1 -i INVENTORY")
    # what it displaces is given back by going back, and by nothing else while it is open
    assert "glm53-pp4 (exited) by glm53 release 2, which is open" in "\n".join(told)
    assert "give it back" not in "\n".join(told)


def test_a_rollback_by_hand_that_has_not_ended(state: HostState) -> None:
    status = status_of(dataclasses.replace(state, releases=(a_release(1, "rolling-back"),)))
    assert status.services[0].says == "no release of it serves; the newest, 1, is rolling-back"
    assert status.open[0].state == "rolling-back"
    assert "a rollback by hand that has not ended" in details(status)[1]
    assert "rollpin resume" not in "\n".join(details(status))


def test_rolled_back_to_what_stood_before(state: HostState) -> None:
    back = a_release(
        2,
        "committed",
        serves=None,
        starts=[
            {"id": SCAN, "live": "dsv4_scan", "displaced": True},
            {"id": OLD, "live": "glm53-pp4", "displaced": True},
        ],
        stops=[],
    )
    seen = dataclasses.replace(
        state,
        releases=(a_release(1, "committed"), back),
        containers=(a_container(OLD, "glm53-pp4"),),
        displaced_notes=frozenset(),
    )
    service = status_of(seen).services[0]
    assert (service.release, service.container) == (2, "dsv4_scan gone, glm53-pp4 running")
    assert service.says == "rolled back to what stood before release 1"


def test_live_restore_is_said(state: HostState) -> None:
    engine = Engine("E", "/var/lib/docker", "26.1", "overlay2", live_restore=False)
    told = details(status_of(dataclasses.replace(state, engine=engine)))
    assert told[-1].startswith("warning: live-restore is off")


def test_a_record_that_cannot_be_read_is_unknown_and_not_a_rollback(state: HostState) -> None:
    broken = Release("glm53", 1, "committed", fault="it is empty")
    status = status_of(dataclasses.replace(state, releases=(broken,)))
    assert not status.known
    directory = "/var/lib/rollpin/glm53/releases/1"
    assert [(t.what, t.do) for t in status.unknown] == [
        (f"{directory}/release.json: it is empty", f"sudo ls -l {directory}")
    ]
    assert status.services[0].container == "unknown"


def test_a_state_directory_that_was_lost_is_said(state: HostState) -> None:
    status = status_of(dataclasses.replace(state, releases=(), displaced_notes=frozenset()))
    assert not status.known
    assert [(t.what, t.do) for t in status.unknown] == [
        (
            "glm53 (running) is release 1 of glm53, and /var/lib/rollpin has no record of it",
            "sudo docker inspect glm53",
        )
    ]


@pytest.mark.parametrize(
    ("last", "before"),
    [
        (a_release(1, "restored"), "glm53-pp4 exited, dsv4_scan exited"),
        (a_release(1, "rolled-back", stops=[]), "nothing"),
        (Release("glm53", 1, "restored", fault="it is empty"), "not known"),
    ],
)
def test_what_stood_before_is_looked_at(state: HostState, last: Release, before: str) -> None:
    (service,) = status_of(dataclasses.replace(state, releases=(last,))).services
    assert service.says.endswith(f"is {last.state}; before it stood: {before}")
