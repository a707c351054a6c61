"""Reasons for which no transaction may start on a host, whatever it would do. Pure."""

from __future__ import annotations

from rollpin.collisions import Refusal
from rollpin.observe import Engine, HostState, Unknown
from rollpin.places import release_dir


def refusals(state: HostState, guard: bool) -> list[Refusal]:
    """All of them at once."""
    out: list[Refusal] = []
    for what, seen in _needed(state):
        if isinstance(seen, Unknown):
            out.append(
                Refusal(
                    f"{what} could not be observed ({seen.reason})",
                    "rollpin plans nothing on what it does not know",
                    "Put that right on the host, then run again.",
                )
            )
    if not out and not state.privileged:
        out.append(
            Refusal(
                "rollpin is not root on the host",
                "neither the guard nor the state directory can be written",
                "Connect as root, or give the user password-less sudo and set _sudo=True.",
            )
        )
    if state.missing_tools:
        out.append(
            Refusal(
                f"the host lacks {', '.join(state.missing_tools)}",
                "restore.sh needs them",
                "Install coreutils, util-linux and docker there.",
            )
        )
    if guard and not state.systemd and not isinstance(state.engine, Unknown):
        out.append(
            Refusal(
                "the host does not run systemd",
                "no guard can watch over the swap, nor restore after a reboot",
                "Write GUARD=off in the profile to go without one, in so many words.",
            )
        )
    out += _open_transactions(state)
    out += _unreadable(state)
    return out


def _needed(state: HostState) -> tuple[tuple[str, object], ...]:
    return (
        ("the docker engine", state.engine),
        ("the containers", state.containers),
        ("the releases on the host", state.releases),
        ("the open transaction", state.transaction),
    )


def hidden(state: HostState) -> bool:
    """Is so much unknown, or in flux, that whoever is in the way cannot be told from it?"""
    if isinstance(state.releases, Unknown) or any(
        isinstance(seen, Unknown) for _, seen in _needed(state)
    ):
        return True
    # What a swap under way has renamed and stopped would read as more reasons.
    return any(r.open for r in state.releases) or bool(_unreadable(state))


def _unreadable(state: HostState) -> list[Refusal]:
    if isinstance(state.releases, Unknown):
        return []
    return [
        Refusal(
            f"the record of {r.service} release {r.number} cannot be read"
            f" ({directory}/release.json: {r.fault})",
            "what it serves and what it displaced is not known",
            "Put the file back from a backup, or roll the release back by hand, which needs no"
            f" record: sudo sh {directory}/restore.sh rollback",
        )
        for r in state.releases
        if r.fault and r.state == "committed"
        for directory in [f"/var/lib/rollpin/{r.service}/releases/{r.number}"]
    ]


def _open_transactions(state: HostState) -> list[Refusal]:
    if isinstance(state.releases, Unknown) or isinstance(state.transaction, Unknown):
        return []
    out = []
    for release in state.releases:
        if not release.open:
            continue
        owner, tx = f"{release.service} release {release.number}", state.transaction
        if tx and (tx.service, tx.release) == (release.service, release.number):
            left = max(0, round(tx.lease_left))
            owner += f", by {tx.by} since {tx.since}, with {left} s of its lease left"
        elif release.record:
            by, at = release.record.get("by", "?"), release.record.get("at", "?")
            owner += f", by {by} since {at}, and no lease is known (a reboot?)"
        out.append(
            Refusal(
                f"an open transaction owns the host: {owner} ({release.state})",
                "two at once would undo each other",
                "Wait for it, or end it by going back:"
                f" rollpin abort {state.name} -i INVENTORY or, on the host:"
                f" sudo sh {release_dir(release.service, release.number)}/restore.sh"
                + (
                    ". When its controller is gone, to go on with it:"
                    f" rollpin resume {state.name} -i INVENTORY"
                    if release.state == "armed"
                    else ""
                ),
            )
        )
    return out


def warnings(engine: Engine | Unknown, policy: str) -> list[str]:
    """What a person should know before relying on the host."""
    if isinstance(engine, Unknown):
        return []
    out = []
    if not engine.live_restore and policy not in ("always", "no"):
        out.append(
            f"live-restore is off: a dockerd that is killed leaves a {policy} container down for"
            " good; set live-restore in /etc/docker/daemon.json, or RESTART_POLICY=always"
        )
    if engine.mirrors:
        out.append(
            f"the engine pulls through {', '.join(engine.mirrors)}: rollpin pulls by digest, so an"
            " old tag there does no harm, but an image that it lacks cannot be pulled"
        )
    return out
