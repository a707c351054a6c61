"""The plan of one transaction on one host, as data. Pure: no I/O, no clock, no environment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollpin.collisions import Refusal
from rollpin.observe import Container, Engine, Unknown
from rollpin.owners import Catch
from rollpin.recreate import Recreation


@dataclass(frozen=True)
class Stop:
    """A container that the transaction stops.

    moved: the name it bears while it is down. policy: what it gets back, as first recorded.
    ours: the service's own release before this one; else a displaced container of somebody else.
    grace: seconds for its own shutdown. again: how it is made again if somebody removes it.
    permitted: who says that it may be stopped in spite of its catches; "" when nobody does.
    """

    container: Container
    moved: str
    policy: str
    ours: bool
    reasons: tuple[str, ...]
    grace: float
    again: Recreation
    permitted: str = ""
    catches: tuple[Catch, ...] = ()

    @property
    def was_running(self) -> bool:
        return self.container.status in ("running", "restarting", "paused")

    @property
    def unsteady(self) -> bool:
        """It crashes, and is ours or permitted: its state and start change by themselves."""
        c = self.container
        crashes = c.status == "restarting" or c.restart_count > 0
        return crashes and (self.ours or bool(self.permitted))

    @property
    def owners(self) -> list[str]:
        """Who starts it again, or suffers, sorted."""
        return sorted({x.who for x in self.catches if x.who})


@dataclass(frozen=True)
class Start:
    """A container that the transaction starts.

    id is "" until the stage has created it. before: its name while it waits; live: while it
    serves. policy: from the commit on. created: by this release, and removed if it fails.
    main: the one that bears the service and is judged. was: the id on record, when the container
    was removed since and has another one now, or none yet.
    """

    id: str
    before: str
    live: str
    policy: str
    created: bool
    main: bool = True
    displaced: bool = False  # a foreign container that comes back
    was: str = ""


@dataclass(frozen=True)
class Pin:
    """The digest the release is bound to, where it comes from, and where the tag points now."""

    repository: str
    tag: str | None
    digest: str
    source: str  # profile, inventory, recorded, resolved
    tag_now: str | Unknown | None = None

    @property
    def reference(self) -> str:
        return f"{self.repository}@{self.digest}"

    @property
    def moved(self) -> bool:
        return isinstance(self.tag_now, str) and self.tag_now != self.digest


@dataclass(frozen=True)
class Target:
    """What health is judged on: a container, and what it must answer."""

    engine: str  # sglang, vllm, or "" for a container without a known engine
    container: str  # id, or its name before it has one
    name: str
    port: int
    network: str
    model_path: str
    flags: Mapping[str, tuple[str, ...]]
    prompt: str
    expect: str
    deadline: float  # seconds until it must be ready
    settle: float  # seconds it must then stay good

    @property
    def api_key(self) -> str | None:
        """The key that the engine was told to ask for, or None."""
        value = self.flags.get("--api-key")
        return value[0] if value else None

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "flags": {k: list(v) for k, v in self.flags.items()}}

    @classmethod
    def from_json(cls, v: Mapping[str, Any]) -> Target:
        return cls(**{**v, "flags": {k: tuple(x) for k, x in v["flags"].items()}})


@dataclass(frozen=True)
class Remake:
    """A container that is gone, and the script on the host that makes it again.

    image: of the release that it served as, as recorded; None for somebody else's container.
    """

    id: str
    name: str
    script: str
    losses: tuple[str, ...]
    image: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Prune:
    """A stopped container with its local tags. image: repository@digest of an image that rollpin
    pulled and that goes too when nothing else uses it, or "".
    """

    id: str
    name: str
    tags: tuple[str, ...]
    image: str


@dataclass(frozen=True)
class Plan:
    """What a transaction will do on a host, or why it will not.

    kind: release, rollback. target: the release a rollback goes to; 0 is what stood before
    release 1. create: the `docker create` command line of the new container, or empty.
    """

    host: str
    service: str
    number: int
    kind: str
    by: str
    current: int  # the release that serves now; 0 when none does
    target: int | None = None
    replaces: int = 0  # the release to go back to from this one
    unchanged: bool = False
    profile: str = ""
    fingerprint: str = ""
    pin: Pin | None = None
    image: Mapping[str, Any] | None = None  # as the release that a rollback goes to recorded it
    engine: Engine | None = None
    create: tuple[str, ...] = ()
    secrets: Mapping[str, str] | None = None  # variable -> file on the controller
    stops: tuple[Stop, ...] = ()
    starts: tuple[Start, ...] = ()
    cache_dirs: tuple[tuple[str, str], ...] = ()  # host path, container path
    stale: tuple[int, ...] = ()  # releases staged by a run that died
    gpu_holders: tuple[str, ...] = ()  # ids that hold GPUs now, sorted
    target_health: Target | None = None
    baseline: Target | None = None
    image_present: bool = False
    guard: bool = True
    lease: float = 120.0
    failed_grace: float = 10.0  # seconds for a release that failed
    drain: float = 120.0  # seconds for one that was committed
    gpus: tuple[str, ...] = ()
    port: int = 0
    remake: tuple[Remake, ...] = ()  # what a rollback needs and somebody removed
    prune: tuple[Prune, ...] = ()  # what the commit removes of the service's past
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Of the image that will serve; "" for what stood before release 1."""
        return self.pin.digest if self.pin else str((self.image or {}).get("digest") or "")

    @property
    def refused(self) -> bool:
        return bool(self.refusals)

    @property
    def main(self) -> Start:
        return next(s for s in self.starts if s.main)

    @property
    def displaced(self) -> tuple[Stop, ...]:
        return tuple(s for s in self.stops if not s.ours)

    @property
    def hash(self) -> str:
        """Over what decided it; never over free bytes, ages or the number it will get.

        The letter keeps pyinfra's `--data plan=` from reading a number.
        """
        decided = {
            "service": self.service,
            "kind": self.kind,
            "target": self.target,
            "current": self.current,
            "unchanged": self.unchanged,
            "fingerprint": self.fingerprint,
            "pin": self.pin.reference if self.pin else None,
            "engine": [self.engine.id, self.engine.root] if self.engine else None,
            "stops": [
                [
                    s.container.id,
                    s.container.name,
                    "" if s.unsteady else s.container.status,
                    "" if s.unsteady else s.container.started_at,
                    s.container.policy,
                    s.policy,
                    sorted(s.reasons),
                    s.permitted,
                    s.owners,
                ]
                for s in self.stops
            ],
            "starts": [[s.was or s.id, s.live, s.policy] for s in self.starts if not s.created],
            "gpu_holders": list(self.gpu_holders),
            "refused": self.refused,
        }
        text = json.dumps(decided, sort_keys=True, separators=(",", ":"))
        return "p" + hashlib.sha256(text.encode()).hexdigest()[:12]


