"""What a person sees: the plan per host, and at the end one line per host."""

from __future__ import annotations

import atexit
import os
import shlex
import sys
import threading
from collections.abc import Sequence
from typing import Any

import click
from pyinfra import logger
from pyinfra.context import ctx_state

from rollpin import scripts
from rollpin.plan import Plan
from rollpin.verdict import Verdict, Word

_LOCK = threading.Lock()
_VERDICTS: dict[tuple[str, str], Verdict] = {}
_PLANS: dict[tuple[str, str], str] = {}
_HASHES: dict[str, str] = {}

_GONE = "    if somebody removes it meanwhile it is made again, without"
_COLOURS = {
    Word.LIVE: "green",
    Word.UNCHANGED: "cyan",
    Word.REFUSED: "yellow",
    Word.HELD_BACK: "yellow",
    Word.RESTORED: "yellow",
}


def plan_text(plan: Plan) -> str:
    """The plan of one host, as `--dry` and the preview show it."""
    head = f"{plan.host}: {plan.service}"
    lines: list[str] = []
    if plan.refused:
        lines.append(f"{head}: refused, nothing would be touched")
        lines += [f"  refused: {r}" for r in plan.refusals]
    elif plan.unchanged:
        lines.append(f"{head}: unchanged, release {plan.current} is what the profile asks for")
    else:
        what = f"release {plan.number}"
        if plan.kind == "rollback":
            to = f"release {plan.target}" if plan.target else "what stood before release 1"
            what = f"rollback to {to}, as release {plan.number}"
        lines.append(
            f"{head}: {what} (now: {f'release {plan.current}' if plan.current else 'none'})"
        )
    if plan.pin:
        tag = f":{plan.pin.tag}" if plan.pin.tag else ""
        lines.append(
            f"  image: {plan.pin.repository}{tag} pinned to {plan.pin.digest}"
            f" ({_source(plan)}){'' if plan.unchanged else ', ' + _pull(plan)}"
        )
    if not plan.unchanged:
        for stop in plan.stops:
            whose = "ours" if stop.ours else "displaced, with a restore note"
            verb = "stops" if stop.was_running else "takes the restart policy of"
            lines.append(
                f"  {verb} {stop.container.name} ({whose}): {' and '.join(stop.reasons)};"
                f" policy {stop.policy}"
            )
            lines += [f"    permitted by {stop.permitted}: {x.lost}" for x in stop.catches]
            lines.append(f"{_GONE} {', '.join(stop.again.losses)}")
        for gone in plan.remake:
            lines.append(
                f"  makes {gone.name} again, which somebody removed ({gone.id[:12]}), without"
                f" {', '.join(gone.losses)}"
            )
        for start in plan.starts:
            lines.append(f"  starts {start.live} (as {start.before} until it serves)")
        if not plan.refused:
            if plan.create:
                lines.append(f"    {shlex.join(plan.create)}")
            lines += [f"    {c}" for c in scripts.forward(plan)]
            lines += [
                f"  the commit removes {p.name}, older than the two that are kept; it can be made"
                " again"
                for p in plan.prune
            ]
    lines += [f"  note: {n}" for n in plan.notes]
    lines += [f"  warning: {w}" for w in plan.warnings]
    if not plan.refused and not plan.unchanged:
        lines.append(f"  plan {plan.hash}: run exactly this with -y --data plan={plan.hash}")
    return "\n".join(lines)


def _source(plan: Plan) -> str:
    words = {
        "profile": "by the profile",
        "inventory": "by the inventory's mirror",
        "recorded": f"as release {plan.current} recorded it",
        "resolved": "the tag was resolved just now and is recorded with the release",
    }
    return words[plan.pin.source] if plan.pin else ""


def _pull(plan: Plan) -> str:
    return "already on the host" if plan.image_present else "to be pulled"


def preview_refused(host: Any, reason: str) -> None:
    """Before anything runs: says why this host would be refused; the run ends with 1, dry or not.

    Nothing is said while it runs: the refusal is the host's verdict then.
    """
    if not host.state.is_executing:
        logger.error(f"{host.print_prefix}refused: {reason}")
        preview(host, refused=True)


def preview(host: Any, refused: bool) -> None:
    """Whether the run would end with 1 for this host, if it ended with what was shown so far."""
    (host.state.failed_hosts.add if refused else host.state.failed_hosts.discard)(host)


def end_badly_when_nothing_was_looked_at() -> None:
    """A run whose --limit chooses no host, or whose --dry looks at none, must not end with 0."""
    atexit.register(_judge_the_run)


def _judge_the_run() -> None:
    why = _nothing_looked_at(sys.argv)
    if why:
        click.echo(f"--> rollpin: {why}", err=True)
        sys.stdout.flush()
        os._exit(1)  # the status is pyinfra's to give; at exit there is no other way left


def _nothing_looked_at(argv: Sequence[str]) -> str:
    if "--dry" in argv and {"-y", "--yes"} & set(argv) and not _PLANS:
        return "with -y, pyinfra --dry looks at nothing: leave -y out"
    state = ctx_state.get() if ctx_state.isset() else None
    if state is None or not state.initialised:
        return ""  # it did not come as far as choosing
    limit = state.limit_hosts
    chosen = limit if isinstance(limit, list) else list(state.inventory)
    return "" if chosen else "no host was chosen, nothing was done: see --limit"


def show(plan: Plan) -> None:
    """Prints the plan of a host once a run, and again only when it has changed."""
    key = (plan.host, plan.service)
    text = plan_text(plan)
    # What a container writes into itself changes all the time, and is told once.
    decided = "\n".join(x for x in text.splitlines() if not x.startswith(_GONE))
    with _LOCK:
        if _PLANS.get(key) == decided:
            return
        if not _PLANS:
            atexit.register(_binding)
        _PLANS[key] = decided
        if not plan.refused and not plan.unchanged:
            _HASHES[plan.host] = plan.hash
    click.echo(text, err=True)


def _binding() -> None:
    """After a look at several hosts: what binds an unattended run to all of these plans."""
    if len(_HASHES) > 1 and not _VERDICTS:
        plans = ",".join(f"{host}:{one}" for host, one in sorted(_HASHES.items()))
        click.echo(f"--> To run exactly these plans: -y --data plan={plans}", err=True)


def add(verdict: Verdict) -> None:
    """Notes the end of a host for the summary."""
    with _LOCK:
        if not _VERDICTS:
            atexit.register(_summary)
        _VERDICTS[(verdict.host, verdict.service)] = verdict


def _summary() -> None:
    click.echo("--> Verdicts:", err=True)
    for key in sorted(_VERDICTS):
        verdict = _VERDICTS[key]
        click.secho(verdict.line(), fg=_COLOURS.get(verdict.word, "red"))
    sys.stdout.flush()
