"""What people and crashes changed behind rollpin's back: the record against the engine. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from rollpin import releases
from rollpin.observe import Container, HostState, Release, Unknown
from rollpin.places import STATE_DIR, release_dir


@dataclass(frozen=True)
class Trouble:
    """What is not as it was recorded, and one command, for the host, that puts it right or shows
    why; none of them needs the controller.
    """

    what: str
    do: str


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
        if c is None:
            yield Trouble(
                f"the container of {own}, {name} ({ident[:12]}), is gone from this engine",
                f"sudo sh {release_dir(release.service, release.number)}/restore.sh rollback",
            )
            continue
        yield from _state(c, own)
        if c.name != name:
            yield Trouble(
                f"{own} was renamed: {name} is called {c.name}",
                shlex.join(("sudo", "docker", "rename", ident[:12], name)),
            )
        policy = str(row.get("policy") or c.policy)
        if c.policy != policy:
            yield Trouble(
                f"{own} has restart policy {c.policy}, not {policy}",
                shlex.join(("sudo", "docker", "update", "--restart", policy, ident[:12])),
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
        if c is None:
            yield Trouble(
                f"{whose} is gone from this engine: it cannot be given back",
                f"sudo cat {STATE_DIR}/displaced/{ident}.md",
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
