"""From (profile, host state) to the plan of a release. Pure.

All refusals at once: a person mends them in one go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime

from rollpin import collisions, command_line, durations, preflight, releases
from rollpin.collisions import Collision, Refusal
from rollpin.fingerprint import fingerprint
from rollpin.observe import Container, Disk, HostState, Image, Release, Unknown
from rollpin.plan import Pin, Plan, Start, Stop, Target
from rollpin.profile import Profile
from rollpin.profile_values import Displace

GIB = 1024**3
STALE_AFTER = 900  # seconds; no stage between two steps takes longer without a trace


def pinned(profile: Profile, pin: Pin) -> Profile:
    """The profile bound to a digest: the fingerprint is over this one."""
    return dataclasses.replace(profile, pin=pin.digest)


def recorded_pin(profile: Profile, state: HostState) -> str | None:
    """The digest that the serving release of the same repository and tag was resolved to.

    A tag is resolved once: what runs stays what was recorded until somebody asks for a new pin.
    """
    release = releases.current(state, profile.service)
    image = release.record.get("image") if release else None
    if not image or image.get("repository") != profile.image_repository:
        return None
    return image.get("digest") if image.get("tag") == profile.image_tag else None


def plan_release(
    profile: Profile,
    pin: Pin | Unknown,
    state: HostState,
    by: str,
    notes: Sequence[str] = (),
    number: int | None = None,
    staged: str = "",
    missing_secrets: Sequence[str] = (),
) -> Plan:
    """The plan of the next release of `profile.service` on this host.

    number, staged: the release's number and container once they are staged.
    """
    service = profile.service
    refusals = preflight.refusals(state, profile.guard)
    serving = releases.current(state, service)
    current = serving.number if serving and releases.serving_id(serving) else 0
    number = number or releases.next_number(state, service)
    base = Plan(
        host=state.name,
        service=service,
        number=number,
        kind="release",
        by=by,
        current=current,
        replaces=current,
        profile=profile.name,
        guard=profile.guard,
        lease=profile.guard_lease,
        failed_grace=profile.failed_stop_timeout,
        drain=profile.stop_timeout,
        port=profile.port,
        notes=tuple(notes),
    )
    if isinstance(pin, Unknown):
        refusals.append(
            Refusal(
                f"{profile.image} could not be resolved to a digest ({pin.reason})",
                "rollpin runs only what is pinned",
                "Put the registry right, or write PIN=sha256:… in the profile.",
            )
        )
        return dataclasses.replace(base, refusals=tuple(refusals))
    print_of = fingerprint(pinned(profile, pin))
    live = state.container(releases.serving_id(serving)) if releases.serving_id(serving) else None
    own = {staged} | ({live.id} if live else set())
    gpus = () if profile.gpus == "none" else tuple(profile.gpus.split(","))
    found, holders = collisions.find(state, service, profile.port, gpus, own)
    refusals += holders
    stops = [_predecessor(live, serving, profile)] if live and serving else []
    for collision in found:
        stop = _displace(collision, profile, state)
        if isinstance(stop, Stop):
            stops.append(stop)
        else:
            refusals.append(stop)
    name = f"{service}.r{number}"
    present = _present(pin, state)
    refusals += _host_facts(profile, gpus, state, present)
    refusals += [
        Refusal(
            f"the secret {variable} cannot be read on the controller",
            "the container would start without it",
            f"Put its value into the file that SECRET_{variable} names.",
        )
        for variable in missing_secrets
    ]
    stale, taken = _staged_leftovers(state, service, name, staged, number)
    refusals += taken
    same = (
        live is not None
        and serving is not None
        and live.status == "running"
        and live.name == service
        and serving.record.get("fingerprint") == print_of
        and not found
        and not holders
    )
    wanted = command_line.target(profile, staged or name)
    return dataclasses.replace(
        base,
        unchanged=same,
        fingerprint=print_of,
        pin=pin,
        engine=None if isinstance(state.engine, Unknown) else state.engine,
        create=command_line.create(profile, pin, name, number, print_of),
        secrets=profile.secrets,
        stops=tuple(stops),
        starts=(Start(staged, name, service, profile.restart_policy, created=True),),
        cache_dirs=tuple((c.host, c.container) for c in profile.caches),
        stale=stale,
        gpu_holders=gpu_holders(state),
        target_health=wanted,
        baseline=_baseline(stops, wanted, serving),
        image_present=present,
        gpus=gpus,
        free_needed=_free_needed(state),
        refusals=tuple(refusals),
        warnings=_warnings(profile, pin, state, live, same),
    )


def gpu_holders(state: HostState) -> tuple[str, ...]:
    """Ids of the running containers that asked docker for GPUs, as swap.sh lists them."""
    if isinstance(state.containers, Unknown):
        return ()
    return tuple(
        sorted(
            c.id
            for c in state.containers
            if c.alive
            and (
                (c.record.get("HostConfig") or {}).get("DeviceRequests")
                or (c.record.get("HostConfig") or {}).get("Runtime") == "nvidia"
            )
        )
    )


def _predecessor(live: Container, serving: Release, profile: Profile) -> Stop:
    return Stop(
        container=live,
        moved=f"{profile.service}.r{serving.number}",
        policy=str((serving.record.get("serves") or {}).get("policy") or live.policy),
        ours=True,
        reasons=(f"serves {profile.service} as release {serving.number}",),
        grace=profile.stop_timeout,
    )


def _displace(collision: Collision, profile: Profile, state: HostState) -> Stop | Refusal:
    c = collision.container
    held = f"{c.name} ({c.id[:12]}, {c.image}, {c.status}) {' and '.join(collision.reasons)}"
    permitted = next((d for d in profile.displaces if d.name == c.name), None)
    if permitted is None:
        return Refusal(
            held,
            f"{profile.name} does not say that it may displace {c.name}",
            f"Stop it yourself, or add {c.name} to DISPLACES in {profile.path}.",
        )
    reason = unrestorable(c) or _not_idle(c, permitted, state)
    if reason:
        return Refusal(held, *reason)
    first = releases.displaced_now(state).get(c.id)
    return Stop(
        container=c,
        moved=f"{c.name}.displaced-{c.id[:12]}" if c.name == profile.service else c.name,
        policy=first.policy if first else c.policy,
        ours=False,
        reasons=collision.reasons,
        grace=profile.displace_stop_timeout,
    )


def unrestorable(c: Container) -> tuple[str, str] | None:
    """Why this container could not be put back exactly as it was; None when it can."""
    if c.auto_remove:
        return (
            "it was run with --rm: a stop deletes it, and nothing could bring it back",
            f"Run {c.name} without --rm, or stop it yourself.",
        )
    if c.status == "paused":
        return (
            "it is paused, and a stop loses that",
            f"docker unpause {c.name}, or stop it yourself.",
        )
    if c.status == "restarting":
        return (
            "it is restarting: it cannot be said what state to give back",
            f"See why it fails (docker logs {c.name}), or stop it yourself.",
        )
    return None


def _not_idle(c: Container, permitted: Displace, state: HostState) -> tuple[str, str] | None:
    """Idle: no log line and no start within the time, and no process of it on a GPU."""
    if permitted.idle is None or not c.alive:
        return None
    wanted = durations.spoken(permitted.idle)
    if isinstance(state.gpu_apps, Unknown):
        return ("whether it computes is not known", "Put nvidia-smi right, then run again.")
    on = [a.pid for a in state.gpu_apps if a.container == c.id]
    if on:
        return (
            f"the profile displaces it only when idle, and process {on[0]} of it is on a GPU",
            "Wait until it is done, or ask its owner.",
        )
    last = state.last_log.get(c.id, Unknown("not looked at"))
    if isinstance(last, Unknown):
        return (
            f"whether it was idle for {wanted} is not known ({last.reason})",
            f"See docker logs {c.name}; stop it yourself if it may go.",
        )
    since = max(last or 0.0, started(c))
    idle = state.now - since
    if idle < permitted.idle:
        return (
            f"the profile displaces it only after {wanted} idle, and it was active"
            f" {durations.spoken(max(0, round(idle)))} ago",
            "Wait, or ask its owner.",
        )
    return None


def started(c: Container) -> float:
    """When the container started, in seconds since 1970."""
    text = c.started_at.split(".")[0].rstrip("Z")
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def _present(pin: Pin, state: HostState) -> bool:
    """Is the image on the host? One that a release recorded is seen by its container."""
    if isinstance(state.image, Image):
        return True
    containers = () if isinstance(state.containers, Unknown) else state.containers
    return any(c.image == pin.reference for c in containers)


def _host_facts(
    profile: Profile, gpus: Sequence[str], state: HostState, image_present: bool
) -> list[Refusal]:
    out = []
    config = model_on_host(profile)
    if config:
        disk = state.disks.get(config, Unknown("not looked at"))
        if isinstance(disk, Unknown):
            out.append(
                Refusal(
                    f"{config} could not be looked at ({disk.reason})",
                    "an engine without its model loads nothing",
                    "Put that right on the host.",
                )
            )
        elif not disk.exists:
            out.append(
                Refusal(
                    f"the host has no {config}",
                    "the engine would take the model path for a Hugging Face id",
                    "Copy the model there, or set the mount right.",
                )
            )
    for cache in profile.caches:
        disk = state.disks.get(cache.host, Unknown("not looked at"))
        if isinstance(disk, Disk) and "noexec" in disk.options.split(","):
            out.append(
                Refusal(
                    f"the filesystem of {cache.host} is mounted noexec",
                    "compiled kernels kept there could not be loaded",
                    f"Move CACHE_{cache.name} to a disk without noexec.",
                )
            )
        if isinstance(disk, Disk) and disk.fstype in ("tmpfs", "ramfs", "overlay"):
            out.append(
                Refusal(
                    f"{cache.host} lies on {disk.fstype}",
                    "a cache there does not outlive a reboot, and its tactics are drawn again",
                    f"Move CACHE_{cache.name} to a persistent disk of the host.",
                )
            )
    if gpus and not isinstance(state.gpus, Unknown):
        known = {g.index for g in state.gpus} | {g.uuid for g in state.gpus}
        absent = [g for g in gpus if g != "all" and g not in known]
        ranks = round(
            (profile.flag_number("--tp-size") or 1) * (profile.flag_number("--pp-size") or 1)
        )
        have = len(state.gpus) if "all" in gpus else len(gpus) - len(absent)
        if absent or ranks > have:
            out.append(
                Refusal(
                    f"the profile wants {ranks} GPUs ({profile.gpus}), the host offers {have}",
                    "the engine would fail while loading",
                    "Deploy to a host of the profile's hardware, or change GPUS.",
                )
            )
    needed = _free_needed(state)
    if isinstance(state.image, Image) or isinstance(state.engine, Unknown):
        return out
    root = state.disks.get(state.engine.root)
    if not isinstance(root, Disk):
        out.append(
            Refusal(
                f"how much room {state.engine.root} has is not known",
                "a pull that fills the disk hurts what runs there",
                f"See on the host: df {state.engine.root}",
            )
        )
    elif root.free < needed:
        out.append(
            Refusal(
                f"{root.path} has {root.free / GIB:.1f} GiB free, the image may need"
                f" {needed / GIB:.1f} GiB",
                "a pull that fills the disk hurts what runs there",
                "Free some space (docker image prune), then run again.",
            )
        )
    return out


def _free_needed(state: HostState) -> int:
    """Bytes that must be free before a pull starts; the pull itself measures what it brings."""
    return GIB // 2 if isinstance(state.engine, Unknown) else GIB


def model_on_host(profile: Profile) -> str:
    """Where the model's config.json lies on the host, or "" for a model that is no local path."""
    path = profile.model_path.rstrip("/")
    for mount in sorted((*profile.mounts, *profile.caches), key=lambda m: -len(m.container)):
        if path == mount.container or path.startswith(mount.container.rstrip("/") + "/"):
            return (
                mount.host.rstrip("/") + path[len(mount.container.rstrip("/")) :] + "/config.json"
            )
    return ""


