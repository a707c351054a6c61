"""May a container in the way be stopped, and could it be put back exactly? Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime

from rollpin import durations, owners, recreate, releases
from rollpin.collisions import Collision, Refusal
from rollpin.observe import Container, HostState, Unknown
from rollpin.owners import Catch
from rollpin.places import STATE_DIR
from rollpin.plan import Stop
from rollpin.profile import Profile
from rollpin.profile_values import Displace


def displace(
    collision: Collision, profile: Profile, state: HostState, together: Collection[str] = ()
) -> Stop | Refusal:
    """together: ids of all the containers that would be stopped with it."""
    c = collision.container
    held = f"{c.name} ({c.id[:12]}, {c.image}, {c.status}) {' and '.join(collision.reasons)}"
    permitted = next((d for d in profile.displaces if d.name == c.name), None)
    if permitted is None and c.labels.get("rollpin.service"):
        return Refusal(
            held,
            f"it is release {c.labels.get('rollpin.release', '?')} of"
            f" {c.labels['rollpin.service']}, and {STATE_DIR} has no record of it: nobody could go"
            " back to it",
            f"Put {STATE_DIR} back from a backup, or stop it yourself: docker stop {c.name}",
        )
    if permitted is None:
        return Refusal(
            held,
            f"{profile.name} does not say that it may displace {c.name}",
            f"Stop it yourself, or add {c.name} to DISPLACES in {profile.path}.",
        )
    again = recreate.of(c, state)
    caught = (*_deleted(c, again), *owners.catches(c, state, together))
    reason = _not_idle(c, permitted, state)
    if not reason and caught and not permitted.anyway:
        reason = _caught(c, caught)
    if reason:
        return Refusal(held, *reason)
    records = releases.displaced_now(state)
    first = next((records[i] for i in c.ids if i in records), None)
    return Stop(
        container=c,
        moved=f"{c.name}.displaced-{c.id[:12]}" if c.name == profile.service else c.name,
        policy=first.policy if first else c.policy,
        ours=False,
        reasons=collision.reasons,
        grace=profile.displace_stop_timeout,
        again=again,
        permitted=permitted.anyway,
        catches=caught,
    )


def _deleted(c: Container, again: recreate.Recreation) -> Iterator[Catch]:
    if not c.auto_remove:
        return
    volumes = ", ".join(path for _, path in again.volumes)
    yield Catch(
        "",
        "it was run with --rm: a stop deletes it",
        "it was run with --rm: the stop deletes it"
        + (f" and its anonymous volumes ({volumes})" if volumes else "")
        + "; it comes back made again, under a new id. Until then nothing but its name keeps the"
        f" image {c.image}",
        f"Run {c.name} without --rm, or stop it yourself",
    )


def _caught(c: Container, caught: Collection[Catch]) -> tuple[str, str]:
    """What speaks against stopping it, and what to do: all of it at once."""
    means = "; ".join(x.means for x in caught)
    do = "; ".join(dict.fromkeys(x.do for x in caught))
    return (
        means,
        f"{do}. Or permit it: DISPLACES={c.name}:anyway in the profile, or for one run"
        f" --data allow={c.name}; the plan then says what is lost.",
    )


def _not_idle(c: Container, permitted: Displace, state: HostState) -> tuple[str, str] | None:
    """Idle: no log line and no start within the time, and no process of it on a GPU."""
    if permitted.idle is None or not c.alive:
        return None
    wanted = durations.spoken(permitted.idle)
    if isinstance(state.gpu_apps, Unknown):
        return ("whether it computes is not known", "Put nvidia-smi right, then run again.")
    on = [a.pid for a in state.gpu_apps if a.container == c.id]
    if on:
        return (
            f"the profile displaces it only when idle, and process {on[0]} of it is on a GPU",
            "Wait until it is done, or ask its owner.",
        )
    last = state.last_log.get(c.id, Unknown("not looked at"))
    if isinstance(last, Unknown):
        return (
            f"whether it was idle for {wanted} is not known ({last.reason})",
            f"See docker logs {c.name}; stop it yourself if it may go.",
        )
    since = max(last or 0.0, started(c))
    idle = state.now - since
    if idle < permitted.idle:
        return (
            f"the profile displaces it only after {wanted} idle, and it was active"
            f" {durations.spoken(max(0, round(idle)))} ago",
            "Wait, or ask its owner.",
        )
    return None


def started(c: Container) -> float:
    """When the container started, in seconds since 1970."""
    text = c.started_at.split(".")[0].rstrip("Z")
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
