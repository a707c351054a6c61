"""Every reason for which a release is refused, by name, and all of them at once."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rollpin.observe import (
    Container,
    GpuApp,
    HostState,
    Listener,
    Unknown,
    unreachable,
)

from . import builders as a
from .builders import FREE, STRANGER, WHY, found, only, stranger


@pytest.mark.parametrize(
    ("container", "reason"),
    [
        (stranger(ports=(30000,)), "publishes port 30000"),
        (
            a.container("stranger", STRANGER, "python3", "-m", "vllm", "--port=30000", gpus=()),
            "is told to listen on port 30000",
        ),
        (stranger(gpus=("all",)), "asks for GPUs all"),
        (stranger(gpus=("3",)), "asks for GPUs 3"),
        (stranger(gpus=("GPU-00000003",)), "asks for GPUs GPU-00000003"),
        (stranger(gpus=("MIG-unheard-of",)), "asks for GPUs MIG-unheard-of"),
        (stranger("glm53", status="exited", policy="no"), "bears the name glm53"),
        (stranger(gpus=("all",), status="exited", policy="always"), "asks for GPUs all"),
    ],
)
def test_an_unlisted_container_is_refused_by_name(container: Container, reason: str) -> None:
    said = only(a.plan(a.host(container)))
    assert f"{container.name} (7f7f7f7f7f7f, lmsysorg/sglang:nightly-dev-20260828" in said
    assert reason in said
    assert f"does not say that it may displace {container.name}" in said
    assert f"add {container.name} to DISPLACES in profiles/pro6000/{a.DELIVERED}.env" in said


@pytest.mark.parametrize(
    "container",
    [
        stranger(),
        stranger(ports=(30001,)),
        stranger(gpus=("all",), status="exited", policy="unless-stopped"),
        stranger(gpus=("all",), status="created", policy="always"),
        stranger(ports=(30000,), status="exited", policy="no"),
    ],
)
def test_a_container_that_is_not_in_the_way_is_left_alone(container: Container) -> None:
    plan = a.plan(a.host(container))
    assert not plan.refused
    assert plan.stops == ()


def test_a_container_that_computes_without_asking_is_in_the_way() -> None:
    state = a.host(stranger(), gpu_apps=(GpuApp(77, "GPU-00000005", "python3", STRANGER),))
    assert "computes on GPU 5" in only(a.plan(state))


def test_a_container_that_listens_without_saying_is_in_the_way() -> None:
    state = a.host(stranger(network="host"), listeners=(Listener(30000, 77, "server", STRANGER),))
    assert "stranger (7f7f7f7f7f7f" in only(a.plan(state))
    assert "listens on port 30000" in only(a.plan(state))


def scan_host(**changes: Any) -> HostState:
    return a.host(a.scan(), **changes)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            scan_host(last_log={a.SCAN: a.NOW - 600}),
            "only after 45 min idle, and it was active 10 min ago",
        ),
        (
            a.host(a.scan(started="2026-11-30T00:53:00.5Z"), last_log={a.SCAN: None}),
            "only after 45 min idle, and it was active 20 s ago",
        ),
        (
            scan_host(gpu_apps=(GpuApp(77, "GPU-00000005", "python3", a.SCAN),)),
            "process 77 of it is on a GPU",
        ),
        (
            scan_host(last_log={a.SCAN: Unknown("unreadable")}),
            "whether it was idle for 45 min is not known (unreadable)",
        ),
        (scan_host(last_log={}), "whether it was idle for 45 min is not known (not looked at)"),
    ],
)
def test_a_listed_container_that_is_not_idle_is_refused(state: HostState, words: str) -> None:
    assert words in only(a.plan(state))


def test_idle_is_unknown_when_nvidia_smi_fails() -> None:
    plan = a.plan(scan_host(gpu_apps=WHY))
    assert "whether it computes is not known" in "\n".join(map(str, plan.refusals))


def test_a_listed_container_that_is_idle_is_displaced() -> None:
    plan = a.plan(scan_host(last_log={a.SCAN: a.NOW - 2701}))
    assert not plan.refused
    assert [(s.container.name, s.ours, s.policy, s.was_running) for s in plan.stops] == [
        ("dsv4_scan", False, "always", True)
    ]


@pytest.mark.parametrize(
    ("container", "words"),
    [
        (a.production(auto_remove=True, policy="no"), "--rm"),
        (a.production(status="paused"), "docker unpause glm53-pp4"),
        (a.production(status="restarting"), "it is restarting"),
    ],
)
def test_what_could_not_be_put_back_is_refused(container: Container, words: str) -> None:
    assert words in only(a.plan(a.host(container)))


def test_an_exited_container_that_would_rise_at_boot_loses_its_policy_only() -> None:
    plan = a.plan(a.host(a.scan(status="exited"), last_log={}))
    assert not plan.refused  # whoever is down is idle
    (stop,) = plan.stops
    assert not stop.was_running
    assert stop.policy == "always"


def test_a_process_of_the_host_on_the_port_is_refused() -> None:
    state = a.host(listeners=(Listener(30000, 4711, "nginx", ""),))
    assert "port 30000 is held by process 4711 (nginx) of the host" in only(a.plan(state))


def test_a_process_on_the_port_that_nobody_knows_is_refused() -> None:
    state = a.host(listeners=(Listener(30000, None, "-", None),))
    assert "a process that could not be identified" in only(a.plan(state))


def test_docker_proxy_of_a_published_port_is_not_a_process_of_the_host() -> None:
    proxy = Listener(30000, 9, "docker-proxy", "")
    listed = a.container("glm53-pp4", a.PP4, network="bridge", ports=(30000,), gpus=())
    plan = a.plan(a.host(listed, listeners=(proxy,)))
    assert not plan.refused
    assert [s.container.name for s in plan.stops] == ["glm53-pp4"]
    # Another process beside it, on another address of the host, is one.
    beside = a.host(listed, listeners=(proxy, Listener(30000, 10, "nginx", "")))
    assert "nginx" in only(a.plan(beside))


def test_docker_proxy_of_our_own_published_port_is_ours() -> None:
    """A profile on the bridge network can be deployed twice."""
    wanted = dataclasses.replace(a.profile(), network="bridge")
    r1 = a.plan(a.host(), wanted)
    state = a.host(
        a.served(r1, a.R1, network="bridge", ports=(30000,)),
        releases=(a.release(r1, a.R1),),
        listeners=(Listener(30000, 9, "docker-proxy", ""),),
    )
    assert a.plan(state, wanted).unchanged
    assert not a.plan(state, dataclasses.replace(wanted, argv=(*wanted.argv, "--more"))).refused


def test_gpu_processes_of_the_host_are_refused_once_each() -> None:
    apps = tuple(GpuApp(9, f"GPU-0000000{i}", "python3", "") for i in range(3))
    said = only(a.plan(a.host(gpu_apps=apps)))
    assert "used by process 9 (python3) of the host" in said


def test_a_gpu_process_of_a_container_that_is_not_listed_by_docker_is_refused() -> None:
    apps = (GpuApp(9, "GPU-00000000", "python3", "ff" * 32),)
    assert "of container ffffffffffff" in only(a.plan(a.host(gpu_apps=apps)))


def test_gpus_that_the_profile_does_not_want_may_be_busy() -> None:
    wanted = dataclasses.replace(
        a.profile(), gpus="0,1", argv=("python3", "-m", "sglang.launch_server", "--tp-size", "2")
    )
    apps = (GpuApp(9, "GPU-00000007", "python3", ""),)
    assert not a.plan(a.host(stranger(gpus=("2", "3")), gpu_apps=apps), wanted).refused


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("engine", "the docker engine could not be observed (the daemon is away)"),
        ("containers", "the containers could not be observed (the daemon is away)"),
        ("listeners", "who listens on which port could not be observed (the daemon is away)"),
        ("gpus", "the GPUs could not be observed (the daemon is away)"),
        ("gpu_apps", "who is on the GPUs could not be observed (the daemon is away)"),
        ("transaction", "the open transaction could not be observed (the daemon is away)"),
        ("releases", "the releases on the host could not be observed (the daemon is away)"),
    ],
)
def test_unknown_is_never_absent(field: str, words: str) -> None:
    plan = a.plan(a.host(**{field: WHY}))
    assert words in found(plan)


def test_a_host_that_gave_no_answer_is_refused() -> None:
    plan = a.plan(unreachable("gpu1", "no answer within 90 s"))
    assert plan.refused
    assert len([f for f in found(plan) if "no answer within 90 s" in f]) >= 4


def test_without_gpus_the_gpus_may_be_unknown() -> None:
    wanted = dataclasses.replace(a.profile(), gpus="none")
    assert not a.plan(a.host(gpus=WHY, gpu_apps=WHY), wanted).refused


def test_an_open_transaction_owns_the_host() -> None:
    history = a.with_release_1()
    other = dataclasses.replace(history.r1, service="other", number=4)
    state = dataclasses.replace(
        history.state,
        releases=(*a.known_releases(history.state), a.release(other, a.R3, "armed")),
        transaction=a.transaction(other, lease_left=41.7),
    )
    said = only(a.plan(state))
    assert (
        "other release 4, by ops@controller since 2026-11-30T00:53:20Z, with 42 s of its lease left"
        in said
    )
    assert "(armed)" in said
    assert "rollpin abort gpu1 -i INVENTORY" in said
    assert "rollpin resume gpu1 -i INVENTORY" in said
    assert "sudo sh /var/lib/rollpin/other/releases/4/restore.sh" in said


@pytest.mark.parametrize("state", ["armed", "restoring", "rolling-back"])
def test_a_transaction_is_open_also_after_a_reboot(state: str) -> None:
    """/run is empty then: who is in the record, and it is refused all the same."""
    r1 = a.plan(FREE)
    said = only(a.plan(a.host(releases=(a.release(r1, a.R1, state),))))
    assert "an open transaction owns the host: glm53 release 1, by ops@controller since 2" in said
    assert f"and no lease is known (a reboot?) ({state})" in said


@pytest.mark.parametrize("state", ["staged", "committed", "restored", "rolled-back"])
def test_a_transaction_that_ended_owns_nothing(state: str) -> None:
    r1 = a.plan(FREE)
    assert not a.plan(a.host(releases=(a.release(r1, "", state),))).refused


def test_missing_tools_are_named() -> None:
    assert "the host lacks flock, sync" in only(a.plan(a.host(missing_tools=("flock", "sync"))))


def test_a_host_without_systemd_needs_guard_off() -> None:
    state = a.host(systemd=False)
    assert "Write GUARD=off" in only(a.plan(state))
    plan = a.plan(state, dataclasses.replace(a.profile(), guard=False))
    assert not plan.refused
    assert not plan.guard


def test_not_root_is_refused() -> None:
    assert "_sudo=True" in only(a.plan(a.host(privileged=False)))


def test_what_cannot_be_pinned_is_refused() -> None:
    plan = a.plan(FREE, pin=Unknown("the registry says 503"))
    assert "lmsysorg/sglang:latest" in only(plan)
    assert "(the registry says 503)" in only(plan)
    assert plan.hash


def test_a_missing_secret_is_refused() -> None:
    said = only(a.plan(FREE, missing_secrets=["HF_TOKEN"]))
    assert "SECRET_HF_TOKEN" in said


def test_the_name_that_the_release_needs_is_taken() -> None:
    state = a.host(stranger("glm53.r1", status="exited"))
    assert "a container is already called glm53.r1" in only(a.plan(state))
    # The run's own staged container is not in its own way.
    assert not a.plan(state, number=1, staged=STRANGER).refused


def test_stale_stages_are_taken_back_and_young_ones_left() -> None:
    r1 = a.plan(FREE)
    old, young = a.release(r1, state="staged", age=901), a.release(r1, state="staged", age=899)
    assert a.plan(a.host(releases=(old,))).stale == (1,)
    assert a.plan(a.host(releases=(young,))).stale == ()
    # Whoever staged it before this boot has lost its host since.
    rebooted = dataclasses.replace(a.host(releases=(young,)), uptime=898.0)
    assert a.plan(rebooted).stale == (1,)


def test_all_refusals_come_at_once() -> None:
    state = a.host(
        stranger(ports=(30000,)),
        a.scan(),
        last_log={},
        missing_tools=("flock",),
        systemd=False,
        privileged=False,
        gpus=a.gpus(4),
        gpu_apps=(GpuApp(9, "GPU-00000000", "python3", ""),),
        disks={},
    )
    state = dataclasses.replace(state, listeners=WHY)
    said = "\n".join(found(a.plan(state, missing_secrets=["A", "B"])))
    for words in (
        "stranger",
        "dsv4_scan",
        "lacks flock",
        "not root",
        "systemd",
        "offers 4",
        "process 9",
        "config.json",
        "which port",
        "secret A",
        "secret B",
    ):
        assert words in said
    assert "pinned" in str(
        a.plan(state, pin=Unknown("x")).refusals[-1]
    )  # and what came before it is said too
    assert len(a.plan(state, pin=Unknown("x")).refusals) > 3
