"""The plan of a rollback: a new numbered release whose container is already there. Pure."""

from __future__ import annotations

import dataclasses

from rollpin import collisions, command_line, preflight, recreate, releases
from rollpin.collisions import Refusal
from rollpin.observe import Container, HostState, Release, Unknown
from rollpin.plan import Plan, Remake, Start, Stop, Target
from rollpin.plan_release import gpu_holders
from rollpin.prune import prunable


def plan_rollback(
    state: HostState,
    service: str,
    by: str,
    to: int | None = None,
    number: int | None = None,
    lease: float = 120.0,
) -> Plan:
    """Back to release `to`; 0 is what stood before release 1; None is the one before the current.

    What the releases in between displaced comes back with it, when it is still down.
    """
    serving = releases.current(state, service)
    # A service that was deployed without a guard can only go back without one.
    guard = bool(serving.record.get("guard", True)) if serving else True
    refusals = preflight.refusals(state, guard)
    base = Plan(
        host=state.name,
        service=service,
        number=number or releases.next_number(state, service),
        kind="rollback",
        by=by,
        current=serving.number if serving else 0,
        target=to,
        guard=guard,
        lease=lease,
        engine=None if isinstance(state.engine, Unknown) else state.engine,
        gpu_holders=gpu_holders(state),
    )
    if preflight.hidden(state):
        return dataclasses.replace(base, refusals=tuple(refusals))
    live = state.container(releases.serving_id(serving))
    if serving is None or not releases.serving_id(serving):
        refusals.append(
            Refusal(
                f"no release of {service} serves on this host",
                "there is nothing to roll back",
                f"See: rollpin status; /var/lib/rollpin/{service}/journal.jsonl",
            )
        )
        return dataclasses.replace(base, refusals=tuple(refusals))
    target = releases.replaced_by(serving) if to is None else to
    known = {r.number: r for r in releases.of(state, service)}
    before = releases.replaced_by(known[target]) if target in known else 0
    base = dataclasses.replace(base, target=target, replaces=before)
    if target == serving.number or (target and target not in known):
        offered = ", ".join(str(n) for n in sorted(known) if known[n].state == "committed")
        refusals.append(
            Refusal(
                f"there is no release {target} of {service} to go back to",
                f"release {serving.number} serves; committed were: {offered or 'none'}",
                "Name one of them with --data to=N, or 0 for what stood before release 1.",
            )
        )
        return dataclasses.replace(base, refusals=tuple(refusals))
    if target and releases.serving_id(known[target]) == serving.record["serves"]["id"]:
        refusals.append(
            Refusal(
                f"the container of release {target} of {service} serves already",
                f"release {serving.number} went back to it",
                "Name another release with --data to=N, or 0 for what stood before release 1.",
            )
        )
        return dataclasses.replace(base, refusals=tuple(refusals))
    starts, health, remake, more = _starts(state, service, known, serving, target)
    refusals += more
    stops = _stop(live, serving, state)
    own = {s.id for s in starts} | {s.container.id for s in stops}
    main = next((s for s in starts if s.main), None)
    gpus: tuple[str, ...] = ()
    if main and health:
        container = state.container(main.id)
        gpus = container.gpus if container else ()
        found, holders = collisions.find(state, main.live, health.port, gpus, own)
        said = {r.found for r in refusals}
        refusals += [h for h in holders if h.found not in said]
        refusals += [
            Refusal(
                f"{c.container.name} {' and '.join(c.reasons)}",
                "a rollback displaces nobody new",
                "Stop it first, or roll back when it is done.",
            )
            for c in found
        ]
    plan = dataclasses.replace(
        base,
        stops=stops,
        starts=starts,
        remake=remake,
        gpus=gpus,
        port=health.port if health else 0,
        target_health=health,
        baseline=_baseline(serving, live),
        image=known[target].record.get("image") if target else None,
        failed_grace=30.0,
        profile=str(known[target].record.get("profile", "")) if target else "",
        fingerprint=str(known[target].record.get("fingerprint", "")) if target else "",
        refusals=tuple(refusals),
        warnings=tuple(preflight.warnings(state.engine, main.policy if main else "no")),
    )
    return dataclasses.replace(plan, prune=prunable(state, plan))


def _stop(live: Container | None, serving: Release, state: HostState) -> tuple[Stop, ...]:
    if live is None:
        return ()
    serves = serving.record["serves"]
    return (
        Stop(
            container=live,
            moved=f"{serving.service}.r{serving.number}",
            policy=str(serves.get("policy") or live.policy),
            ours=True,
            reasons=(f"serves {serving.service} as release {serving.number}",),
            grace=120.0,
            again=recreate.of(live, state),
        ),
    )


def _baseline(serving: Release, live: Container | None) -> Target | None:
    recorded = serving.record.get("health")
    if live is None or live.status != "running" or not recorded:
        return None
    return dataclasses.replace(Target.from_json(recorded), container=live.id)


def _starts(
    state: HostState,
    service: str,
    known: dict[int, Release],
    serving: Release,
    target: int,
) -> tuple[tuple[Start, ...], Target | None, tuple[Remake, ...], list[Refusal]]:
    refusals: list[Refusal] = []
    remake: list[Remake] = []

    def there(what: str, ident: str) -> tuple[Container | None, str]:
        """The container, or None; and its name now, or the one that it is made again with."""
        if found := state.container(ident):
            return found, found.name
        way = releases.way_to_make(state, ident)
        if way is None:
            refusals.append(_gone(what, ident))
            return None, ""
        remake.append(way)
        return None, way.name

    starts: list[Start] = []
    health: Target | None = None
    like = Target.from_json(serving.record["health"]) if serving.record.get("health") else None
    # A release that went back to a foreign container serves nothing of its own.
    own = releases.serving_id(known[target]) if target else ""
    if own:
        serves = known[target].record["serves"]
        kept, name = there(f"release {target}", own)
        if name:
            ident = kept.id if kept else ""
            starts.append(Start(ident, name, service, str(serves["policy"]), False, was=own))
            recorded = known[target].record.get("health")
            if recorded:
                health = dataclasses.replace(Target.from_json(recorded), container=ident)
    for back in releases.displaced_now(state).values():
        if back.service != service or back.release <= target or not back.running:
            continue
        c, name = there(f"{back.name}, displaced by release {back.release}", back.id)
        if not name or (c and c.alive):
            continue
        main = bool(c and not own and not any(s.main for s in starts) and _serves(c, like))
        ident = c.id if c else ""
        starts.append(
            Start(ident, name, back.name, back.policy, False, main, displaced=True, was=back.id)
        )
        if c and main:
            found = command_line.foreign_target(c, like, like.port if like else 0)
            health = found and dataclasses.replace(found, settle=like.settle if like else 60.0)
    if starts and not any(s.main for s in starts):
        starts[0] = dataclasses.replace(starts[0], main=True)
    if not starts and not refusals:
        refusals.append(
            Refusal(
                f"nothing stood before release 1 of {service}",
                "a rollback would only stop the service",
                f"To stop it: docker stop {service}",
            )
        )
    return tuple(starts), health, tuple(remake), refusals


def _serves(c: Container, like: Target | None) -> bool:
    target = command_line.foreign_target(c, like, like.port if like else 0)
    return target is not None and (like is None or target.port == like.port)


def _gone(what: str, ident: str) -> Refusal:
    return Refusal(
        f"the container of {what} ({ident[:12]}) is gone from this engine",
        "it cannot be started again",
        "Deploy the profile of that release again.",
    )