def _staged_leftovers(
    state: HostState, service: str, name: str, staged: str, number: int
) -> tuple[tuple[int, ...], list[Refusal]]:
    """Releases that a run staged long ago and never armed: ours to remove. A younger one may be
    another controller's work of this moment. A foreign container with our name is refused.
    """
    stale = tuple(
        r.number
        for r in releases.of(state, service)
        if r.state == "staged" and r.age > STALE_AFTER and r.number != number
    )
    taken = state.container(name)
    if taken is None or taken.id == staged:
        return stale, []
    return stale, [
        Refusal(
            f"a container is already called {name} ({taken.id[:12]}, {taken.image})",
            "the release needs the name",
            f"Rename or remove it: docker rename {name} {name}.old",
        )
    ]


def _baseline(stops: Sequence[Stop], like: Target, serving: Release | None) -> Target | None:
    """Health is compared with whoever serves now: the service itself, else who holds its port."""
    ours = next((s for s in stops if s.ours and s.was_running), None)
    if ours and serving and serving.record.get("health"):
        recorded = Target.from_json(serving.record["health"])
        return dataclasses.replace(recorded, container=ours.container.id)
    running = [s for s in stops if s.was_running]
    running.sort(key=lambda s: not any("port" in r for r in s.reasons))
    for stop in running:
        target = command_line.foreign_target(stop.container, like, like.port)
        if target:
            return target
    return None


def _warnings(
    profile: Profile, pin: Pin, state: HostState, live: Container | None, same: bool
) -> tuple[str, ...]:
    out = [*profile.warnings, *preflight.warnings(state.engine, profile.restart_policy)]
    if pin.moved:
        out.append(
            f"{profile.image_repository}:{profile.image_tag} points to {pin.tag_now} now; the"
            f" release keeps its pin {pin.digest}"
        )
    elif isinstance(pin.tag_now, Unknown):
        out.append(f"where the tag {pin.tag} points now is not known ({pin.tag_now.reason})")
    if same and live and live.policy != profile.restart_policy:
        out.append(
            f"{live.name} has restart policy {live.policy}, not {profile.restart_policy};"
            f" run: docker update --restart {profile.restart_policy} {live.name}"
        )
    return tuple(out)
