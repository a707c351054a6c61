"""Hosts, containers, profiles and releases from small arguments. Everything has a sane default."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rollpin import record
from rollpin.host_needs import model_on_host
from rollpin.observe import (
    Container,
    Disk,
    Engine,
    Gpu,
    GpuApp,
    HostState,
    Image,
    Listener,
    Release,
    Transaction,
    Unknown,
)
from rollpin.observe_parse import container as from_inspect
from rollpin.plan import Pin, Plan
from rollpin.plan_release import plan_release
from rollpin.policy import adjusted
from rollpin.profile import Profile
from rollpin.scripts import Bound

ROOT = Path(__file__).parents[2]
DELIVERED = "glm53_nvfp4_pro6000_sglang_tp2pp4_latest_autotune"
NIGHTLY = "glm53_nvfp4_pro6000_sglang_tp2pp4_nightly"
REPOSITORY = "lmsysorg/sglang"
DIGEST = "sha256:" + "a" * 64
OTHER_DIGEST = "sha256:" + "b" * 64
NOW = 1_796_000_000.0  # 2026-11-30T00:53:20Z
AT = "2026-11-30T00:53:20Z"
LONG_AGO = "2026-11-01T08:00:00.123456789Z"
BY = "ops@controller"

# Ids as docker makes them: 64 hex digits.
PP4 = "1a" * 32
SCAN = "2b" * 32
R1 = "3c" * 32
R2 = "4d" * 32
R3 = "5e" * 32

PP4_ARGV = (
    *("python3", "-m", "sglang.launch_server", "--model-path", "/data/hf_models/GLM-5.3-NVFP4"),
    *("--tp-size", "2", "--pp-size", "4", "--disable-flashinfer-autotune"),
    *("--host", "0.0.0.0", "--port", "30000"),
)


@cache
def _loaded(name: str) -> Profile:
    path = Path("profiles/pro6000") / f"{name}.env"
    # The plan names the file, and golden files are the same in every checkout.
    return dataclasses.replace(Profile.load(ROOT / path), path=path)


def profile(name: str = DELIVERED, **changes: Any) -> Profile:
    """A delivered recipe, with the fields in `changes` replaced."""
    return dataclasses.replace(_loaded(name), **changes)


def container(
    name: str,
    ident: str,
    *argv: str,
    image: str = f"{REPOSITORY}:nightly-dev-20260828",
    status: str = "running",
    pid: int | None = None,
    started: str = LONG_AGO,
    policy: str = "unless-stopped",
    auto_remove: bool = False,
    network: str = "host",
    ports: Sequence[int] = (),
    gpus: Sequence[str] = ("all",),
    labels: Mapping[str, str] | None = None,
    **host_config: Any,
) -> Container:
    """A container as the parser reads it from the object that `docker inspect` would print."""
    words = list(argv)
    kind, _, count = policy.partition(":")
    requests: list[dict[str, Any]] | None = None
    if tuple(gpus) == ("all",):
        requests = [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]]}]
    elif gpus:
        requests = [{"Driver": "", "Count": 0, "DeviceIDs": list(gpus)}]
    alive = status in ("running", "paused", "restarting")
    return from_inspect(
        {
            "Id": ident,
            "Name": f"/{name}",
            "Image": "sha256:" + "9" * 64,
            "Path": words[0] if words else "/bin/server",
            "Args": words[1:],
            "RestartCount": 0,
            "State": {
                "Status": status,
                "Pid": (4000 + int(ident[:2], 16) if alive else 0) if pid is None else pid,
                "StartedAt": started,
            },
            "Config": {"Image": image, "Env": [], "Labels": dict(labels or {})},
            "HostConfig": {
                "RestartPolicy": {"Name": kind, "MaximumRetryCount": int(count or 0)},
                "AutoRemove": auto_remove,
                "NetworkMode": network,
                "PortBindings": {f"{p}/tcp": [{"HostIp": "", "HostPort": str(p)}] for p in ports},
                "DeviceRequests": requests,
                "Runtime": "runc",
                **host_config,
            },
        }
    )


def production(**changes: Any) -> Container:
    """`glm53-pp4`: what production runs today."""
    return container("glm53-pp4", PP4, *PP4_ARGV, **changes)


def scan(**changes: Any) -> Container:
    """`dsv4_scan`: another team's, idle, `always`, asks for all GPUs."""
    argv = ("python3", "scan.py", "--api-key", "sk-very-secret", "--out", "/data/it's here")
    return container(
        "dsv4_scan", SCAN, *argv, **{"policy": "always", "network": "bridge"} | changes
    )


def served(plan: Plan, ident: str, **changes: Any) -> Container:
    """The container of a committed release, serving."""
    start = plan.main
    wanted: dict[str, Any] = {
        "image": plan.pin.reference if plan.pin else "",
        "policy": start.policy,
        "labels": {"rollpin.service": plan.service, "rollpin.release": str(plan.number)},
    }
    after = plan.create[plan.create.index(plan.pin.reference) + 1 :] if plan.pin else ()
    return container(start.live, ident, *after, **wanted | changes)


def retired(plan: Plan, ident: str) -> Container:
    """The container of a release that another one replaced."""
    return dataclasses.replace(
        served(plan, ident, status="exited", policy="no"), name=plan.main.before
    )


def down(c: Container, name: str | None = None) -> Container:
    """A displaced container: stopped, its policy taken."""
    return dataclasses.replace(c, status="exited", policy="no", pid=0, name=name or c.name)


def gpus(count: int = 8) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(str(i), f"GPU-{i:08d}", "NVIDIA RTX 6000D", "580.159.04", 100) for i in range(count)
    )


