"""What `rollpin status` says about a host: which release serves, since when, by whom. Pure."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rollpin import places, preflight, releases
from rollpin.drift import Trouble, troubles
from rollpin.observe import Container, HostState, Release, Unknown

SHORT = len("sha256:") + 12


@dataclass(frozen=True)
class Service:
    """A service that rollpin has deployed. `release` is 0 when none of its releases serves.

    `container` says what bears it and in what state; `health` how it is now: good, bad, unknown
    (each with the reasons), or "" when it was not asked; `says` explains what is not the rule.
    """

    name: str
    release: int
    digest: str
    profile: str
    since: str
    by: str
    container: str
    says: str = ""
    health: str = ""


@dataclass(frozen=True)
class Answers:
    """What a service and its registry answered just now, beside the host's state.

    failures: what is not good, empty when all is; None when it was not asked. tag_now: the digest
    that the release's tag points to; None without a tag.
    """

    failures: tuple[str, ...] | Unknown | None = None
    tag_now: str | Unknown | None = None


@dataclass(frozen=True)
class Displaced:
    """A container that a release stopped, with its restore note and the command that undoes it."""

    name: str
    id: str
    state: str
    by: str
    note: str
    give_back: str


@dataclass(frozen=True)
class Open:
    """A transaction under way. `lease_left` is None when the host knows of no lease (a reboot)."""

    service: str
    release: int
    state: str
    id: str
    by: str
    since: str
    lease_left: float | None
    go_back: str
    go_on: str = ""  # the command of a controller, while going on is possible


@dataclass(frozen=True)
class Status:
    """One host. `unknown` has the reasons why something could not be told, each with a command
    that shows more.
    """

    host: str
    unknown: tuple[Trouble, ...]
    services: tuple[Service, ...] = ()
    displaced: tuple[Displaced, ...] = ()
    open: tuple[Open, ...] = ()
    troubles: tuple[Trouble, ...] = ()  # what is not as it was recorded
    others: tuple[str, ...] = ()  # what else runs on the GPUs
    warnings: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        return not self.unknown

    @property
    def good(self) -> bool:
        """Everything is known and as it was recorded."""
        return self.known and all(t.minor for t in self.troubles)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "good": self.good}


def status_of(state: HostState, answers: Mapping[str, Answers] | None = None) -> Status:
    """What the state of a host says to a person; `answers` by service, if they were asked."""
    answers = answers or {}
    unknown = _unknown(state) + _unrecorded(state)
    unknown += tuple(
        Trouble(f"the health of {name}: {a.failures.reason}", _look_at(state, name))
        for name, a in answers.items()
        if isinstance(a.failures, Unknown)
    )
    if isinstance(state.releases, Unknown):
        return Status(state.name, unknown)
    names = sorted({r.service for r in state.releases})
    services = tuple(
        dataclasses.replace(_service(state, name), health=_health(answers.get(name)))
        for name in names
    )
    return Status(
        host=state.name,
        unknown=unknown,
        services=services,
        displaced=_displaced(state, state.releases),
        open=_open(state, state.releases),
        troubles=troubles(state)
        + tuple(t for name, a in answers.items() for t in _answered(state, name, a)),
        others=_others(state, state.releases),
        warnings=_warnings(state, names),
    )


def _unknown(state: HostState) -> tuple[Trouble, ...]:
    kept = f"sudo ls -lR {places.STATE_DIR}"
    engine = "sudo systemctl status --no-pager docker"
    seen = (
        (state.releases, kept),
        (state.engine, engine),
        (state.containers, engine),
        (state.transaction, "sudo ls -l /run/rollpin"),
    )
    if not state.now and isinstance(state.engine, Unknown):
        # One reason for everything: it was not reached.
        return (Trouble(state.engine.reason, f"ssh {shlex.quote(state.name)}"),)
    out = [Trouble(s.reason, do) for s, do in seen if isinstance(s, Unknown)]
    if not isinstance(state.releases, Unknown):
        for r in state.releases:
            if r.fault:
                directory = places.release_dir(r.service, r.number)
                out.append(
                    Trouble(f"{directory}/release.json: {r.fault}", f"sudo ls -l {directory}")
                )
    first = {t.what: t for t in reversed(out)}
    return tuple(reversed(first.values()))


def _look_at(state: HostState, service: str) -> str:
    """Shows what the service's engine says."""
    release = releases.current(state, service)
    starts = (release.record.get("starts") or ()) if release else ()
    ident = next((str(s["id"]) for s in starts if s.get("main")), service)
    found = state.container(ident)
    return f"sudo docker logs --tail 100 {shlex.quote(found.id[:12] if found else ident[:12])}"


