"""What the releases recorded on a host say: which serves, what it displaced, what came before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rollpin.observe import HostState, Release, Unknown
from rollpin.places import recreate_name, release_dir
from rollpin.plan import Remake
from rollpin.recreate import OWN_LOSSES


@dataclass(frozen=True)
class Recorded:
    """A displaced container as the release that stopped it first recorded it."""

    id: str
    name: str
    policy: str
    running: bool
    release: int
    service: str
    detail: Mapping[str, Any]


def of(state: HostState, service: str) -> tuple[Release, ...]:
    if isinstance(state.releases, Unknown):
        return ()
    return tuple(r for r in state.releases if r.service == service)


def current(state: HostState, service: str) -> Release | None:
    """The newest committed release; None when none was, or when it was taken back by hand."""
    done = [r for r in of(state, service) if r.state == "committed"]
    return done[-1] if done else None


def serving_id(release: Release | None) -> str:
    """The id of the container that bears the service, or "" (a foreign one came back)."""
    return str((release.record.get("serves") or {}).get("id") or "") if release else ""


def next_number(state: HostState, service: str) -> int:
    """Numbers are never used twice, also those of releases that were taken back."""
    used = [r.number for r in of(state, service)] + list(state.numbers_used)
    return max(used, default=0) + 1


def displaced_now(state: HostState) -> dict[str, Recorded]:
    """Containers that are displaced now, by id: those with a restore note on the host.

    A container that is displaced twice keeps its first record: each release records the policy
    that it found in the one before, so the newest record tells it.
    """
    out: dict[str, Recorded] = {}
    if isinstance(state.releases, Unknown):
        return out
    for release in _by_age(state.releases):
        if release.state != "committed":
            continue
        # A commit that was cut off may have left their notes.
        for start in release.record.get("starts") or ():
            out.pop(str(start["id"]), None)
        for stop in release.record.get("stops") or ():
            if stop["ours"] or stop["id"] not in state.displaced_notes:
                continue
            out[stop["id"]] = Recorded(
                id=stop["id"],
                name=stop["name"],
                policy=stop["policy"],
                running=bool(stop["running"]) or (stop["id"] in out and out[stop["id"]].running),
                release=release.number,
                service=release.service,
                detail=stop,
            )
    return out


def way_to_make(state: HostState, ident: str) -> Remake | None:
    """How the container of that id is made again: by the newest release that stopped it, or by the
    one that made it.
    """
    if isinstance(state.releases, Unknown):
        return None
    image = None
    for release in state.releases:
        if serving_id(release) == ident:
            image = release.record.get("image") or image
    for release in reversed(_by_age(state.releases)):
        for stop in release.record.get("stops") or ():
            if stop["id"] == ident and "losses" in stop:
                directory = release_dir(release.service, release.number)
                script = f"{directory}/{recreate_name(ident)}"
                return Remake(ident, stop["moved"], script, tuple(stop["losses"]), image)
    for release in state.releases:
        serves = release.record.get("serves") or {}
        if serves.get("id") == ident and serves.get("made"):
            script = f"{release_dir(release.service, release.number)}/{recreate_name(ident)}"
            return Remake(ident, str(serves["made"]), script, OWN_LOSSES, image)
    return None


def _by_age(releases: Iterable[Release]) -> list[Release]:
    return sorted(releases, key=lambda r: (str(r.record.get("at", "")), r.service, r.number))


def replaced_by(release: Release) -> int:
    """The release that this one replaced; 0 when it was the first."""
    return int(release.record.get("replaces") or 0)
