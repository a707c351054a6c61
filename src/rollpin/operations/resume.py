"""The operation that goes on with a transaction whose controller is gone."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from rollpin import profile_values, report, signals
from rollpin.docker_api import DockerApi
from rollpin.errors import HostError, Lost, UsageError
from rollpin.health import Health
from rollpin.observe import Release, Unknown
from rollpin.places import release_dir
from rollpin.planning import observe, remote_for, who
from rollpin.probe import Probe
from rollpin.remote import Remote
from rollpin.stage import Staged
from rollpin.takeover import carried_on
from rollpin.transaction import Transaction
from rollpin.verdict import Verdict, Word

signals.install()

# Both are written before anything is stopped; the baseline only where there is one to measure.
_RECORDS = 'cat "$1/records.json" && { echo; cat "$1/baseline.json" 2>/dev/null || echo null; }'


@operation(is_idempotent=True, _set_in_op=False)
def resumed(service: str | None = None) -> Generator[FunctionCommand, None, None]:
    """
    No transaction is open: one whose controller is gone is gone on with, to a deploy's verdict.

    + service: only this service's; without it whichever is open on the host
    """
    try:
        if service is not None:
            service = profile_values.service(service)
    except UsageError as e:
        report.preview_refused(host, str(e))
        yield FunctionCommand(_refused, ["resume", str(e)], {})
        return
    state = observe(host)
    if isinstance(state.releases, Unknown):
        report.preview_refused(host, state.releases.reason)
        yield FunctionCommand(_refused, [service or "resume", state.releases.reason], {})
        return
    found = [r for r in state.releases if r.open and service in (None, r.service)]
    for release in found:
        reason = _why_not(release)
        if reason:
            report.preview_refused(host, reason)
            yield FunctionCommand(_refused, [release.service, reason, release.number], {})
        else:
            yield FunctionCommand(_resume, [release], {})
    if not found and host.state.is_executing:
        reason = "no transaction is open"
        report.add(Verdict(host.name, service or "resume", Word.UNCHANGED, reason=reason))


def _why_not(release: Release) -> str:
    """Why an open release cannot be gone on with; "" when it may be."""
    what = f"release {release.number} of {release.service}"
    restore = f"sudo sh {release_dir(release.service, release.number)}/restore.sh"
    if release.state != "armed":
        return f"{what} is {release.state}: it is going back already. To help it: {restore}"
    if release.fault:
        return f"the record of {what} cannot be read ({release.fault}). Go back: {restore}"
    return ""


def _ended(the_host: Any, verdict: Verdict) -> bool:
    report.add(verdict)
    log = logger.info if verdict.word.good else logger.error
    log(f"{the_host.print_prefix}{verdict.word.value}{verdict.reason and ': '}{verdict.reason}")
    return verdict.word.good and not signals.received()


def _refused(state: Any, host: Any, service: str, reason: str, number: int = 0) -> bool:
    return _ended(host, Verdict(host.name, service, Word.REFUSED, number, reason=reason))


def _resume(state: Any, host: Any, release: Release) -> bool:
    remote = remote_for(host)
    api = DockerApi(remote)
    try:
        staged, baseline = _recorded(remote, release)
        transaction = Transaction(
            staged,
            remote,
            api,
            Probe(remote),
            lambda text: logger.info(f"{host.print_prefix}{text}"),
            baseline,
        )
        return _ended(host, transaction.resume())
    except (HostError, Lost) as e:
        return _refused(state, host, release.service, str(e), release.number)
    finally:
        api.close()


def _recorded(remote: Remote, release: Release) -> tuple[Staged, Health | None]:
    """What the controller that armed it knew. Raises HostError, Lost."""
    directory = release_dir(release.service, release.number)
    answer = remote.persist(_RECORDS, (directory,), within=30, tries=30)
    try:
        if answer.status != 0:
            raise ValueError(answer.output.strip()[-200:])
        records, baseline = (json.loads(x) for x in answer.output.splitlines() if x.strip())
        target, health = (baseline["target"], baseline["health"]) if baseline else (None, None)
        plan, bound = carried_on(release.record, records, target, remote.name, who())
        measured = Health.from_json(health) if health else None
    except (KeyError, TypeError, ValueError) as e:
        raise HostError(
            f"the record of release {release.number} of {release.service} is not whole"
            f" ({type(e).__name__}: {e}): it cannot be gone on with. Go back:"
            f" sudo sh {directory}/restore.sh"
        ) from e
    return Staged(plan, bound, release.record.get("image")), measured