def release(
    plan: Plan,
    ident: str = "",
    state: str = "committed",
    at: str = AT,
    age: int = 3600,
) -> Release:
    """A release on the host, with the record that its plan wrote."""
    image = None
    if plan.pin:
        image = {
            "repository": plan.pin.repository,
            "tag": plan.pin.tag,
            "digest": plan.pin.digest,
        }
    value = json.loads(record.release_json(plan, Bound("tx", ident), at, image))
    return Release(plan.service, plan.number, state, age, value)


ENGINE = Engine("ENGINE:ID", "/var/lib/docker", "26.1.5", "overlay2", live_restore=True)


def host(*containers: Container, **changes: Any) -> HostState:
    """A host in good health on which these containers stand.

    Whoever is alive with a told port listens on it, and computes on the GPUs that it asks for
    unless `gpu_apps` says otherwise.
    """
    wanted = profile()
    paths = ["/var/lib/docker", "/var/lib/rollpin", *(c.host for c in wanted.caches)]
    disks = {p: Disk(p, 500 * 1024**3, "rw,relatime", True) for p in paths}
    config = model_on_host(wanted)
    disks[config] = Disk(config, 500 * 1024**3, "rw,relatime", True)
    listeners = [Listener(22, 50, "sshd", "")]
    apps = []
    for c in containers:
        if c.alive and "--port" in c.argv and c.network == "host":
            port = int(c.argv[c.argv.index("--port") + 1])
            listeners.append(Listener(port, c.pid, "python3", c.id))
            apps += [GpuApp(c.pid, g.uuid, "sglang::scheduler", c.id) for g in gpus()]
    state = HostState(
        name="gpu1",
        now=NOW,
        uptime=1000.0,
        boot_id="boot",
        engine=ENGINE,
        containers=tuple(containers),
        image=None,
        gpus=gpus(),
        gpu_apps=tuple(apps),
        listeners=tuple(listeners),
        disks=disks,
        last_log={c.id: None for c in containers},
        releases=(),
        transaction=None,
        systemd=True,
        privileged=True,
    )
    return dataclasses.replace(state, **changes)


IMAGE = Image("sha256:" + "9" * 64, (f"{REPOSITORY}@{DIGEST}",), "", (), "amd64", 30 * 1024**3)


def pin(digest: str | None = None, **changes: Any) -> Pin:
    """The delivered profile's own pin, or another one."""
    wanted = profile()
    return Pin(REPOSITORY, "latest", digest or str(wanted.pin), **{"source": "profile"} | changes)


def plan(state: HostState, wanted: Profile | None = None, **arguments: Any) -> Plan:
    """The plan of the delivered recipe on this host."""
    given: dict[str, Any] = {"pin": pin(), "by": BY, **arguments}
    return plan_release(wanted or profile(), state=state, **given)


def impatient(wanted: Profile, **data: object) -> tuple[Profile, tuple[str, ...]]:
    """The profile as an inventory adjusts it, and what it says about that."""
    return adjusted(wanted, {f"rollpin_{k}": v for k, v in data.items()})


def transaction(plan: Plan, lease_left: float = 90.0) -> Transaction:
    return Transaction(
        f"{plan.service}-{plan.number}-abcd", plan.service, plan.number, BY, AT, lease_left
    )


@dataclasses.dataclass(frozen=True)
class History:
    """A host with what its releases left there: r1 displaced production, r2 came after it."""

    state: HostState
    r1: Plan
    r2: Plan | None = None


def with_release_1(*others: Container, displaced: Sequence[Container] = (), **more: Any) -> History:
    """Release 1 serves; `glm53-pp4` (or `displaced`) is down with a restore note."""
    victims = tuple(displaced) or (production(),)
    r1 = plan(host(*victims))
    assert not r1.refused, r1.refusals
    state = host(
        served(r1, R1),
        *(down(v) for v in victims),
        *others,
        releases=(release(r1, R1),),
        displaced_notes=frozenset(v.id for v in victims),
        numbers_used=(1,),
        image=IMAGE,
        **more,
    )
    return History(state, r1)


def with_release_2(*others: Container, displaced: Sequence[Container] = ()) -> History:
    """Release 2 (other digest) serves, release 1 is retired, production is down."""
    before = with_release_1(displaced=displaced)
    r2 = plan(before.state, dataclasses.replace(profile(), pin=OTHER_DIGEST), pin=pin(OTHER_DIGEST))
    assert not r2.refused, r2.refusals
    victims = tuple(displaced) or (production(),)
    state = host(
        served(r2, R2),
        retired(before.r1, R1),
        *(down(v) for v in victims),
        *others,
        releases=(release(before.r1, R1), release(r2, R2, at="2026-11-30T01:53:20Z")),
        displaced_notes=frozenset(v.id for v in victims),
        numbers_used=(1, 2),
        image=IMAGE,
    )
    return History(state, before.r1, r2)


# What several test modules ask of a plan

WHY = Unknown("the daemon is away")
STRANGER = "7f" * 32
FREE = host()


def found(plan: Plan) -> list[str]:
    """What each refusal says was found."""
    return [r.found for r in plan.refusals]


def only(plan: Plan) -> str:
    assert plan.refused
    assert len(plan.refusals) == 1, found(plan)
    return str(plan.refusals[0])


def stranger(name: str = "stranger", **changes: Any) -> Container:
    given: dict[str, Any] = {"network": "bridge", "gpus": (), **changes}
    return container(name, STRANGER, **given)


def next_plan(state: HostState, **arguments: Any) -> Plan:
    wanted = dataclasses.replace(profile(), pin=OTHER_DIGEST)
    return plan(state, wanted, **{"pin": pin(OTHER_DIGEST), **arguments})


def known_releases(state: HostState) -> tuple[Release, ...]:
    assert not isinstance(state.releases, Unknown)
    return state.releases
