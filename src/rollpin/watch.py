"""What a release stopped must stay down until its commit. The controller's side.

Looked at while the new container becomes ready and while it settles. One that rises is a failure,
named with whoever starts it.
"""

from __future__ import annotations

from typing import Any

from rollpin import owners
from rollpin.docker_api import DockerApi
from rollpin.errors import HostError, Lost
from rollpin.facts.host_state import observe_script
from rollpin.health import StartFailed
from rollpin.observe import WAS
from rollpin.observe_parse import parse_host_state
from rollpin.plan import Plan, Stop
from rollpin.remote import Remote, patiently


class Watch:
    """Watches over what `plan` stops, on the host of `remote`."""

    def __init__(
        self, plan: Plan, ident: str, remote: Remote, api: DockerApi, patience: float
    ) -> None:
        """ident: the container that the release created; patience: seconds for a lost host."""
        self.stops = plan.stops
        self.own = {s.id or ident for s in plan.starts}
        self.made = ident if plan.main.created else ""
        self.remote = remote
        self.api = api
        self.patience = patience

    def look(self) -> None:
        """Raises StartFailed when one of them runs, ran since its stop, or has a stand-in."""
        if not self.stops:
            return
        risen = patiently(self.patience, self._risen)
        if risen:
            raise StartFailed("; ".join(f"{name} rose again: {self._who(s)}" for s, name in risen))

    def _risen(self) -> list[tuple[Stop, str]]:
        alive = self.api.alive()
        since = next((c["Created"] for c in alive if c["Id"] == self.made), None)
        up = [c for c in alive if c["Id"] not in self.own]
        return [(s, name) for s in self.stops if (name := self._rose(s, up, since))]

    def _rose(self, stop: Stop, up: list[dict[str, Any]], since: int | None) -> str:
        """Its name, or the name of what stands in for it; "" when it is down.

        since: when the release's own container was made. What stood before stands in for nobody:
        a service may have several.
        """
        c = stop.container
        labels = {f"{WAS}.{ident}" for ident in c.ids}
        for one in up:
            if one["Id"] in c.ids or labels & set(one.get("Labels") or {}):
                return c.name
        for one in up:
            later = since is not None and one["Created"] >= since
            if later and owners.alike(c.labels, one.get("Labels") or {}):
                return f"{one['Names'][0].lstrip('/')} (in place of {c.name})"
        if stop.was_running and not stop.unsteady:
            found = self.api.inspect_container(c.id)
            if found and found["State"]["StartedAt"] != c.started_at:
                return c.name
        return ""

    def _who(self, stop: Stop) -> str:
        """Who starts it, and what ends that: as planned, or as the host shows it now."""
        c = stop.container
        known = [x for x in stop.catches if x.rises]
        if not known:
            try:
                answer = self.remote.run(observe_script(), within=30)
                state = parse_host_state(answer.output.splitlines())
                known = [x for x in owners.catches(c, state) if x.rises]
            except (HostError, Lost):
                known = []
        if known:
            return "; ".join(f"{x.who} starts it. {x.do}" for x in known)
        if owner := owners.belongs_to(c):
            return f"it belongs to {owner}; who starts it is not known"
        return "who starts it is not known; look for a script, a timer or a person that does"
