"""Who is in the way: holders of the service name, the port and the GPUs. Pure.

Three spellings of a port (a listener, a published port, a `--port` in the command line of a
container on the host's network that is still loading) and the ways of asking for GPUs are all
read; a container that asks and computes nothing holds what it asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rollpin import engine_flags
from rollpin.observe import Container, Gpu, HostState, Unknown


@dataclass(frozen=True)
class Refusal:
    """Why a plan must not run: what was found, what it means, what to do."""

    found: str
    means: str
    do: str

    def __str__(self) -> str:
        return f"{self.found}: {self.means}. {self.do}"


@dataclass(frozen=True)
class Collision:
    """A container in the way, and every reason why."""

    container: Container
    reasons: tuple[str, ...]


def gpu_indexes(asked: Iterable[str], gpus: Collection[Gpu]) -> frozenset[str]:
    """Indexes, UUIDs and `all` as indexes. What names no GPU of the host is kept as it is."""
    by_uuid = {g.uuid: g.index for g in gpus}
    every = frozenset(g.index for g in gpus)
    out: set[str] = set()
    for name in asked:
        if name == "all":
            out |= every or {"all"}
        else:
            out.add(by_uuid.get(name, name))
    return frozenset(out)


def overlap(one: Iterable[str], other: Iterable[str], gpus: Collection[Gpu]) -> bool:
    """May two requests for GPUs meet? `all` meets every request that is not empty."""
    one, other = set(one), set(other)
    if not one or not other:
        return False
    if "all" in one or "all" in other:
        return True
    a, b = gpu_indexes(one, gpus), gpu_indexes(other, gpus)
    # A name that is no GPU of this host (a MIG device, a spelling not known) may be any of them.
    return bool(a & b) or any(not name.isdigit() for name in a | b)


def told_port(container: Container) -> int | None:
    """The port in the command line of a container on the host's network."""
    if container.network != "host":
        return None
    written = engine_flags.value(container.argv, "--port") or ""
    return int(written) if written.isdigit() else None


def find(
    state: HostState,
    service: str,
    port: int,
    gpus: Collection[str],
    own: Collection[str],
) -> tuple[list[Collision], list[Refusal]]:
    """Containers in the way of (service, port, gpus), but for the ids in `own`.

    The refusals are about holders that are no container, and about what is not known.
    """
    if isinstance(state.containers, Unknown):
        return [], [_unknown("the containers", state.containers)]
    refusals: list[Refusal] = []
    known_gpus: tuple[Gpu, ...] = ()
    if gpus:
        for what, seen in (("the GPUs", state.gpus), ("who is on the GPUs", state.gpu_apps)):
            if isinstance(seen, Unknown):
                refusals.append(_unknown(what, seen))
        known_gpus = () if isinstance(state.gpus, Unknown) else state.gpus
    reasons: dict[str, list[str]] = {}
    for c in state.containers:
        if c.id in own:
            continue
        why = reasons.setdefault(c.id, [])
        if c.name == service:
            why.append(f"bears the name {service}")
        # An exited container with policy `always` rises at the next boot of the engine.
        if not c.alive and not (c.policy == "always" and c.status == "exited"):
            continue
        if port in c.ports:
            why.append(f"publishes port {port}")
        elif told_port(c) == port:
            why.append(f"is told to listen on port {port}")
        if overlap(c.gpus, gpus, known_gpus):
            why.append(f"asks for GPUs {','.join(c.gpus)}")
    refusals += _port_holders(state, port, own, reasons)
    refusals += _gpu_holders(state, gpus, own, reasons)
    found = [Collision(c, tuple(reasons[c.id])) for c in state.containers if reasons.get(c.id)]
    return found, refusals


def _unknown(what: str, seen: Unknown) -> Refusal:
    return Refusal(
        f"{what} could not be observed ({seen.reason})",
        "what is not known may be in use",
        "Put that right on the host, then run again.",
    )


def _port_holders(
    state: HostState, port: int, own: Collection[str], reasons: dict[str, list[str]]
) -> list[Refusal]:
    if isinstance(state.listeners, Unknown):
        return [_unknown("who listens on which port", state.listeners)]
    out = []
    published = not isinstance(state.containers, Unknown) and any(
        c.alive and port in c.ports for c in state.containers
    )
    for listener in state.listeners:
        if listener.port != port:
            continue
        if listener.container in own and listener.container:
            continue
        if listener.container in reasons:
            why = reasons[listener.container]
            if not any(f"port {port}" in w for w in why):
                why.append(f"listens on port {port}")
        elif published and listener.command == "docker-proxy":
            continue  # docker-proxy, or nobody, holds a published port
        else:
            who = (
                "a process that could not be identified"
                if listener.pid is None
                else f"process {listener.pid} ({listener.command}) of the host"
            )
            out.append(
                Refusal(
                    f"port {port} is held by {who}",
                    "rollpin stops only containers that the profile names",
                    f"Stop it, or serve on another port; see: ss -ltnp 'sport = :{port}'",
                )
            )
    return out


def _gpu_holders(
    state: HostState, gpus: Collection[str], own: Collection[str], reasons: dict[str, list[str]]
) -> list[Refusal]:
    if not gpus or isinstance(state.gpus, Unknown) or isinstance(state.gpu_apps, Unknown):
        return []
    wanted = gpu_indexes(gpus, state.gpus)
    index = {g.uuid: g.index for g in state.gpus}
    out: dict[int, Refusal] = {}
    for app in state.gpu_apps:
        where = index.get(app.uuid, app.uuid)
        if where not in wanted or (app.container and app.container in own):
            continue
        if app.container in reasons:
            why = reasons[app.container]
            if not any("GPU" in w for w in why):
                why.append(f"computes on GPU {where}")
        else:
            who = f" of container {app.container[:12]}" if app.container else " of the host"
            out[app.pid] = Refusal(
                f"GPU {where} is used by process {app.pid} ({app.name}){who}",
                "rollpin stops only containers that the profile names",
                "End it, or give the profile other GPUs; see: nvidia-smi",
            )
    return list(out.values())
