"""The transactions that golden files show: a plan each, with what only a run knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from rollpin.observe import HostState
from rollpin.plan import Plan
from rollpin.plan_rollback import plan_rollback
from rollpin.scripts import Bound

from . import builders as a


def first_release() -> Plan:
    return a.plan(a.host(a.production()))


def first_release_foreign() -> Plan:
    """dsv4_scan holds GPUs too, idle; its policy is `always`."""
    wanted, notes = a.impatient(a.profile(), idle="2s")
    return a.plan(a.host(a.production(), a.scan()), wanted, notes=notes)


def _next(state: HostState) -> Plan:
    wanted = dataclasses.replace(a.profile(), pin=a.OTHER_DIGEST)
    return a.plan(state, wanted, pin=a.pin(a.OTHER_DIGEST))


def next_release() -> Plan:
    return _next(a.with_release_1().state)


def next_release_foreign() -> Plan:
    """dsv4_scan was started while release 1 serves."""
    return _next(a.with_release_1(a.scan()).state)


def rollback_to_1() -> Plan:
    return plan_rollback(a.with_release_2().state, "glm53", a.BY, to=1)


def rollback_before_1() -> Plan:
    """Both that release 1 displaced come back; glm53-pp4 is the one that is judged."""
    history = a.with_release_1(displaced=(a.production(), a.scan()))
    return plan_rollback(history.state, "glm53", a.BY)


CASES: dict[str, Callable[[], Plan]] = {
    case.__name__: case
    for case in (
        first_release,
        first_release_foreign,
        next_release,
        next_release_foreign,
        rollback_to_1,
        rollback_before_1,
    )
}


def bound(plan: Plan) -> Bound:
    """As the run would bind it: a rollback creates nothing."""
    created = {1: a.R1, 2: a.R2, 3: a.R3}[plan.number] if plan.create else ""
    return Bound(f"{plan.service}-{plan.number}-0badcafe", created)
