"""The operations that go back: the open transaction, and displaced containers."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from rollpin import profile_values, report, signals
from rollpin import remote_steps as steps
from rollpin.command_line import foreign_target
from rollpin.docker_api import DockerApi
from rollpin.errors import HostError, Lost, RollpinError, UsageError
from rollpin.health import Examiner
from rollpin.observe import Release, Unknown
from rollpin.observe_parse import container
from rollpin.places import release_dir
from rollpin.plan_giveback import GiveBack, plan_giveback
from rollpin.planning import observe, remote_for, who
from rollpin.probe import Probe
from rollpin.remote import Remote
from rollpin.verdict import Verdict, Word

signals.install()


@operation(is_idempotent=True, _set_in_op=False)
def restored(service: str | None = None) -> Generator[FunctionCommand, None, None]:
    """
    No transaction is open: one that is gets taken back, also from a controller that hangs.

    + service: only this service's; without it whichever is open on the host
    """
    try:
        if service is not None:
            service = profile_values.service(service)
    except UsageError as e:
        report.preview_refused(host, str(e))
        yield FunctionCommand(_refused, ["restore", str(e)], {})
        return
    state = observe(host)
    if isinstance(state.releases, Unknown):
        report.preview_refused(host, state.releases.reason)
        yield FunctionCommand(_refused, [service or "restore", state.releases.reason], {})
        return
    found = [r for r in state.releases if r.open and service in (None, r.service)]
    for release in found:
        yield FunctionCommand(_restore, [release], {})
    if not found and host.state.is_executing:
        known = sorted({r.service for r in state.releases})
        reason = "no transaction is open"
        if service is not None and service not in known:
            others = f"; there are releases of {', '.join(known)}" if known else ""
            reason += f"; no release of {service} is on record here{others}"
        _unchanged(host.name, service or "restore", reason)


@operation(is_idempotent=True, _set_in_op=False)
def given_back(containers: Sequence[str] = ()) -> Generator[FunctionCommand, None, None]:
    """
    Displaced containers run again as they were, while the service stays; refused without room.

    + containers: their names; without it every displaced container of the host
    """
    state = observe(host)
    plans, general = plan_giveback(state, containers)
    for refusal in [*general, *(r for plan in plans for r in plan.refusals)]:
        report.preview_refused(host, str(refusal))
    if general:
        yield FunctionCommand(_refused, ["give back", "; ".join(map(str, general))], {})
    elif plans:
        # One command: a container that is refused must not hide what becomes of the others.
        yield FunctionCommand(_give_all_back, [plans], {})
    elif host.state.is_executing:
        _unchanged(host.name, "give back", "no container is displaced")


def _ended(the_host: Any, verdict: Verdict, good: bool) -> bool:
    report.add(verdict)
    log = logger.info if good else logger.error
    log(f"{the_host.print_prefix}{verdict.word.value}{verdict.reason and ': '}{verdict.reason}")
    return good


def _unchanged(name: str, service: str, reason: str) -> None:
    report.add(Verdict(name, service, Word.UNCHANGED, reason=reason))


def _refused(state: Any, host: Any, service: str, reason: str) -> bool:
    return _ended(host, Verdict(host.name, service, Word.REFUSED, reason=reason), good=False)


def _restore(state: Any, host: Any, release: Release) -> bool:
    """What it was asked for is success here, so a restored host does not fail."""
    remote = remote_for(host)
    directory = release_dir(release.service, release.number)
    transaction = str(release.record.get("transaction", ""))

    warnings: list[str] = []

    def end(word: Word, reason: str = "") -> bool:
        note = f"{directory}/NOTE.md"
        verdict = Verdict(
            host.name,
            release.service,
            word,
            release.number,
            note=note,
            reason=reason,
            warnings=tuple(warnings),
        )
        return _ended(host, verdict, good=word is Word.RESTORED)

    follow = f"{host.name}: it goes on there; see {directory}/logs/restore.log"
    try:
        with signals.going_back(follow):
            steps.launch(remote, directory, "restore", transaction, True, who())
            status = steps.follow(
                remote,
                directory,
                "restore",
                1200,
                lambda text: logger.info(f"{host.print_prefix}{text}"),
                transaction,
            )
            now = steps.state_of(remote, directory)
            if now not in ("restored", "rolled-back"):
                said = steps.tail(remote, directory, "restore")
                return end(Word.RESTORE_FAILED, f"restore.sh ended with status {status}: {said}")
            warnings += steps.warned(remote, directory)
            if release.fault:
                unread = f"its record cannot be read ({release.fault}): ask what served before"
                return end(Word.RESTORED_UNVERIFIED, unread)
            _judge_restored(remote, release)
    except Lost as e:
        return end(Word.IN_DOUBT, f"{e}; {follow}")
    except RollpinError as e:
        return end(Word.RESTORE_FAILED, str(e))
    return end(Word.RESTORED)


def _judge_restored(remote: Remote, release: Release) -> None:
    """Every container that ran before must serve again, as far as it shows an engine. Raises
    HostError for one that does not, Lost when the host is gone.
    """
    api, probe = DockerApi(remote), Probe(remote)
    examiner = Examiner(remote, api, probe)
    try:
        for stop in release.record.get("stops") or ():
            if not stop["running"]:
                continue
            found = api.find_container(str(stop["id"]))
            if found is None or found["State"]["Status"] != "running":
                raise HostError(f"{stop['name']} does not run")
            target = foreign_target(container(found), None, 0)
            if target is not None and target.port:
                probe.prove(target.port)
                examiner.await_good(target, target.deadline, lambda: None, fresh=False)
    finally:
        api.close()


def _give_all_back(state: Any, host: Any, plans: Sequence[GiveBack]) -> bool:
    good = True
    for plan in plans:
        good = _give_back(host, plan) and good
    return good


def _give_back(host: Any, plan: GiveBack) -> bool:
    name = plan.recorded.name
    if plan.refusals:
        reason = "; ".join(map(str, plan.refusals))
        return _ended(host, Verdict(host.name, name, Word.REFUSED, reason=reason), good=False)
    remote = remote_for(host)
    word, reason = Word.RESTORED, ""
    try:
        with signals.going_back(f"{host.name}: {name} is being given back"):
            answer = remote.run(f"exec sh {plan.script}", within=400)
            if answer.status != 0:
                word = Word.REFUSED if answer.status == 3 else Word.RESTORE_FAILED
                reason = answer.output.strip()[-300:]
            elif plan.recorded.running:
                _judge_given_back(remote, plan.recorded.id)
    except Lost as e:
        word, reason = Word.IN_DOUBT, str(e)
    except RollpinError as e:
        word, reason = Word.RESTORE_FAILED, f"it was given back, but {e}"
    return _ended(host, Verdict(host.name, name, word, reason=reason), good=word is Word.RESTORED)


def _judge_given_back(remote: Remote, ident: str) -> None:
    api, probe = DockerApi(remote), Probe(remote)
    try:
        found = api.find_container(ident)
        target = foreign_target(container(found), None, 0) if found else None
        if target is None or not target.port:
            return
        probe.prove(target.port)
        Examiner(remote, api, probe).await_good(target, target.deadline, lambda: None, fresh=False)
    finally:
        api.close()
