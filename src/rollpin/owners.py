"""Who would start a stopped container again, and who suffers from its stop. Pure.

What docker's labels, the services and crontabs of the host and the other containers tell. Whoever
tells nothing is found out by the watch over the settling (watch.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rollpin.observe import Container, HostState, Starter, Unknown

_WORDS = re.compile(r"[\s;&|'\"()<>`]+")
_STARTING = frozenset(("create", "restart", "run", "start", "unpause"))
_VERBS = _STARTING | {
    *("attach", "compose", "cp", "exec", "image", "inspect", "kill", "logs", "network", "ps"),
    *("pull", "push", "rename", "rm", "stop", "system", "update", "volume", "wait"),
}
_PROJECT = "com.docker.compose.project"
_SERVICE = "com.docker.compose.service"
_DEPENDS = "com.docker.compose.depends_on"
_FILES = "com.docker.compose.project.config_files"
_DIRECTORY = "com.docker.compose.project.working_dir"
# Labels by which a container that replaces another one is known as its like.
_ALIKE = (
    ("com.docker.swarm.service.id",),
    ("io.kubernetes.pod.uid", "io.kubernetes.container.name"),
    ("com.hashicorp.nomad.job_name", "com.hashicorp.nomad.task_name"),
    (_PROJECT, _SERVICE),
)


@dataclass(frozen=True)
class Catch:
    """Why a container must not be stopped without a permission.

    who: who starts it again, or suffers; "" when it is its own state. means: what was found about
    that. lost: what is lost or happens when it is stopped all the same. do: what ends the catch.
    rises: it is started again by them.
    """

    who: str
    means: str
    lost: str
    do: str
    rises: bool = False


def catches(c: Container, state: HostState, together: Collection[str] = ()) -> tuple[Catch, ...]:
    """Everything that speaks against stopping `c`, but for --rm and idleness.

    together: ids of containers that are stopped with it; they suffer nothing more.
    """
    every = () if isinstance(state.containers, Unknown) else state.containers
    others = tuple(o for o in every if o.alive and o.id != c.id and o.id not in together)
    out = [*_own_state(c), *_started_by(c, state.starters), *_managed(c), *_healed(c, others)]
    if c.alive:
        out += _orphan(c, every)
        out += [*_dependants(c, others), *_sidecars(c, others)]
    return tuple(out)


def belongs_to(c: Container) -> str:
    """Whom its labels name, whether they start it again or not; "" when they name nobody."""
    managed = next(_managed(c), None)
    if managed:
        return managed.who
    return f"the compose project {c.labels[_PROJECT]}" if c.labels.get(_PROJECT) else ""


def alike(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Do these labels belong to two containers of which one stands in for the other?"""
    return any(
        all(one.get(key) and one.get(key) == other.get(key) for key in keys) for keys in _ALIKE
    )


def in_order(stopped: Sequence[Container]) -> list[Container]:
    """The same containers, whoever needs another one after it: the order to start them in."""
    left, out = list(stopped), list[Container]()
    while left:
        free = next((c for c in left if not any(_needs(c, o) for o in left if o is not c)), left[0])
        left.remove(free)
        out.append(free)
    return out


def _own_state(c: Container) -> Iterator[Catch]:
    if c.status == "paused":
        yield Catch(
            "",
            "it is paused, and a stop loses that",
            "it is paused: what it held in memory is lost, and it comes back running",
            f"docker unpause {c.name}, or stop it yourself",
        )
    if c.status == "restarting":
        yield Catch(
            "",
            "it is restarting: it cannot be said what state to give back",
            "it is restarting: it comes back by one start, which may fail as it does now",
            f"See why it fails (docker logs {c.name}), or stop it yourself",
        )


def _orphan(c: Container, every: Sequence[Container]) -> Iterator[Catch]:
    """It runs on in the namespace of a container that does not: docker starts it no more."""
    host = c.record.get("HostConfig") or {}
    for key in ("NetworkMode", "PidMode", "IpcMode"):
        kind, colon, ident = str(host.get(key) or "").partition(":")
        if kind != "container" or not colon:
            continue
        if not any(o.alive and ident in (o.id, o.id[:12], o.name) for o in every):
            yield Catch(
                "",
                f"it lives in a namespace of the container {ident[:12]}, which does not run: once"
                " stopped it cannot be started again",
                f"it cannot be started again without the container {ident[:12]}",
                f"Make {c.name} anew beside a container that runs, or stop it yourself",
            )
            return