def _unrecorded(state: HostState) -> tuple[Trouble, ...]:
    """What bears rollpin's label and is in no record: a state directory that was lost."""
    if isinstance(state.containers, Unknown) or isinstance(state.releases, Unknown):
        return ()
    known = {(r.service, str(r.number)) for r in state.releases}
    return tuple(
        Trouble(
            f"{c.name} ({c.status}) is release {number} of {service}, and {places.STATE_DIR} has no"
            " record of it",
            f"sudo docker inspect {shlex.quote(c.name)}",
        )
        for c in sorted(state.containers, key=lambda c: c.name)
        if (service := c.labels.get("rollpin.service"))
        if (number := c.labels.get("rollpin.release", "?")) and (service, number) not in known
    )


def _service(state: HostState, name: str) -> Service:
    release = releases.current(state, name)
    if release is None:
        last = releases.of(state, name)[-1]
        says = f"no release of it serves; the newest, {last.number}, is {last.state}"
        if last.state in ("restored", "rolled-back"):
            stops = last.record.get("stops") or ()
            before = ", ".join(_container(state, str(s["id"]), str(s["name"])) for s in stops)
            nothing = "not known" if last.fault else "nothing"
            says += f"; before it stood: {before or nothing}"
        return Service(name, 0, "", "", "", "", "none", says)
    record = release.record
    if release.fault:
        return Service(
            name, release.number, "", "", "?", "?", "unknown", f"its record: {release.fault}"
        )
    serves = record.get("serves")
    if serves:
        bears = [(str(serves.get("id") or ""), str(serves.get("name") or name))]
        says = ""
    else:
        started = record.get("starts") or ()
        bears = [(str(s.get("id") or ""), str(s.get("live") or "?")) for s in started]
        says = "rolled back to what stood before release 1"
    return Service(
        name=name,
        release=release.number,
        digest=str((record.get("image") or {}).get("digest") or ""),
        profile=str(record.get("profile") or ""),
        since=str(record.get("at") or "?"),
        by=str(record.get("by") or "?"),
        container=", ".join(_container(state, *one) for one in bears),
        says=says,
    )


def _health(answer: Answers | None) -> str:
    if answer is None or answer.failures is None:
        return ""
    if isinstance(answer.failures, Unknown):
        return f"unknown: {answer.failures.reason}"
    return f"bad: {'; '.join(answer.failures)}" if answer.failures else "good"


def _answered(state: HostState, name: str, answer: Answers) -> Iterable[Trouble]:
    release = releases.current(state, name)
    if release is None:
        return
    own = f"{name} release {release.number}"
    if isinstance(answer.failures, tuple) and answer.failures:
        yield Trouble(
            f"{own} is not good: {'; '.join(answer.failures)}",
            _look_at(state, name),
        )
    image = release.record.get("image") or {}
    pinned = str(image.get("digest") or "")
    if isinstance(answer.tag_now, str) and pinned and answer.tag_now != pinned:
        repository = str(image.get("repository") or "")
        yield Trouble(
            f"the tag of {own} moved: {repository}:{image.get('tag')} is {answer.tag_now} now; the"
            f" release keeps {pinned}",
            shlex.join(("sudo", "docker", "image", "inspect", f"{repository}@{pinned}")),
            minor=True,
        )


def _container(state: HostState, ident: str, called: str) -> str:
    if isinstance(state.containers, Unknown):
        return f"{called} unknown"
    found = state.container(ident)
    if found is None:
        return f"{called} gone"
    moved = "" if found.name == called else f" as {found.name}"
    restarts = f", restarted {found.restart_count} times" if found.restart_count else ""
    return f"{called} {found.status}{moved}{restarts}"


def _displaced(state: HostState, known: Iterable[Release]) -> tuple[Displaced, ...]:
    recorded = releases.displaced_now(state)
    opened = {
        str(stop["id"]): (release, str(stop["name"]))
        for release in known
        if release.open
        for stop in release.record.get("stops") or ()
    }
    out = []
    for ident in sorted(state.displaced_notes):
        container = state.container(ident)
        name, by, give_back = ident[:12], "a release that is not on record", ""
        if ident in opened:
            release, name = opened[ident]
            by = f"{release.service} release {release.number}, which is open"
        elif ident in recorded:
            one = recorded[ident]
            name, by = one.name, f"{one.service} release {one.release}"
            script = f"{places.release_dir(one.service, one.release)}/"
            give_back = f"sudo sh {script}{places.giveback_name(ident)}"
        out.append(
            Displaced(
                name=container.name if container else name,
                id=ident,
                state=_state(state, container),
                by=by,
                note=f"{places.STATE_DIR}/displaced/{ident}.md",
                give_back=give_back,
            )
        )
    return tuple(sorted(out, key=lambda d: (d.name, d.id)))


def _state(state: HostState, container: Container | None) -> str:
    if isinstance(state.containers, Unknown):
        return "unknown"
    return container.status if container else "gone"


