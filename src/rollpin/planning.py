"""From a pyinfra host to a plan: reads profile, inventory data and host, then plans. Reads only."""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent

from rollpin import bound_plans, profile_values, releases
from rollpin.docker_api import DockerApi
from rollpin.errors import HostError, Lost, UsageError
from rollpin.facts.host_state import HostState
from rollpin.fingerprint import fingerprint
from rollpin.host_needs import model_on_host
from rollpin.observe import CONTAINERD_ROOT, Unknown, unreachable
from rollpin.observe import HostState as State
from rollpin.plan import Pin, Plan
from rollpin.plan_release import pinned, plan_release, recorded_pin
from rollpin.plan_rollback import plan_rollback
from rollpin.policy import adjusted, allowed_by_run, lease_of_run, lease_seconds
from rollpin.profile import Profile
from rollpin.remote import Remote

OBSERVE_DEADLINE = 90.0
# Data that people set beside the ones that adjust a profile.
OTHER_DATA = ("rollpin_overlays",)


_SUDO_WORKS: set[str] = set()  # hosts of this run


def _sudo_refused(remote: Remote) -> str:
    """Why sudo does not work, else ""; pyinfra would ask for a password, of a terminal that may
    not be there. A host is asked once a run. Raises Lost.
    """
    if not remote.sudo or remote.name in _SUDO_WORKS:
        return ""
    answer = remote.run("exit 0", within=15)
    if answer.status == 0:
        _SUDO_WORKS.add(remote.name)
        return ""
    said = " ".join(answer.output.split())[:200]
    return (
        f"sudo does not work without a password ({said}); give the user password-less sudo on the"
        " host"
    )


@dataclass(frozen=True)
class Request:
    """What is asked for: a profile with its overlays."""

    profile: str
    overlays: tuple[str, ...] = ()


def who() -> str:
    """user@controller, for journal and notes."""
    user = os.environ.get("SUDO_USER") or getpass.getuser()
    return f"{user}@{socket.gethostname()}"


def remote_for(host: Any) -> Remote:
    return Remote(host, sudo=uses_sudo(host))


def uses_sudo(host: Any) -> bool:
    return bool(host.data.get("_sudo") or host.state.config.SUDO)


def host_data(host: Any) -> dict[str, object]:
    """The host's data that is ours, by name."""
    data: dict[str, object] = dict(host.data.dict())
    return {k: v for k, v in data.items() if k.startswith("rollpin_")}


def observe(host: Any, **wanted: Any) -> State:
    """The one fact, within its deadline. Every failure reads as unknown, never as absent."""
    remote = remote_for(host)
    try:
        remote.transport()  # a connection that died silently is made anew
        if reason := _sudo_refused(remote):
            return unreachable(host.name, reason)
    except (HostError, Lost) as e:
        return unreachable(host.name, str(e))
    timer = gevent.Timeout(OBSERVE_DEADLINE)
    timer.start()
    try:
        state: State = host.get_fact(
            HostState,
            **wanted,
            _sudo=uses_sudo(host),
            _ignore_errors=True,
            _timeout=round(OBSERVE_DEADLINE),
        )
    except gevent.Timeout as e:
        if e is not timer:
            raise
        return unreachable(host.name, f"no answer within {OBSERVE_DEADLINE:g} s")
    finally:
        timer.close()
    return State(**{**state.__dict__, "name": host.name})


def load(host: Any, request: Request) -> tuple[Profile, tuple[str, ...]]:
    """The profile as this host gets it. Raises UsageError."""
    data = host_data(host)
    profile, notes = adjusted(
        Profile.load(request.profile, request.overlays), data, also_known=OTHER_DATA
    )
    lease = host.data.get("lease")
    if lease is not None:
        profile, more = lease_of_run(profile, lease)
        notes += more
    allow = host.data.get("allow")
    if allow is not None:
        profile, more = allowed_by_run(profile, allow)
        notes += more
    return profile, notes