def decided_difference(before: Plan, after: Plan) -> list[str]:
    """What changed between two plans of different hash, in words."""
    out: list[str] = []
    then = {s.container.id: s.container for s in before.stops}
    now = {s.container.id: s.container for s in after.stops}
    for ident, c in now.items():
        if ident not in then:
            out.append(f"{c.name} is in the way now")
        elif then[ident] != c:
            was = then[ident]
            changes = [
                f"{what} {old} -> {new}"
                for what, old, new in (
                    ("name", was.name, c.name),
                    ("state", was.status, c.status),
                    ("started", was.started_at, c.started_at),
                    ("policy", was.policy, c.policy),
                )
                if old != new
            ]
            if changes:
                out.append(f"{c.name}: {', '.join(changes)}")
    out += [f"{c.name} is in the way no longer" for i, c in then.items() if i not in now]
    past = {s.container.id: s for s in before.stops}
    for stop in after.stops:
        old, name = past.get(stop.container.id, stop), stop.container.name
        out += [f"{who} starts {name} or needs it" for who in stop.owners if who not in old.owners]
        out += [f"{who} has left {name}" for who in old.owners if who not in stop.owners]
        if old.permitted != stop.permitted:
            out.append(f"{name} may be stopped by permission of {stop.permitted or 'nobody'} now")
    if before.current != after.current:
        out.append(f"the current release is {after.current}, was {before.current}")
    if (before.pin and before.pin.reference) != (after.pin and after.pin.reference):
        out.append(f"the pin is {after.pin and after.pin.digest}")
    if before.gpu_holders != after.gpu_holders:
        out.append("other containers hold GPUs")
    out += [str(r) for r in after.refusals if r not in before.refusals]
    if before.unchanged != after.unchanged:
        out.append("the service became what was asked for" if after.unchanged else "it drifted")
    return out or ["what decided the plan"]