def _open(state: HostState, known: Iterable[Release]) -> tuple[Open, ...]:
    out = []
    for release in known:
        if not release.open:
            continue
        record, running = release.record, state.transaction
        directory = places.release_dir(release.service, release.number)
        ours = (
            running
            if running
            and not isinstance(running, Unknown)
            and (running.service, running.release) == (release.service, release.number)
            else None
        )
        out.append(
            Open(
                service=release.service,
                release=release.number,
                state=release.state,
                id=ours.id if ours else str(record.get("transaction") or "?"),
                by=ours.by if ours else str(record.get("by") or "?"),
                since=ours.since if ours else str(record.get("at") or "?"),
                lease_left=ours.lease_left if ours else None,
                go_back=f"sudo sh {directory}/restore.sh",
                go_on=f"rollpin resume {state.name} -i INVENTORY"
                if release.state == "armed"
                else "",
            )
        )
    return tuple(out)


def _others(state: HostState, known: Iterable[Release]) -> tuple[str, ...]:
    """Running containers with GPUs that are no service's: production of before, or a stranger."""
    if isinstance(state.containers, Unknown):
        return ()
    serving = (releases.current(state, name) for name in {r.service for r in known})
    ours = {str(s["id"]) for r in serving if r for s in r.record.get("starts") or ()}
    mine = {c.id for c in state.containers if "rollpin.service" in c.labels}
    return tuple(
        f"{c.name} {c.status}"
        for c in sorted(state.containers, key=lambda c: c.name)
        if c.alive and c.gpus and c.id not in ours | mine
    )


def _warnings(state: HostState, names: Iterable[str]) -> tuple[str, ...]:
    policies = []
    for name in names:
        container = state.container(releases.serving_id(releases.current(state, name)) or "?")
        if container:
            policies.append(container.policy)
    out = [w for policy in policies for w in preflight.warnings(state.engine, policy)]
    return tuple(dict.fromkeys(out))


# How it is said.

COLUMNS = ("host", "service", "release", "digest", "profile", "since", "by", "container", "health")


def rows(status: Status) -> list[tuple[str, ...]]:
    """One row of COLUMNS a service; one that says why when there is none."""
    if not status.services:
        what = "unknown" if status.unknown else "none"
        return [(status.host, what, *("",) * (len(COLUMNS) - 2))]
    return [
        (
            status.host,
            s.name,
            str(s.release or "none"),
            s.digest[:SHORT],
            s.profile,
            s.since,
            s.by,
            s.container,
            s.health.partition(":")[0],
        )
        for s in status.services
    ]


def details(status: Status) -> list[str]:
    """What does not fit into a row: unknowns, open transactions, displaced containers."""
    out: list[str] = []
    for unknown in status.unknown:
        out += [f"unknown: {unknown.what}", f"  {_where(unknown)}: {unknown.do}"]
    out += [f"{s.name}: {s.says}" for s in status.services if s.says]
    for trouble in status.troubles:
        word = "note" if trouble.minor else "TROUBLE"
        out += [f"{word}: {trouble.what}", f"  on the host: {trouble.do}"]
    for o in status.open:
        out.append(
            f"open: {o.service} release {o.release} is {o.state}, by {o.by} since {o.since},"
            f" transaction {o.id}; {_lease(o)}"
        )
        out.append(f"  to end it by going back: {o.go_back}")
        if o.go_on:
            out.append(f"  to go on, if its controller is gone: {o.go_on}")
    for d in status.displaced:
        out.append(f"displaced: {d.name} ({d.state}) by {d.by}, note {d.note}")
        if d.give_back:
            out.append(f"  to give it back: {d.give_back}")
    out += [f"also on the GPUs: {other}" for other in status.others]
    out += [f"warning: {warning}" for warning in status.warnings]
    return out


def _where(unknown: Trouble) -> str:
    return "from here" if unknown.do.startswith("ssh ") else "on the host"


def lines(status: Status) -> list[str]:
    """Plain lines, for a pipe or a log: each begins with the host's name."""
    out = []
    if not status.services:
        out.append(f"{status.host}: {'unknown' if status.unknown else 'no release of rollpin'}")
    for s in status.services:
        if not s.release:
            out.append(f"{status.host}: {s.name} none")
            continue
        parts = [f"{s.name} release {s.release}", s.digest[:SHORT], s.profile]
        parts += [f"since {s.since} by {s.by}", f"container {s.container}"]
        parts += [s.health and f"health {s.health.partition(':')[0]}"]
        out.append(f"{status.host}: {', '.join(p for p in parts if p)}")
    return out + [f"{status.host}:   {detail}" for detail in details(status)]


def _lease(one: Open) -> str:
    if one.state == "rolling-back":
        return "a rollback by hand that has not ended"
    if one.lease_left is None:
        return "no lease is known (a reboot?): the boot guard ends it, unless GUARD=off"
    if one.lease_left <= 0:
        return f"its lease ended {-one.lease_left:.0f} s ago: the guard ends it, unless GUARD=off"
    return f"lease {one.lease_left:.0f} s: the guard goes back then, unless it is renewed"