def plan_for(
    host: Any, request: Request, number: int | None = None, staged: str = ""
) -> tuple[Plan, State]:
    """The plan of a release on this host. Raises UsageError for what a person wrote."""
    profile, notes = load(host, request)
    check_bound_plans(host)
    state = observe(
        host,
        service=profile.service,
        image=f"{profile.image_repository}@{profile.pin}" if profile.pin else "",
        paths=_paths(profile),
        idle=[d.name for d in profile.displaces if d.idle is not None],
        diffs=[profile.service, *(d.name for d in profile.displaces)],
    )
    pin = pin_for(host, profile, state)
    missing = [v for v, path in profile.secrets.items() if not Path(path).expanduser().is_file()]
    return plan_release(profile, pin, state, who(), notes, number, staged, missing), state


def _paths(profile: Profile) -> list[str]:
    config = model_on_host(profile)
    out = [
        "/var/lib/docker",
        CONTAINERD_ROOT,
        "/var/lib/rollpin",
        *(c.host for c in profile.caches),
    ]
    return out + ([config] if config else [])


def pin_for(host: Any, profile: Profile, state: State) -> Pin | Unknown:
    """The digest to run: the profile's or mirror's, what the serving release recorded, or what
    the tag points to now. The registry is asked only when something would change.
    """
    repository, tag = profile.image_repository, profile.image_tag
    known = profile.pin or (None if host.data.get("repin") else recorded_pin(profile, state))
    source = "recorded" if not profile.pin else "inventory" if profile.mirrored_from else "profile"
    if known and _serves(profile, kept := Pin(repository, tag, known, source), state):
        return kept
    now: str | Unknown | None = None
    if tag:
        api = DockerApi(remote_for(host))
        try:
            now = api.tag_digest(repository, tag)[0]
        except (HostError, Lost) as e:
            now = Unknown(str(e))
        finally:
            api.close()
    if known:
        return Pin(repository, tag, known, source, now)
    if isinstance(now, str):
        return Pin(repository, tag, resolved_once(repository, tag or "", now), "resolved", now)
    return now or Unknown("it has neither tag nor digest")


_RESOLVED: dict[tuple[str, str], str] = {}


def resolved_once(repository: str, tag: str, digest: str) -> str:
    """One run gives all hosts the same digest, should the tag move while it runs."""
    return _RESOLVED.setdefault((repository, tag), digest)


def _serves(profile: Profile, pin: Pin, state: State) -> bool:
    release = releases.current(state, profile.service)
    asked = fingerprint(pinned(profile, pin))
    return bool(release and release.record.get("fingerprint") == asked)


def plan_back(host: Any, service: str, to: object, number: int | None = None) -> tuple[Plan, State]:
    """The plan of a rollback on this host. Raises UsageError for what a person wrote."""
    profile_values.service(service)
    if to is not None and not str(to).isdecimal():
        raise UsageError(f"--data to={to}: write a release's number, or 0 for before release 1")
    check_bound_plans(host)
    target = None if to is None else int(str(to))
    paths = ["/var/lib/docker", CONTAINERD_ROOT, "/var/lib/rollpin"]
    state = observe(host, service=service, paths=paths, diffs=[service])
    named = next((n for n in ("lease", "rollpin_lease") if host.data.get(n) is not None), None)
    try:
        length = lease_seconds(host.data.get(named)) if named else 120.0
    except ValueError as e:
        raise UsageError(f"data {named}: {e}") from e
    return plan_rollback(state, service, who(), target, number, length), state


def check_bound_plans(host: Any) -> None:
    """Raises UsageError for a `--data plan=` that cannot be read, also where nothing is to do."""
    given = host.data.get("plan")
    if given is not None:
        bound_plans.read(str(given), [h.name for h in host.state.inventory])


def bound_plan(host: Any) -> str | None:
    """The hash this host's plan must have, or None. Raises UsageError when none is named for it."""
    given = host.data.get("plan")
    if given is None:
        return None
    return bound_plans.of(host.name, str(given), [h.name for h in host.state.inventory])
