"""From (profile, host state) to the plan of a release. Pure.

All refusals at once: a person mends them in one go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rollpin import collisions, command_line, host_needs, owners, preflight, recreate, releases
from rollpin.collisions import Refusal
from rollpin.displace import displace
from rollpin.fingerprint import fingerprint
from rollpin.observe import Container, HostState, Release, Unknown
from rollpin.plan import Pin, Plan, Start, Stop, Target
from rollpin.profile import Profile
from rollpin.prune import prunable

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
    if preflight.hidden(state):
        return dataclasses.replace(base, refusals=tuple(refusals))
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
    said = {r.found for r in refusals}
    refusals += [h for h in holders if h.found not in said]
    stops = [_predecessor(live, serving, profile, state)] if live and serving else []
    together = {c.container.id for c in found}
    for collision in found:
        stop = displace(collision, profile, state, together)
        if isinstance(stop, Stop):
            stops.append(stop)
        else:
            refusals.append(stop)
    # What is put back is started in this order.
    order = [c.id for c in owners.in_order([s.container for s in stops])]
    stops.sort(key=lambda s: order.index(s.container.id))
    name = f"{service}.r{number}"
    present = host_needs.image_present(pin, state)
    refusals += host_needs.refusals(profile, gpus, state, present)
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
    plan = dataclasses.replace(
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
        refusals=tuple(refusals),
        warnings=_warnings(profile, pin, state, live, same),
    )
    return plan if same else dataclasses.replace(plan, prune=prunable(state, plan))


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


def _predecessor(live: Container, serving: Release, profile: Profile, state: HostState) -> Stop:
    return Stop(
        container=live,
        moved=f"{profile.service}.r{serving.number}",
        policy=str((serving.record.get("serves") or {}).get("policy") or live.policy),
        ours=True,
        reasons=(f"serves {profile.service} as release {serving.number}",),
        grace=profile.stop_timeout,
        again=recreate.of(live, state),
    )


def _staged_leftovers(
    state: HostState, service: str, name: str, staged: str, number: int
) -> tuple[tuple[int, ...], list[Refusal]]:
    """Releases that a run staged long ago, or before this boot, and never armed: ours to remove.
    A younger one may be another controller's work of this moment. A foreign container with our
    name is refused.
    """
    stale = tuple(
        r.number
        for r in releases.of(state, service)
        if r.state == "staged" and r.age > min(STALE_AFTER, state.uptime) and r.number != number
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
