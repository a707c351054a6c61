"""Which stopped containers of a service a commit may remove. Pure.

Two are kept beside the one that serves, so that going back is only a start. What is removed can be
made again: the release that stopped it has its record. Whatever another way back needs stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rollpin import releases
from rollpin.observe import Container, HostState, Unknown
from rollpin.plan import Plan, Prune

KEPT = 2


def prunable(state: HostState, plan: Plan) -> tuple[Prune, ...]:
    """What the commit of this plan may remove, oldest first."""
    if isinstance(state.containers, Unknown) or isinstance(state.releases, Unknown):
        return ()
    starts = {s.id for s in plan.starts}
    # What the next rollback without a number goes to.
    following = next(
        (r for r in releases.of(state, plan.service) if r.number == plan.replaces), None
    )
    needed = {releases.serving_id(following), *_needed(state, plan.service)}
    served = {i: n for n, i in _served(state, plan.service)}  # the newest release of each
    kept = sum(1 for s in plan.stops if s.ours)
    out: list[Prune] = []
    for ident in sorted(served, key=lambda i: served[i], reverse=True):
        c = state.container(ident)
        if c is None or c.id in starts or any(c.id == s.container.id for s in plan.stops):
            continue
        if kept < KEPT:
            kept += 1
        elif not needed & set(c.ids) and _ours(c, plan.service) and _recorded(state, c):
            out.append(_prune(state, plan.service, c))
    return tuple(reversed(out))


def _served(state: HostState, service: str) -> Iterator[tuple[int, str]]:
    for release in releases.of(state, service):
        if release.state in ("committed", "rolled-back") and (i := releases.serving_id(release)):
            yield release.number, i


def _needed(state: HostState, service: str) -> Iterator[str]:
    """Ids that a displaced container's, another service's or an open release's way back names."""
    yield from state.displaced_notes
    if isinstance(state.releases, Unknown):
        return
    for release in state.releases:
        others = release.service != service and release.state == "committed"
        if others or release.open:
            yield from (str(s["id"]) for s in release.record.get("stops") or ())
            yield releases.serving_id(release)


def _ours(c: Container, service: str) -> bool:
    down = c.status in ("exited", "created", "dead")
    return down and c.labels.get("rollpin.service") == service


def _recorded(state: HostState, c: Container) -> bool:
    return any(releases.way_to_make(state, ident) for ident in c.ids)


def _prune(state: HostState, service: str, c: Container) -> Prune:
    bears = [r for r in releases.of(state, service) if releases.serving_id(r) in c.ids]
    image: Mapping[str, Any] = next((r.record["image"] for r in bears if r.record.get("image")), {})
    reference = f"{image.get('repository')}@{image.get('digest')}" if image.get("pulled") else ""
    made = c.labels.get("rollpin.release", "")
    tags = (f"rollpin/{service}:{made}",) if made.isdecimal() else ()
    return Prune(c.id, c.name, tags, reference)