def _started_by(c: Container, starters: tuple[Starter, ...] | Unknown) -> Iterator[Catch]:
    if isinstance(starters, Unknown):
        yield Catch(
            "somebody not known",
            f"whether a service of the host starts it again is not known ({starters.reason})",
            "a service that starts it again would end this release",
            "Put systemctl right on the host, then run again",
        )
        return
    for one in starters:
        if one.name.startswith("rollpin-") or not any(_starts(x, one, c) for x in one.commands):
            continue
        if one.cron:
            yield Catch(
                f"a line of {one.name}",
                f"a line of {one.name} starts it again when its time comes",
                f"when the line of {one.name} starts it again this release is taken back",
                f"Take the line out of {one.name} for as long",
                rises=True,
            )
        elif one.active or one.enabled or one.triggers:
            yield _unit(one)


def _unit(one: Starter) -> Catch:
    who = f"the systemd unit {one.name}"
    how = f" (Restart={one.restart})" if one.restart not in ("", "no") else ""
    if one.triggers:
        means = f"{who}, which {' and '.join(one.triggers)} runs, starts it again"
    elif one.active:
        means = f"{who}{how} runs it and may start it again once it is stopped"
    else:
        means = f"{who} starts it at the next boot"
    stop = f"sudo systemctl stop {' '.join((*one.triggers, one.name))}"
    return Catch(
        who,
        means,
        f"{who} sees it stop; if it starts it again this release is taken back. What puts the"
        f" container back starts no unit: sudo systemctl start {one.name}",
        f"{stop}, and see that {one.name} is not started again meanwhile",
        rises=True,
    )


def _starts(command: str, by: Starter, c: Container) -> bool:
    """Does this command line start the container, or stop it for whoever started it?"""
    words = [w for w in _WORDS.split(command) if w]
    at = [n for n, w in enumerate(words) if w.rsplit("/", 1)[-1] in ("docker", "docker-compose")]
    for n, end in zip(at, [*at[1:], len(words)], strict=False):
        rest = words[n + 1 : end]
        verb = next((w for w in rest if w in _VERBS), "")
        if words[n].endswith("docker-compose") or verb == "compose":
            if _composes(words[: n + 1], rest, by, c):
                return True
        elif verb in _STARTING or (verb == "stop" and command.startswith("ExecStop")):
            names = {c.name, c.id, c.id[:12]}
            if names & {w.removeprefix("--name=") for w in rest}:
                return True
    return False


def _composes(before: Sequence[str], rest: Sequence[str], by: Starter, c: Container) -> bool:
    project = c.labels.get(_PROJECT)
    if not project or not {"up", "start", "restart", "run", "create"} & set(rest):
        return False
    directory = c.labels.get(_DIRECTORY, "").rstrip("/")
    files = {f for f in c.labels.get(_FILES, "").split(",") if f}
    if named := {"-p", "--project-name"} & set(rest):
        return rest[rest.index(named.pop()) + 1 :][:1] == [project]
    said = {w.split("=", 1)[-1] for w in rest}
    where = {by.directory.rstrip("/"), *(w.rstrip("/") for w in before)}
    given = said | {f"{by.directory.rstrip('/')}/{w}" for w in said}
    if {"-f", "--file"} & set(rest) or any(w.startswith("--file=") for w in rest):
        return bool(files & given)
    return bool(directory) and (directory in where or directory in said)


def _managed(c: Container) -> Iterator[Catch]:
    label = c.labels.get
    if service := label("com.docker.swarm.service.name"):
        yield _manager(
            f"the swarm service {service}", "a new task", f"docker service scale {service}=0"
        )
    pod = label("io.kubernetes.pod.name")
    if pod or c.name.startswith("k8s_"):
        where = f"{label('io.kubernetes.pod.namespace', 'default')}/{pod}" if pod else c.name
        yield _manager(
            f"kubelet (pod {where})",
            "a new container",
            "Move the pod away with kubectl (scale it down, or drain the node)",
        )
    if allocation := label("com.hashicorp.nomad.alloc_id"):
        job = label("com.hashicorp.nomad.job_name")
        yield _manager(
            f"nomad ({f'job {job}' if job else f'allocation {allocation[:8]}'})",
            "a new container",
            f"nomad job stop {job}" if job else f"nomad alloc stop {allocation[:8]}",
        )


