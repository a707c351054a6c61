"""What stops any transaction on a host; the plan's tests go through the refusals one by one."""

from __future__ import annotations

import dataclasses

from rollpin import preflight
from rollpin.observe import Unknown
from rollpin.plan_rollback import plan_rollback

from . import builders as a


def test_a_good_host() -> None:
    assert preflight.refusals(a.host(), guard=True) == []


def test_a_dead_engine_is_not_also_a_missing_systemd() -> None:
    host = a.host(engine=Unknown("dead"), systemd=False, privileged=False)
    assert [r.found for r in preflight.refusals(host, guard=True)] == [
        "the docker engine could not be observed (dead)"
    ]


def test_an_open_transaction_whose_lease_ended() -> None:
    r1 = a.plan(a.host())
    host = a.host(
        releases=(a.release(r1, a.R1, "armed"),), transaction=a.transaction(r1, lease_left=-3.2)
    )
    (refusal,) = preflight.refusals(host, guard=True)
    assert "with 0 s of its lease left (armed)" in refusal.found
    assert "rollpin abort gpu1 -i INVENTORY or, on the host: sudo sh /var/lib/" in refusal.do
    assert "rollpin resume gpu1 -i INVENTORY" in refusal.do


def test_the_owner_of_another_release_is_not_named() -> None:
    r1 = a.plan(a.host())
    other = a.transaction(dataclasses.replace(r1, number=9))
    host = a.host(releases=(a.release(r1, a.R1, "restoring"),), transaction=other)
    (refusal,) = preflight.refusals(host, guard=True)
    assert refusal.found == (
        "an open transaction owns the host: glm53 release 1, by ops@controller since"
        f" {a.AT}, and no lease is known (a reboot?) (restoring)"
    )
    assert "rollpin abort gpu1 -i INVENTORY" in refusal.do
    assert "rollpin resume" not in refusal.do


def test_warnings() -> None:
    assert preflight.warnings(a.ENGINE, "unless-stopped") == []
    assert preflight.warnings(Unknown("x"), "unless-stopped") == []
    off = dataclasses.replace(a.ENGINE, live_restore=False)
    assert "leaves a on-failure:3 container down" in preflight.warnings(off, "on-failure:3")[0]
    assert preflight.warnings(off, "always") == preflight.warnings(off, "no") == []
    mirrored = dataclasses.replace(a.ENGINE, mirrors=("https://mirror.example/",))
    assert "pulls through https://mirror.example/" in preflight.warnings(mirrored, "no")[0]


def test_a_record_that_cannot_be_read_stops_every_plan_and_says_the_way_out() -> None:
    r1 = a.plan(a.host())
    broken = dataclasses.replace(a.release(r1, a.R1, "committed"), record={}, fault="it is empty")
    host = a.host(a.served(r1, a.R1), releases=(broken,))
    (refusal,) = a.plan(host).refusals  # and nothing that only looks like a reason
    assert refusal.found == (
        "the record of glm53 release 1 cannot be read"
        " (/var/lib/rollpin/glm53/releases/1/release.json: it is empty)"
    )
    assert "sudo sh /var/lib/rollpin/glm53/releases/1/restore.sh rollback" in refusal.do
    (back,) = plan_rollback(host, "glm53", a.BY).refusals
    assert back == refusal


def test_history_that_cannot_be_read_stops_nothing() -> None:
    r1 = a.plan(a.host())
    broken = dataclasses.replace(a.release(r1, a.R1, "restored"), record={}, fault="it is empty")
    assert preflight.refusals(a.host(releases=(broken,)), guard=True) == []
