"""What people and crashes changed behind rollpin's back: the record against the engine. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from rollpin import releases
from rollpin.observe import Container, HostState, Release, Unknown
from rollpin.places import STATE_DIR, recreate_name, release_dir


@dataclass(frozen=True)
class Trouble:
    """What is not as it was recorded, and one command, for the host, that puts it right or shows
    why; none of them needs the controller.
    """

    what: str
    do: str
    minor: bool = False  # worth knowing; the service is what it should be


def troubles(state: HostState) -> tuple[Trouble, ...]:
    """Nothing of a service whose transaction is open: what it changes is no drift."""
    if isinstance(state.releases, Unknown) or isinstance(state.containers, Unknown):
        return ()
    out: list[Trouble] = []
    for name in sorted({r.service for r in state.releases}):
        known = releases.of(state, name)
        serving = releases.current(state, name)
        if serving is None or serving.fault or any(r.open for r in known):
            continue
        out += _serving(state, serving)
    if not any(r.open for r in state.releases):
        out += _displaced(state)
    return tuple(out)


def _serving(state: HostState, release: Release) -> Iterator[Trouble]:
    """Who must run since this release: its own container, or those it brought back."""
    serves = release.record.get("serves")
    rows = [serves] if serves else release.record.get("starts") or []
    own = f"{release.service} release {release.number}"
    for row in rows:
        name, ident = str(row.get("name") or row.get("live") or "?"), str(row["id"])
        c = state.container(ident)
        taken = _called(state, name)
        if c is None:
            yield _gone(release, name, ident, taken)
            continue
        yield from _state(c, own)
        yield from _restarted(state, release, c)
        yield from _updated(c, own)
        if c.name != name:
            rename = shlex.join(("docker", "rename", c.id[:12], name))
            if taken:
                aside = shlex.join(("docker", "rename", taken.id[:12], _aside(taken)))
                rename = f"sh -c {shlex.quote(f'{aside} && {rename}')}"
            yield Trouble(
                f"{own} was renamed: {name} is called {c.name}"
                + (f", and {taken.id[:12]} ({taken.image}) bears its name" if taken else ""),
                f"sudo {rename}",
            )
        policy = str(row.get("policy") or c.policy)
        if c.policy != policy:
            yield Trouble(
                f"{own} has restart policy {c.policy}, not {policy}",
                shlex.join(("sudo", "docker", "update", "--restart", policy, ident[:12])),
            )


def _called(state: HostState, name: str) -> Container | None:
    return next((c for c in state.containers if c.name == name), None)  # type: ignore[union-attr]


def _aside(c: Container) -> str:
    return f"{c.name}.{c.id[:12]}"


def _gone(release: Release, name: str, ident: str, taken: Container | None) -> Trouble:
    own = f"{release.service} release {release.number}"
    back = f"sh {release_dir(release.service, release.number)}/restore.sh rollback"
    if taken is None:
        return Trouble(
            f"the container of {own}, {name} ({ident[:12]}), is gone from this engine",
            f"sudo {back}",
        )
    short = taken.id[:12]
    away = (
        f"docker update --restart no {short} && docker stop {short} &&"
        f" {shlex.join(('docker', 'rename', short, _aside(taken)))} && {back}"
    )
    return Trouble(
        f"{own} was replaced: its container ({ident[:12]}) is gone, and another one ({short},"
        f" {taken.image}, {taken.status}) bears the name {name}",
        f"sudo sh -c {shlex.quote(away)}",
    )


def _restarted(state: HostState, release: Release, c: Container) -> Iterator[Trouble]:
    """By hand, or with dockerd. Not of one that crashed, which is told already, and not when the
    whole host was started since.
    """
    ident, started = state.verified.get((release.service, release.number), ("", ""))
    if c.status != "running" or c.restart_count or ident not in c.ids or started == c.started_at:
        return
    try:
        before = datetime.fromisoformat(started).timestamp()
    except ValueError:
        return
    if before >= state.booted:
        yield Trouble(
            f"{release.service} release {release.number} was restarted after its commit, at"
            f" {c.started_at}",
            shlex.join(
                ("sudo", "docker", "logs", "--since", c.started_at, "--tail", "100", c.id[:12])
            ),
            minor=True,
        )


# What `docker update` changes and rollpin never sets.
_LIMITS = (
    "Memory", "MemoryReservation", "MemorySwap", "NanoCpus", "CpuShares", "CpuQuota", "CpuPeriod",
    "CpusetCpus", "CpusetMems", "PidsLimit", "BlkioWeight",
)  # fmt: skip


def _updated(c: Container, own: str) -> Iterator[Trouble]:
    """Only of containers that rollpin created: how another's was meant is not known."""
    if "rollpin.service" not in c.labels:
        return
    host = c.record.get("HostConfig") or {}
    limits = {name: host[name] for name in _LIMITS if host.get(name)}
    if limits:
        fields = " ".join(f"{name}={{{{.HostConfig.{name}}}}}" for name in limits)
        yield Trouble(
            f"{own} was updated: {', '.join(f'{name} is {v}' for name, v in limits.items())}; a new"
            " release is without it",
            shlex.join(("sudo", "docker", "inspect", "--format", fields, c.id[:12])),
        )


def _state(c: Container, own: str) -> Iterator[Trouble]:
    short = c.id[:12]
    if c.status == "paused":
        yield Trouble(f"{own} is paused", f"sudo docker unpause {short}")
    elif c.status == "restarting":
        yield Trouble(f"{own} keeps crashing", f"sudo docker logs --tail 100 {short}")
    elif c.status != "running":
        yield Trouble(f"{own} does not run: it is {c.status}", f"sudo docker start {short}")
    elif c.restart_count:
        yield Trouble(
            f"{own} crashed and was restarted {c.restart_count} times",
            f"sudo docker logs --tail 100 {short}",
        )


def _displaced(state: HostState) -> Iterator[Trouble]:
    for ident, one in sorted(releases.displaced_now(state).items()):
        c = state.container(ident)
        whose = f"{one.name}, displaced by {one.service} release {one.release},"
        if c is None and one.detail.get("auto_remove"):
            continue  # its stop deleted it, as the plan said
        if c is None:
            script = f"{release_dir(one.service, one.release)}/{recreate_name(ident)}"
            yield Trouble(
                f"{whose} is gone from this engine: making it again leaves it stopped",
                f"sudo sh {script}"
                if "losses" in one.detail
                else f"sudo cat {STATE_DIR}/displaced/{ident}.md",
            )
        elif c.alive:
            yield Trouble(
                f"{whose} came back: it is {c.status}",
                f"sudo sh -c 'docker update --restart no {ident[:12]} && docker stop {ident[:12]}'",
            )
        elif c.policy != "no":
            yield Trouble(
                f"{whose} has restart policy {c.policy} again and may rise at the next boot",
                f"sudo docker update --restart no {ident[:12]}",
            )
