"""The operations of a deploy: everything is staged everywhere before anything is swapped."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from datetime import UTC, datetime
from typing import Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from rollpin import report, signals
from rollpin.docker_api import DockerApi
from rollpin.errors import RollpinError, UsageError
from rollpin.observe import HostState
from rollpin.operations.progress import PullProgress
from rollpin.plan import Plan, decided_difference
from rollpin.planning import Request, bound_plan, plan_back, plan_for, remote_for
from rollpin.probe import Probe
from rollpin.stage import Staged, remake, stage, unstage
from rollpin.transaction import Transaction
from rollpin.verdict import Verdict, Word

signals.install()

_SHOWN: dict[tuple[str, str], Plan] = {}  # (host, service) -> the plan a person saw
_STAGED: dict[tuple[str, str], Staged] = {}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _say(the_host: Any) -> Any:
    return lambda text: logger.info(f"{the_host.print_prefix}{text}")


def _refused(the_host: Any, service: str, reason: str, number: int = 0) -> bool:
    verdict = Verdict(the_host.name, service, Word.REFUSED, release=number, reason=reason)
    return _ended(the_host, verdict)


def _ended(the_host: Any, verdict: Verdict) -> bool:
    report.add(verdict)
    log = logger.info if verdict.word.good else logger.error
    log(f"{the_host.print_prefix}{verdict.word.value}{verdict.reason and ': '}{verdict.reason}")
    return verdict.word.good and not signals.received()


def _changed(the_host: Any, plan: Plan) -> str | None:
    """Why this plan is not the one that was shown or bound; None when it is."""
    bound = bound_plan(the_host)
    if bound is not None and bound != plan.hash:
        return f"the plan is {plan.hash} now, bound was {bound}; see it with --dry"
    shown = _SHOWN.get((the_host.name, plan.service))
    if shown is not None and shown.hash != plan.hash:
        return "the host changed since the plan was shown: " + "; ".join(
            decided_difference(shown, plan)
        )
    return None


@operation(is_idempotent=True, _set_in_op=False)
def staged(profile: str, overlays: Sequence[str] = ()) -> Generator[FunctionCommand, None, None]:
    """
    Everything slow and harmless for a release of ``profile``, before anything stops.

    + profile: path of the profile, from the directory pyinfra runs in
    + overlays: names or paths of overlays to apply

    Pulls by digest, checks what arrived, makes the cache dirs, creates the container, writes the
    scripts. A plan that is refused fails this host here, never the preparation of the others.
    """
    request = Request(profile, tuple(overlays))
    try:
        plan, seen = plan_for(host, request)
    except UsageError as e:
        report.preview_refused(host, str(e))
        yield FunctionCommand(_fail, [profile, str(e)], {})
        return
    report.show(plan)
    report.preview(host, plan.refused)
    _SHOWN.setdefault((host.name, plan.service), plan)
    if plan.unchanged and not plan.refused:
        return
    # The body runs again right before it is executed, so this plan is as fresh as can be.
    yield FunctionCommand(_stage, [plan, seen], {})


@operation(is_idempotent=True, _set_in_op=False)
def live(profile: str, overlays: Sequence[str] = ()) -> Generator[FunctionCommand, None, None]:
    """
    The staged release of ``profile`` serves, or what served before does again.

    + profile: path of the profile
    + overlays: names or paths of overlays to apply

    Arms the guard, swaps, verifies, commits; goes back on any failure.
    """
    request = Request(profile, tuple(overlays))
    if _staged_for(host, profile):
        yield FunctionCommand(_live, [request], {})
        return
    try:
        plan, _ = plan_for(host, request)
    except UsageError as e:
        yield FunctionCommand(_fail, [profile, str(e)], {})
        return
    if plan.unchanged and not plan.refused:
        if host.state.is_executing:
            _unchanged(plan)
        return
    yield FunctionCommand(_live, [request], {})


@operation(is_idempotent=False, _set_in_op=False)
def rolled_back(
    service: str, to: int | str | None = None
) -> Generator[FunctionCommand, None, None]:
    """
    ``service`` serves release ``to`` again, by a new numbered and guarded release.

    + service: the service's name
    + to: a release, 0 for what stood before release 1; without it the one before the current
    """
    try:
        plan, seen = plan_back(host, service, to)
    except UsageError as e:
        report.preview_refused(host, str(e))
        yield FunctionCommand(_fail, [service, str(e)], {})
        return
    report.show(plan)
    report.preview(host, plan.refused)
    _SHOWN.setdefault((host.name, service), plan)
    yield FunctionCommand(_roll_back, [plan, seen, to], {})


def _staged_for(the_host: Any, profile: str) -> Staged | None:
    """What this run staged on the host from this profile."""
    for (name, _), one in _STAGED.items():
        if name == the_host.name and one.plan.profile == _stem(profile):
            return one
    return None


def _stem(profile: str) -> str:
    return profile.rsplit("/", 1)[-1].removesuffix(".env")


def _unchanged(plan: Plan) -> None:
    report.add(
        Verdict(
            plan.host,
            plan.service,
            Word.UNCHANGED,
            release=plan.current,
            digest=plan.digest,
            note=f"/var/lib/rollpin/{plan.service}/releases/{plan.current}/NOTE.md",
            warnings=plan.warnings,
        )
    )


def _fail(state: Any, host: Any, profile: str, reason: str) -> bool:
    return _refused(host, _stem(profile), reason)


def _stage(state: Any, host: Any, plan: Plan, seen: HostState) -> bool:
    one = _staged_or_refused(host, plan, seen)
    if one is None:
        return False
    _STAGED[(host.name, plan.service)] = one
    signals.staged(1)
    return True


def _staged_or_refused(host: Any, plan: Plan, seen: HostState) -> Staged | None:
    """Stages the plan; None when it was refused, with everything as it was before."""
    try:
        reason = "; ".join(map(str, plan.refusals)) or _changed(host, plan)
    except UsageError as e:
        reason = str(e)
    if reason:
        _refused(host, plan.service, reason)
        return None
    remote = remote_for(host)
    api = DockerApi(remote)
    progress = PullProgress(host)
    try:
        with signals.interruptible(f"{host.name}: nothing was stopped"), progress:
            return stage(plan, seen, remote, api, _now(), progress.update, _say(host))
    except RollpinError as e:
        _refused(host, plan.service, str(e), plan.number)
    except signals.Interrupted as e:
        _refused(host, plan.service, f"interrupted by signal {e.number}", plan.number)
    finally:
        api.close()
    return None


def _live(state: Any, host: Any, request: Request) -> bool:
    one = _staged_for(host, request.profile)
    if one is None:
        reason = "it was not staged in this run; run release.staged first"
        return _refused(host, _stem(request.profile), reason)
    return _transact(
        host, one, lambda: plan_for(host, request, one.plan.number, one.bound.container)[0]
    )


def _roll_back(state: Any, host: Any, plan: Plan, seen: HostState, to: object) -> bool:
    if plan.remake and not plan.refused:
        made = _made_again(host, plan, seen, to)
        if made is None:
            return False
        plan, seen = made
    one = _staged_or_refused(host, plan, seen)
    if one is None:
        return False
    _STAGED[(host.name, plan.service)] = one
    signals.staged(1)
    return _transact(host, one, lambda: plan_back(host, plan.service, to, plan.number)[0])


def _made_again(
    host: Any, plan: Plan, seen: HostState, to: object
) -> tuple[Plan, HostState] | None:
    """The plan once everything that it starts is there again; None when it was refused."""
    api = DockerApi(remote_for(host))
    progress = PullProgress(host)
    try:
        reason = _changed(host, plan)
        if reason is None:
            with signals.interruptible(f"{host.name}: nothing was stopped"), progress:
                remake(plan, seen, remote_for(host), api, progress.update, _say(host))
            return plan_back(host, plan.service, to, plan.number)
    except (RollpinError, signals.Interrupted) as e:
        reason = str(e) if isinstance(e, RollpinError) else f"interrupted by signal {e.number}"
    finally:
        api.close()
    _refused(host, plan.service, reason, plan.number)
    return None


def _transact(host: Any, one: Staged, again: Any) -> bool:
    """Observes once more, right before arming; then the transaction."""
    remote = remote_for(host)
    api = DockerApi(remote)
    try:
        try:
            with signals.interruptible(f"{host.name}: nothing was stopped"):
                plan = again()
                reason = (
                    "; ".join(map(str, plan.refusals)) if plan.refused else _changed(host, plan)
                )
        except (RollpinError, signals.Interrupted) as e:
            reason = str(e) if isinstance(e, RollpinError) else f"interrupted by signal {e.number}"
        if reason:
            with signals.going_back(f"{host.name}: nothing was stopped"):
                try:
                    unstage(one, remote, reason)
                except RollpinError as e:
                    reason += f"; what was staged could not be removed: {e}"
            return _refused(host, one.plan.service, reason, one.plan.number)
        transaction = Transaction(one, remote, api, Probe(remote), _say(host))
        return _ended(host, transaction.run())
    finally:
        api.close()
        if _STAGED.pop((host.name, one.plan.service), None):
            signals.staged(-1)
