"""What is there: the state of one host as its single fact reports it. Pure.

Three values everywhere: present (the value), absent (None or empty) and `Unknown(reason)`.
Unknown never plans a change; the plan refuses on it and says the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Unknown:
    """Not observed. `reason` is for people."""

    reason: str


WAS = "rollpin.was"  # label of a container made again: WAS.<id> for each id that it had before
CONTAINERD_ROOT = "/var/lib/containerd"  # containerd's default, as Debian and Docker ship it


@dataclass(frozen=True)
class Engine:
    """`docker info`: which engine this is (`id` and `root` name it) and what it promises."""

    id: str
    root: str
    version: str
    storage: str
    live_restore: bool
    mirrors: tuple[str, ...] = ()

    @property
    def containerd_store(self) -> bool:
        """With the containerd image store an image's Id is its manifest digest."""
        return "io.containerd" in self.storage

    @property
    def image_roots(self) -> tuple[str, ...]:
        """The directories whose disks a pull fills."""
        return (self.root, CONTAINERD_ROOT) if self.containerd_store else (self.root,)


@dataclass(frozen=True)
class Container:
    """One container as `docker inspect` tells it. `record` is the whole object."""

    id: str
    name: str
    image: str
    image_id: str
    argv: tuple[str, ...]
    status: str  # created running paused restarting exited dead removing
    pid: int
    started_at: str
    restart_count: int
    policy: str  # no, always, unless-stopped, on-failure:3
    auto_remove: bool
    network: str
    ports: tuple[int, ...]  # published on the host
    gpus: tuple[str, ...]  # "all", indexes or UUIDs; empty when none are asked for
    labels: Mapping[str, str] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def ids(self) -> tuple[str, ...]:
        """Its id, and those that it had before it was removed and made again."""
        before = (k.removeprefix(f"{WAS}.") for k in self.labels if k.startswith(f"{WAS}."))
        return (self.id, *before)

    @property
    def alive(self) -> bool:
        """Holds what it asked for: a paused or restarting container does too."""
        return self.status in ("running", "paused", "restarting")


@dataclass(frozen=True)
class Gpu:
    index: str
    uuid: str
    name: str
    driver: str
    memory_used_mib: int | None  # None: the driver did not say


@dataclass(frozen=True)
class GpuApp:
    """One compute process on one GPU. `container` is an id, or "" for a process of the host."""

    pid: int
    uuid: str
    name: str
    container: str


@dataclass(frozen=True)
class Listener:
    """A listening TCP socket. `container` is an id, "" for the host, None when not known."""

    port: int
    pid: int | None
    command: str
    container: str | None


@dataclass(frozen=True)
class Disk:
    """The filesystem under a path: bytes free, mount options, whether the path is there."""

    path: str
    free: int
    options: str
    exists: bool
    fstype: str = ""  # "" when the host did not say


@dataclass(frozen=True)
class Image:
    """A local image found by the reference that was asked for."""

    id: str
    repo_digests: tuple[str, ...]
    user: str
    entrypoint: tuple[str, ...]
    architecture: str
    size: int


@dataclass(frozen=True)
class Release:
    """A numbered release as its directory on the host records it.

    state: staged armed committed restoring restored rolling-back rolled-back
    """

    service: str
    number: int
    state: str
    age: int = field(default=0, compare=False)  # seconds since its directory changed
    record: Mapping[str, Any] = field(compare=False, repr=False, default_factory=dict)
    fault: str = ""  # why its record cannot be relied on; then `record` is empty

    @property
    def open(self) -> bool:
        return self.state in ("armed", "restoring", "rolling-back")


@dataclass(frozen=True)
class Transaction:
    """The open transaction that owns the host. `lease_left` is in seconds."""

    id: str
    service: str
    release: int
    by: str
    since: str
    lease_left: float


@dataclass(frozen=True)
class Starter:
    """A service of systemd, or a line of a crontab, that speaks of docker.

    commands: what it runs, its scripts' lines included, with the variables that are known.
    """

    name: str  # scan.service, or the crontab's path
    commands: tuple[str, ...] = field(repr=False)
    active: bool = True
    enabled: bool = True
    restart: str = ""  # no, always, on-failure …
    triggers: tuple[str, ...] = ()  # timers, sockets and paths that start it
    directory: str = ""  # where it runs

    @property
    def cron(self) -> bool:
        return self.name.startswith("/")


@dataclass(frozen=True)
class HostState:
    """Everything the plan may know about a host."""

    name: str
    now: float  # seconds since 1970, the host's own clock
    uptime: float
    boot_id: str
    engine: Engine | Unknown
    containers: tuple[Container, ...] | Unknown
    image: Image | Unknown | None
    gpus: tuple[Gpu, ...] | Unknown
    gpu_apps: tuple[GpuApp, ...] | Unknown
    listeners: tuple[Listener, ...] | Unknown
    disks: Mapping[str, Disk | Unknown]
    last_log: Mapping[str, float | Unknown | None]  # container id -> time of its last log line
    releases: tuple[Release, ...] | Unknown
    transaction: Transaction | Unknown | None
    systemd: bool
    privileged: bool
    missing_tools: tuple[str, ...] = ()
    displaced_notes: frozenset[str] = frozenset()  # ids with a restore note
    numbers_used: tuple[int, ...] = ()  # release numbers that the journal mentions
    # `docker image inspect` of the containers' images, by image id
    images: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False, repr=False)
    # `docker diff` of the containers that were asked for, by id
    diffs: Mapping[str, tuple[str, ...] | Unknown] = field(default_factory=dict, compare=False)
    # (service, release) -> id and start of its container, as they were verified before the commit
    verified: Mapping[tuple[str, int], tuple[str, str]] = field(default_factory=dict)

    # what else on the host may start containers
    starters: tuple[Starter, ...] | Unknown = ()

    @property
    def booted(self) -> float:
        """Seconds since 1970."""
        return self.now - self.uptime

    def container(self, ident: str) -> Container | None:
        """By id (also one that it had before it was made again) or by name."""
        if isinstance(self.containers, Unknown):
            return None
        for c in self.containers:
            if ident in (c.id, c.name):
                return c
        return next((c for c in self.containers if ident in c.ids), None)


def unreachable(name: str, reason: str) -> HostState:
    """A host that gave no answer: everything about it is unknown."""
    u = Unknown(reason)
    return HostState(name, 0, 0, "", u, u, u, u, u, u, {}, {}, u, u, False, False)
