"""Which displaced containers can be given back while the service stays. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rollpin import collisions, preflight, releases
from rollpin.collisions import Refusal
from rollpin.observe import Container, HostState
from rollpin.places import STATE_DIR, giveback_name, release_dir
from rollpin.releases import Recorded


@dataclass(frozen=True)
class GiveBack:
    """One displaced container, the script that gives it back, and why not."""

    recorded: Recorded
    container: Container | None
    refusals: tuple[Refusal, ...]

    @property
    def script(self) -> str:
        directory = release_dir(self.recorded.service, self.recorded.release)
        return f"{directory}/{giveback_name(self.recorded.id)}"


def plan_giveback(state: HostState, names: Sequence[str]) -> tuple[list[GiveBack], list[Refusal]]:
    """`names` of displaced containers, all when empty; refusals that are about none of them."""
    general = preflight.refusals(state, guard=False)
    if general:
        return [], general
    displaced = releases.displaced_now(state)
    wanted = [r for r in displaced.values() if not names or r.name in names]
    unknown = set(names) - {r.name for r in wanted}
    general = [
        Refusal(
            f"{name} is not displaced on this host",
            f"displaced are: {', '.join(sorted(r.name for r in displaced.values())) or 'none'}",
            f"See {STATE_DIR}/displaced/.",
        )
        for name in sorted(unknown)
    ]
    return [_one(state, r) for r in wanted], general


def _one(state: HostState, recorded: Recorded) -> GiveBack:
    c = state.container(recorded.id)
    if c is None:
        if releases.way_to_make(state, recorded.id):
            # Its script makes it again, and looks for room by itself.
            return GiveBack(recorded, None, ())
        gone = Refusal(
            f"{recorded.name} ({recorded.id[:12]}) is gone from this engine",
            "it cannot be started again",
            f"Its record is in {release_dir(recorded.service, recorded.release)}/records.json.",
        )
        return GiveBack(recorded, None, (gone,))
    if not recorded.running or c.alive:
        return GiveBack(recorded, c, ())
    told = collisions.told_port(c)
    ports = {*c.ports, *([told] if told else [])} or {0}
    refusals: list[Refusal] = []
    for port in sorted(ports):
        found, holders = collisions.find(state, recorded.name, port, c.gpus, {c.id})
        refusals += [h for h in holders if h not in refusals]
        for other in found:
            if not other.container.alive:
                continue
            refusals.append(
                Refusal(
                    f"there is no room for {recorded.name}: {other.container.name}"
                    f" {' and '.join(other.reasons)}",
                    "both cannot run at once",
                    "Put everything back as it was: deploys/rollback.py, or on the host: sudo sh"
                    f" {release_dir(recorded.service, recorded.release)}/restore.sh rollback",
                )
            )
    return GiveBack(recorded, c, tuple(refusals))