def _manager(who: str, what: str, do: str) -> Catch:
    return Catch(
        who,
        f"{who} owns it and puts {what} in its place",
        f"{who} puts {what} in its place, and this release is taken back when that runs",
        do,
        rises=True,
    )


def _healed(c: Container, others: Sequence[Container]) -> Iterator[Catch]:
    for healer in others:
        env = _env(healer)
        if _is(healer, "autoheal") or "AUTOHEAL_CONTAINER_LABEL" in env:
            wanted = env.get("AUTOHEAL_CONTAINER_LABEL", "autoheal")
            if wanted == "all" or c.labels.get(wanted) == "true":
                yield _healer(f"autoheal ({healer.name})", f"docker stop {healer.name}")
                return
        if _is(healer, "watchtower") and c.labels.get(_WATCHTOWER) != "false":
            argv = (healer.record.get("Config") or {}).get("Cmd") or ()
            if env.get("WATCHTOWER_REVIVE_STOPPED") == "true" or "--revive-stopped" in argv:
                yield _healer(f"watchtower ({healer.name})", f"docker stop {healer.name}")
    if c.labels.get("autoheal") == "true":
        yield _healer("an autoheal (its label says so)", "Stop the autoheal that watches it")


_WATCHTOWER = "com.centurylinklabs.watchtower.enable"


def _healer(who: str, do: str) -> Catch:
    return Catch(
        who,
        f"{who} starts it again",
        f"if {who} starts it again this release is taken back",
        do,
        rises=True,
    )


def _is(c: Container, tool: str) -> bool:
    image = c.image.split("@")[0].rsplit("/", 1)[-1].split(":")[0]
    return tool in image or tool in c.name


def _env(c: Container) -> dict[str, str]:
    said = (c.record.get("Config") or {}).get("Env") or ()
    return dict(x.split("=", 1) for x in said if "=" in x)


def _dependants(c: Container, others: Sequence[Container]) -> Iterator[Catch]:
    project = c.labels.get(_PROJECT)
    found = [o for o in others if project and _depends(o, c)]
    if not found:
        return
    names = ", ".join(o.name for o in found)
    services = " ".join(dict.fromkeys(o.labels[_SERVICE] for o in found if _SERVICE in o.labels))
    yield Catch(
        f"{names} of the compose project {project}",
        f"{names} of the compose project {project} depends on it",
        f"{names} of the compose project {project} goes on without it, and may fail until it is"
        " back",
        f"docker compose -p {project} stop {services}".rstrip(),
    )


def _sidecars(c: Container, others: Sequence[Container]) -> Iterator[Catch]:
    for other in others:
        shared = _shared(other, c)
        if not shared:
            continue
        yield Catch(
            other.name,
            f"{other.name} shares its {shared}",
            f"{other.name} shares its {shared} and loses it; when it is back: docker restart"
            f" {other.name}",
            f"docker stop {other.name}",
        )


def _needs(c: Container, other: Container) -> bool:
    return bool(_shared(c, other)) or _depends(c, other)


def _depends(c: Container, other: Container) -> bool:
    """By compose: `service:condition[:restart]`, separated by commas."""
    if not c.labels.get(_PROJECT) or c.labels.get(_PROJECT) != other.labels.get(_PROJECT):
        return False
    needed = {x.split(":")[0].strip() for x in c.labels.get(_DEPENDS, "").split(",")}
    return other.labels.get(_SERVICE, "") in needed - {""}


def _shared(c: Container, other: Container) -> str:
    """What `c` has of `other`, in words; "" for nothing."""
    host = c.record.get("HostConfig") or {}
    names = {other.id, other.id[:12], other.name}
    out = [
        f"{word} namespace"
        for key, word in (("NetworkMode", "network"), ("PidMode", "process"), ("IpcMode", "IPC"))
        if str(host.get(key) or "").startswith("container:")
        and str(host[key]).removeprefix("container:") in names
    ]
    if names & {str(v).split(":")[0].lstrip("/") for v in host.get("VolumesFrom") or ()}:
        out.append("volumes")
    return " and ".join(out)
