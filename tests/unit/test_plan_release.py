"""The plan of a release: refusals (all at once), what is unchanged, pins, the hash, the words."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rollpin import releases
from rollpin.host_needs import model_on_host
from rollpin.observe import (
    Container,
    Disk,
    GpuApp,
    HostState,
    Listener,
    Unknown,
    unreachable,
)
from rollpin.plan import Pin, Plan, decided_difference
from rollpin.plan_release import plan_release, recorded_pin
from rollpin.plan_rollback import plan_rollback
from rollpin.profile_values import Displace, Mount

from . import builders as a

WHY = Unknown("the daemon is away")
STRANGER = "7f" * 32
FREE = a.host()


def found(plan: Plan) -> list[str]:
    """What each refusal says was found."""
    return [r.found for r in plan.refusals]


def only(plan: Plan) -> str:
    assert plan.refused
    assert len(plan.refusals) == 1, found(plan)
    return str(plan.refusals[0])


def stranger(name: str = "stranger", **changes: Any) -> Container:
    given: dict[str, Any] = {"network": "bridge", "gpus": (), **changes}
    return a.container(name, STRANGER, **given)


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


# Refusals


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
        releases=(*_releases(history.state), a.release(other, a.R3, "armed")),
        transaction=a.transaction(other, lease_left=41.7),
    )
    said = only(a.plan(state))
    assert (
        "other release 4, by ops@controller since 2026-11-30T00:53:20Z, with 42 s of its lease left"
        in said
    )
    assert "(armed)" in said
    assert "pyinfra INVENTORY deploys/restore.py --limit gpu1" in said
    assert "sudo sh /var/lib/rollpin/other/releases/4/restore.sh" in said


def _releases(state: HostState) -> tuple[Any, ...]:
    assert not isinstance(state.releases, Unknown)
    return state.releases


@pytest.mark.parametrize("state", ["armed", "restoring", "rolling-back"])
def test_a_transaction_is_open_also_after_a_reboot(state: str) -> None:
    """/run is empty then: nobody knows who, and it is refused all the same."""
    r1 = a.plan(FREE)
    said = only(a.plan(a.host(releases=(a.release(r1, a.R1, state),))))
    assert f"an open transaction owns the host: glm53 release 1 ({state})" in said


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


CONFIG = "/data/hf_models/GLM-5.3-NVFP4/config.json"
CACHE = "/data/glm53_exp/sglang_cache"


def disks(path: str, disk: Disk | Unknown) -> HostState:
    return dataclasses.replace(FREE, disks={**FREE.disks, path: disk})


def test_where_the_model_lies() -> None:
    assert model_on_host(a.profile()) == CONFIG
    other = dataclasses.replace(
        a.profile(),
        mounts=(
            Mount("A", "/x", "/data/hf_models"),
            Mount("B", "/y", "/data/hf_models/GLM-5.3-NVFP4"),
        ),
    )
    assert model_on_host(other) == "/y/config.json"
    assert model_on_host(dataclasses.replace(a.profile(), model_path="zai/GLM-5.3")) == ""


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (disks(CONFIG, Disk(CONFIG, 1, "rw", exists=False)), f"the host has no {CONFIG}"),
        (disks(CONFIG, WHY), f"{CONFIG} could not be looked at (the daemon is away)"),
        (
            disks(CACHE, Disk(CACHE, 1, "rw,noexec,relatime", exists=False)),
            f"the filesystem of {CACHE} is mounted noexec",
        ),
        (a.host(gpus=a.gpus(4)), "the profile wants 8 GPUs (all), the host offers 4"),
        (a.host(gpus=()), "the profile wants 8 GPUs (all), the host offers 0"),
        (
            disks("/var/lib/docker", Disk("/var/lib/docker", 100_000_000, "rw", exists=True)),
            "/var/lib/docker has 0.1 GiB free",
        ),
    ],
)
def test_facts_of_the_host(state: HostState, words: str) -> None:
    assert words in only(a.plan(state))


def test_a_full_disk_does_not_matter_when_the_image_is_there() -> None:
    full = disks("/var/lib/docker", Disk("/var/lib/docker", 1, "rw", exists=True))
    assert not a.plan(dataclasses.replace(full, image=a.IMAGE)).refused
    assert "GiB free" in only(a.plan(dataclasses.replace(full, image=WHY)))


@pytest.mark.parametrize("disk", [WHY, None])
def test_room_that_is_not_known_is_not_enough(disk: Unknown | None) -> None:
    rest = {p: d for p, d in FREE.disks.items() if p != "/var/lib/docker"}
    rest |= {"/var/lib/docker": disk} if disk else {}
    state = dataclasses.replace(FREE, disks=rest)
    assert "how much room /var/lib/docker has is not known" in only(a.plan(state))
    assert not a.plan(dataclasses.replace(state, image=a.IMAGE)).refused


def test_the_room_is_that_of_the_engines_own_root() -> None:
    engine = dataclasses.replace(a.ENGINE, root="/data/docker")
    full = dataclasses.replace(
        disks("/data/docker", Disk("/data/docker", 1, "rw", exists=True)), engine=engine
    )
    assert "/data/docker has 0.0 GiB free" in only(a.plan(full))


def test_with_the_containerd_store_it_is_that_of_containerd_too() -> None:
    engine = dataclasses.replace(a.ENGINE, storage="io.containerd.snapshotter.v1")
    root = "/var/lib/containerd"
    full = dataclasses.replace(disks(root, Disk(root, 1, "rw", exists=True)), engine=engine)
    assert f"{root} has 0.0 GiB free" in only(a.plan(full))
    unseen = dataclasses.replace(FREE, engine=engine)
    assert f"how much room {root} has is not known" in only(a.plan(unseen))


def test_gpus_that_the_host_lacks() -> None:
    argv = ("python3", "-m", "sglang.launch_server", "--tp-size", "2")
    wanted = dataclasses.replace(a.profile(), gpus="7,8", argv=argv)
    assert "the profile wants 2 GPUs (7,8), the host offers 1" in only(a.plan(FREE, wanted))


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


def next_plan(state: HostState, **arguments: Any) -> Plan:
    wanted = dataclasses.replace(a.profile(), pin=a.OTHER_DIGEST)
    return a.plan(state, wanted, **{"pin": a.pin(a.OTHER_DIGEST), **arguments})


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
    records = (*_releases(state), a.release(plan, a.R2, at="2026-12-01T00:00:00Z"))
    later = dataclasses.replace(state, releases=records)
    assert releases.displaced_now(later)[a.SCAN].policy == "always"


# Baseline


def test_the_baseline_is_whoever_holds_the_port() -> None:
    plan = a.plan(a.host(a.scan(), a.production()))
    assert plan.baseline is not None
    assert plan.baseline.container == a.PP4
    assert plan.baseline.port == 30000


def test_a_container_without_a_known_engine_has_no_baseline() -> None:
    assert a.plan(scan_host()).baseline is None


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


# The hash

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
    assert not a.plan(BOTH).refused


def test_gpu_holders_are_sorted_and_alive() -> None:
    state = a.host(
        a.scan(),
        a.production(),
        a.container("idle", "6f" * 32, status="exited"),
        a.container("runtime", "0c" * 32, gpus=(), Runtime="nvidia"),
        stranger(),
    )
    assert a.plan(state).gpu_holders == ("0c" * 32, a.PP4, a.SCAN)
